package mcpclient_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// replyID rewrites the ids of answers to tools/call alone, once connected.
func replyID(s *mcptest.Server, to func(json.RawMessage) json.RawMessage) {
	s.ReplyID = func(id json.RawMessage) json.RawMessage {
		for _, e := range s.Entries("tools/call") {
			if e.ID == string(id) {
				return to(id)
			}
		}
		return id
	}
}

func TestFault70AnAnswerWithAWrongIDCompletesNoCall(t *testing.T) {
	for _, id := range []string{`0`, `null`, `"abc"`, `999`, ``, `-1`, `1.5`, `"2"`} {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			replyID(s, mcptest.AlwaysID(id))
			c := overPipe(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 5 * time.Second}})
			connected(t, c)
			start := time.Now()
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- errOf(c.CallTool(t.Context(), "echo", nil, nil)) }()
			}
			for range 2 {
				_ = wantKind(t, <-errs, mcpclient.KindTimeout, "")
			}
			took(t, start, 5*time.Second)
			synctest.Wait()
			stillWorks(t, c)
		})
	}
	t.Run("over HTTP it is told at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			replyID(s, mcptest.AlwaysID("999"))
			c := overHTTP(t, s, mcpclient.Options{})
			connected(t, c)
			_ = wantKind(t, errOf(c.CallTool(t.Context(), "echo", nil, nil)), mcpclient.KindProtocol, "999")
			stillWorks(t, c)
		})
	})
}

func TestFault71AnErrorWithoutAnIDBelongsToTheOnlyOneItCan(t *testing.T) {
	for _, id := range []string{"null", "-"} {
		for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
			either(t, func(t *testing.T, over overFunc) {
				s := answered(features(era), "anon", func(context.Context, *mcptest.Request) (any, error) {
					return nil, &mcptest.Error{Code: -32603, Message: "anonymous", ID: id}
				})
				c := over(t, s, mcpclient.Options{})
				connected(t, c)
				start := time.Now()
				_ = wantKind(t, errOf(c.CallTool(t.Context(), "anon", nil, nil)), mcpclient.KindRPC, "anonymous")
				took(t, start, 0)
				stillWorks(t, c)
			})
		}
	}
	t.Run("with two calls waiting on one stream it is nobody's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			s := answered(features(mcptest.Modern), "anon", func(context.Context, *mcptest.Request) (any, error) {
				return nil, &mcptest.Error{Code: -32603, Message: "anonymous", ID: "null"}
			})
			answered(s, "slow", mcptest.After(gate, mcptest.Respond(mcptest.Text("done"))))
			c := overPipe(t, s, mcpclient.Options{Timeouts: mcpclient.Timeouts{Tool: 5 * time.Second}})
			connected(t, c)
			slow := make(chan error, 1)
			go func() { slow <- errOf(c.CallTool(t.Context(), "slow", nil, nil)) }()
			synctest.Wait()
			anon := make(chan error, 1)
			go func() { anon <- errOf(c.CallTool(t.Context(), "anon", nil, nil)) }()
			synctest.Wait()
			close(gate)
			if err := <-slow; err != nil {
				t.Error(err)
			}
			_ = wantKind(t, <-anon, mcpclient.KindTimeout, "")
		})
	})
}

func TestFault73ABrokenEnvelopeWithOurIDFailsOurCall(t *testing.T) {
	for _, broken := range []string{
		`{"jsonrpc":"2.0","id":ID,"result":{},"method":"x"}`, `{"jsonrpc":"2.0","id":ID,"error":"boom"}`,
		`{"jsonrpc":"2.0","id":ID}`, `{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":ID,"result":"text"}`, `{"jsonrpc":"2.0","id":ID,"result":null}`, `{"jsonrpc":"2.0","id":ID,"result":[]}`,
	} {
		either(t, func(t *testing.T, over overFunc) {
			s := answered(features(mcptest.Modern), "broken", func(_ context.Context, r *mcptest.Request) (any, error) {
				return &mcptest.Reply{ContentType: "application/json", Body: strings.ReplaceAll(broken, "ID", string(r.ID))}, nil
			})
			c := over(t, s, mcpclient.Options{})
			connected(t, c)
			start := time.Now()
			err := errOf(c.CallTool(t.Context(), "broken", nil, nil))
			if kindOf(err) != mcpclient.KindProtocol && kindOf(err) != mcpclient.KindRPC {
				t.Errorf("%s: %v", broken, err)
			}
			took(t, start, 0)
			stillWorks(t, c)
		})
	}
}

func TestFault74AnIDInFlightIsNotUsedTwice(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		gate := make(chan struct{})
		s := answered(features(mcptest.Modern), "slow", mcptest.After(gate, mcptest.Respond(mcptest.Text("done"))))
		var n, fixed atomic.Int64
		c := over(t, s, mcpclient.Options{NewID: func() any {
			if id := fixed.Load(); id != 0 {
				return id
			}
			return n.Add(1)
		}})
		if _, err := c.ListTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fixed.Store(1000)
		first := make(chan error, 1)
		go func() { first <- errOf(c.CallTool(t.Context(), "slow", nil, nil)) }()
		synctest.Wait()
		err := errOf(c.CallTool(t.Context(), "echo", nil, nil))
		if e, ok := err.(*mcpclient.Error); !ok || e.Sent || !strings.Contains(err.Error(), "1000") { //nolint:errorlint // its own error
			t.Errorf("the second call: %v", err)
		}
		close(gate)
		if err := <-first; err != nil {
			t.Errorf("the first call: %v", err)
		}
		if s.Count("tools/call") != 1 {
			t.Errorf("the server saw %v", s.Methods())
		}
		fixed.Store(0)
		stillWorks(t, c)
	})
}

func TestFault76NumbersPassDigitForDigit(t *testing.T) {
	const exact = `{"big":9007199254740993,"huge":1e400,"zero":-0,"long":123456789012345678901234567890,"fraction":0.1000000000000000055511151231257827,"exponent":1E+2}`
	either(t, func(t *testing.T, over overFunc) {
		c := over(t, features(mcptest.Legacy), mcpclient.Options{})
		result, err := c.CallTool(t.Context(), "echo", jsontext.Value(exact), nil)
		if err != nil || !strings.Contains(string(result.Raw), `"structuredContent":`+exact) {
			t.Errorf("%s %v", result.Raw, err)
		}
		value, err := c.CallToolValue(t.Context(), "echo", jsontext.Value(exact), nil)
		if err != nil || value.Text != exact {
			t.Errorf("%+v %v", value, err)
		}
	})
	t.Run("ids, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			c := overPipe(t, s, mcpclient.Options{})
			connected(t, c)
			for _, id := range []string{"9007199254740993", "-1", "0", `"9007199254740993"`} {
				s.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
				synctest.Wait()
				all := s.Transcript()
				if got := all[len(all)-1]; got.ID != id && !strings.Contains(string(got.Raw), id) {
					t.Errorf("id %s came back in %s", id, got.Raw)
				}
			}
			s.ForgiveViolations() // the fake asked nothing under these ids
		})
	})
}

func TestFault77ASecondAnswerIsIgnored(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := answered(features(mcptest.Modern), "twice", mcptest.Twice(mcptest.Echo()))
		var log faultLog
		c := over(t, s, mcpclient.Options{Logger: log.logger()})
		for range 5 {
			if _, err := c.CallTool(t.Context(), "twice", nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		stillWorks(t, c)
	})
}

func TestFault79WhatIsUnknownIsIgnored(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := answered(features(mcptest.Legacy), "chatty", func(ctx context.Context, r *mcptest.Request) (any, error) {
			r.Notify("notifications/stderr", map[string]any{"data": "x"})
			r.Notify("data", nil)
			r.Notify("notifications/future/thing", []int{1})
			r.Send(`{"jsonrpc":"2.0","method":"notifications/progress","params":"none","extra":{}}`)
			r.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":[]}`)
			r.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}`)
			r.Send(`{"jsonrpc":"2.0","method":"notifications/resources/updated"}`)
			return mcptest.Raw(`{"content":[{"type":"hologram","x":1}],"futureMember":{"deep":[null]},"_meta":{"a/b":1}}`), nil
		})
		s.Capabilities = `{"tools":{"listChanged":true,"future":{}},"resources":{},"experimental":{"x":{}},"future":7,"logging":null,"prompts":true}`
		c := over(t, s, mcpclient.Options{})
		result, err := c.CallTool(t.Context(), "chatty", nil, nil)
		if err != nil || !strings.Contains(string(result.Raw), `"futureMember":{"deep":[null]}`) {
			t.Errorf("%v %v", result, err)
		}
		if got := string(c.Status().Server.Capabilities); got != s.Capabilities {
			t.Errorf("capabilities %s", got)
		}
		stillWorks(t, c)
	})
}

func TestFault80AnUnknownRequestIsAnsweredWithItsOwnID(t *testing.T) {
	either(t, func(t *testing.T, over overFunc) {
		s := features(mcptest.Legacy)
		c := over(t, s, mcpclient.Options{})
		connected(t, c)
		synctest.Wait()
		ids := []string{`7`, `"7"`, `0`, `"x y"`, `-3`}
		for _, id := range ids {
			s.Send(`{"jsonrpc":"2.0","id":` + id + `,"method":"foo/bar","params":{}}`)
		}
		synctest.Wait()
		var got []string
		for _, e := range s.Entries(mcptest.MethodResponse) {
			if !strings.Contains(string(e.Raw), `-32601`) {
				t.Errorf("%s", e.Raw)
			}
			got = append(got, e.ID)
		}
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("answers to %v, want %v", got, ids)
		}
		s.ForgiveViolations() // the fake asked nothing under these ids
		stillWorks(t, c)
	})
}

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
