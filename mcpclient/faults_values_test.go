package mcpclient_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestFault82NullIsTheSameAsAbsentAndNeverSent(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Modern) // the fake refuses null where we send something
		s.PageSize = 0
		answer := func(raw string) mcptest.Handler { return mcptest.Respond(mcptest.Raw(raw)) }
		s.Discover = answer(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":null},"prompts":null,"resources":{}},"instructions":null,"ttlMs":null,"cacheScope":null,"_meta":null,"resultType":null}`)
		s.Handle = map[string]mcptest.Handler{
			"tools/list":     answer(`{"tools":[{"name":"a","description":null,"title":null,"annotations":null,"outputSchema":null,"inputSchema":{"type":"object"},"_meta":null}],"nextCursor":null,"ttlMs":null,"cacheScope":null,"_meta":null}`),
			"tools/call":     answer(`{"content":[{"type":"text","text":"x","annotations":null,"_meta":null}],"structuredContent":null,"isError":null,"_meta":null,"resultType":null}`),
			"resources/list": answer(`{"resources":null,"nextCursor":null}`),
		}
		c := over(t, s, mcpclient.Options{})
		list, err := c.ListTools(t.Context())
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%+v %v", list, err)
		}
		options := &mcpclient.CallOptions{Meta: jsontext.Value(`{"a":null}`)}
		value, err := c.CallToolValue(t.Context(), "a", nil, options)
		if err != nil || value.Text != "x" {
			t.Errorf("%+v %v", value, err)
		}
		if list, err := c.ListResources(t.Context()); err != nil || len(list.Items) != 0 {
			t.Errorf("%+v %v", list, err)
		}
		_ = wantKind(t, errOf(c.GetPrompt(t.Context(), "p", nil, nil)), mcpclient.KindUnsupported, "")
	})
	either(t, func(t *testing.T, over overFunc) {
		s := answered(features(mcptest.Modern), "null error", func(_ context.Context, r *mcptest.Request) (any, error) {
			return &mcptest.Reply{ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"content":[]},"error":null,"method":null}`}, nil
		})
		c := over(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "null error", nil, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestFault83AResultWithoutContentIsAnErrorUnlessItSaysSomethingElse(t *testing.T) {
	for raw, want := range map[string]struct {
		kind mcpclient.Kind // -2 = no error
		text string
	}{
		`{"structuredContent":{"a":1}}`:                 {-2, `{"a":1}`},
		`{"content":null,"structuredContent":{"a":1}}`:  {-2, `{"a":1}`},
		`{"content":[]}`:                                {-2, ``},
		`{"content":[null,{"type":"text","text":"x"}]}`: {-2, `x`},
		`{}`:                            {mcpclient.KindProtocol, ""},
		`{"content":null}`:              {mcpclient.KindProtocol, ""},
		`{"toolResult":{"x":1}}`:        {mcpclient.KindProtocol, ""},
		`{"content":"text"}`:            {mcpclient.KindProtocol, ""},
		`{"content":{"type":"text"}}`:   {mcpclient.KindProtocol, ""},
		`{"_meta":{"content":"decoy"}}`: {mcpclient.KindProtocol, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := answered(features(mcptest.Modern), "odd", mcptest.Respond(mcptest.Raw(raw)))
			c := overHTTP(t, s, mcpclient.Options{})
			value, err := c.CallToolValue(t.Context(), "odd", nil, nil)
			if kindOf(err) != want.kind || err == nil && value.Text != want.text {
				t.Errorf("%s: %+v %v", raw, value, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := answered(features(mcptest.Modern), "odd", mcptest.Respond(mcptest.Raw(`{"content":null,"isError":true}`)))
		c := overHTTP(t, s, mcpclient.Options{})
		if _, ok := errOf(c.CallToolValue(t.Context(), "odd", nil, nil)).(*mcpclient.ToolError); !ok { //nolint:errorlint // its own error
			t.Error("a failure without content is a failure all the same")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Respond(mcptest.Raw(`{"tools":[null,{"name":"no schema"},{"name":"x","inputSchema":{"type":"object"}}]}`))}
		var log faultLog
		c := overHTTP(t, s, mcpclient.Options{Logger: log.logger()})
		list, err := c.ListTools(t.Context())
		if err != nil || len(list.Items) != 2 || !list.Has("no schema") || log.count("dropped") != 1 {
			t.Errorf("%+v %v", list, err)
		}
	})
}

func TestFault85AnUnknownResultTypeIsAnErrorAnAbsentOneIsComplete(t *testing.T) {
	for raw, want := range map[string]mcpclient.Kind{
		`{"resultType":"later"}`:                           mcpclient.KindProtocol,
		`{"resultType":""}`:                                mcpclient.KindProtocol,
		`{"resultType":"Complete","content":[]}`:           mcpclient.KindProtocol,
		`{"resultType":{},"content":[]}`:                   mcpclient.KindProtocol,
		`{"resultType":"task","taskId":"t"}`:               mcpclient.KindProtocol, // the server declares no such extension
		`{"resultType":"complete","content":[]}`:           -2,
		`{"content":[]}`:                                   -2,
		`{"resultType":null,"content":[]}`:                 -2,
		`{"resultType":"complete","content":[],"extra":1}`: -2,
	} {
		either(t, func(t *testing.T, over overFunc) {
			s := answered(features(mcptest.Modern), "odd", func(_ context.Context, r *mcptest.Request) (any, error) {
				return &mcptest.Reply{ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + raw + `}`}, nil
			})
			c := over(t, s, mcpclient.Options{})
			result, err := c.CallTool(t.Context(), "odd", nil, nil)
			if kindOf(err) != want || err == nil && result.Type != mcpclient.ResultComplete {
				t.Errorf("%s: %+v %v", raw, result, err)
			}
			stillWorks(t, c)
		})
	}
}

func TestFault86ATimeToLiveOfAnySizeIsUnderstood(t *testing.T) {
	for ttl, want := range map[string]time.Duration{
		"60000": time.Minute, "-1": 0, "0": 0, "null": 0, `"60000"`: 0, "1.5": time.Millisecond, "true": 0,
		"1e30": 1<<63 - 1, "9223372036854775807": 1<<63 - 1, "99999999999999999999999": 1<<63 - 1, "-1e30": 0, "1e999": 1<<63 - 1, "6e4": time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Modern)
			s.Handle = map[string]mcptest.Handler{"tools/list": mcptest.Respond(mcptest.Raw(`{"tools":[],"ttlMs":` + ttl + `}`))}
			c := overHTTP(t, s, mcpclient.Options{})
			list, err := c.ListTools(t.Context())
			if err != nil || list.TTL != want {
				t.Fatalf("ttlMs %s: %v %v", ttl, list, err)
			}
			time.Sleep(max(min(want, time.Hour)/2, 1)) // well within it, if it has any
			if _, err := c.ListTools(t.Context()); err != nil {
				t.Fatal(err)
			}
			fetches := 2
			if want > time.Millisecond {
				fetches = 1
			}
			if n := s.Count("tools/list"); n != fetches && want != time.Millisecond {
				t.Errorf("ttlMs %s: %d fetches, want %d", ttl, n, fetches)
			}
		})
	}
}

func TestFault88AnOddErrorIsStillAnError(t *testing.T) {
	for raw, code := range map[string]int64{
		`{"code":-32000}`: -32000, `{"code":"E_BAD","message":"m"}`: 0, `{"code":1.5,"message":"m"}`: 0, `{"message":"m"}`: 0,
		`{"code":null,"message":null}`: 0, `{"code":7,"message":{"x":1}}`: 7, `{"code":7,"message":"m","data":null}`: 7, `{}`: 0,
	} {
		either(t, func(t *testing.T, over overFunc) {
			s := answered(features(mcptest.Legacy), "odd", func(_ context.Context, r *mcptest.Request) (any, error) {
				return &mcptest.Reply{ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"error":` + raw + `}`}, nil
			})
			c := over(t, s, mcpclient.Options{})
			e := wantKind(t, errOf(c.CallTool(t.Context(), "odd", nil, nil)), mcpclient.KindRPC, "")
			if e.RPC.Code != code {
				t.Errorf("%s: code %d, want %d", raw, e.RPC.Code, code)
			}
			stillWorks(t, c)
		})
	}
}
