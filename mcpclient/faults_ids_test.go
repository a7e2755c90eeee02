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
