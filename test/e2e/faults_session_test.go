package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

// runs is a legacy server whose tool run counts how often it ran.
func runs() (*mcptest.Server, *atomic.Int64) {
	var ran atomic.Int64
	return &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "run", Call: func(context.Context, *mcptest.Request) (any, error) {
		return mcptest.Text(fmt.Sprint("run ", ran.Add(1))), nil
	}}}}, &ran
}

func TestFault1AForgottenSessionIsRenewedOnceAndTheCallRunsOnce(t *testing.T) {
	forgets, ran := runs()
	keeps, _ := runs()
	s := serve(t, map[string]target{"forgets": fake(t, forgets), "keeps": fake(t, keeps)}).stubs(t)
	s.must(t, "keeps", "run", "{}")
	s.must(t, "forgets", "run", "{}")
	for round := 1; round <= 3; round++ {
		forgets.ExpireSessions()
		if got, want := s.must(t, "forgets", "run", "{}"), fmt.Sprint("run ", round+1); got != want {
			t.Errorf("the call returned %q, want %q", got, want)
		}
		wantCount(t, &forgets.Log, "initialize", round+1)
	}

	const callers = 20 // all of them find the session gone at the same time
	before := ran.Load()
	forgets.ExpireSessions()
	each(callers, func(int) {
		if _, err := s.call(t.Context(), "forgets", "run", "{}"); err != nil {
			t.Error(explain(err))
		}
	})
	if got := ran.Load() - before; got != callers {
		t.Errorf("%d calls ran %d times", callers, got)
	}
	wantCount(t, &forgets.Log, "initialize", 5)
	s.must(t, "keeps", "run", "{}")
	wantCount(t, &keeps.Log, "initialize", 1)
}

func TestFault3EveryReplicaServesEveryCall(t *testing.T) {
	question := mcptest.Round{Requests: `{"name":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{}}}}}`, State: `"state of the call"`}
	modernServer := &mcptest.Server{ManyClients: true, Tools: []mcptest.Tool{
		echoTool(), {Name: "ask", Call: mcptest.Rounds(mcptest.Respond(mcptest.Text("answered")), question)}, {Name: "third"},
	}}
	legacyServer := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{echoTool()}}
	configs := map[string]target{"modern": fake(t, modernServer), "legacy": fake(t, legacyServer)}
	replicas := []stubs{serve(t, configs).stubs(t), serve(t, configs).stubs(t)}

	ctx := affine(t.Context(), "user-1")
	for i := range 20 {
		for name := range configs {
			arguments := fmt.Sprintf(`{"i":%d}`, i)
			if got, err := replicas[i%2].call(ctx, name, "echo", arguments); err != nil || got != arguments {
				t.Errorf("call %d of %s: %q, %s", i, name, got, explain(err))
			}
		}
	}
	t.Run("a call with a question is continued on the other one", func(t *testing.T) {
		request := &pb.CallToolRequest{Target: "modern", Name: "ask", ClientCapabilities: &pb.ClientCapabilities{Elicitation: &pb.ClientCapabilities_Elicitation{Form: true}}}
		asked, err := replicas[0].tools.CallTool(ctx, request)
		if err != nil || len(asked.GetInputRequired().GetInputRequests()) != 1 {
			t.Fatalf("%v, %s", asked, explain(err))
		}
		request.RequestState = asked.GetInputRequired().RequestState
		request.InputResponses = map[string]*pb.InputResponse{"name": {Result: pbStruct(t, map[string]any{"action": "accept", "content": map[string]any{}})}}
		answered, err := replicas[1].tools.CallTool(ctx, request)
		if err != nil || firstText(t, answered.GetResult()) != "answered" {
			t.Errorf("%v, %s", answered, explain(err))
		}
	})
	t.Run("a list is continued on the other one", func(t *testing.T) {
		first, err := replicas[0].tools.ListTools(ctx, &pb.ListToolsRequest{Target: "modern", PageSize: 2})
		if err != nil || len(first.GetTools()) != 2 || first.GetNextPageToken() == "" {
			t.Fatalf("%v, %s", first, explain(err))
		}
		rest, err := replicas[1].tools.ListTools(ctx, &pb.ListToolsRequest{Target: "modern", PageSize: 2, PageToken: first.GetNextPageToken()})
		if err != nil || len(rest.GetTools()) != 1 || rest.GetNextPageToken() != "" {
			t.Errorf("%v, %s", rest, explain(err))
		}
	})
}

func TestFault5AConnectionThatWasClosedWhileIdleIsMadeAgain(t *testing.T) {
	t.Parallel()
	// What the bridge keeps open beside the calls; when it comes again, the bridge has seen the end of the old one.
	for era, standing := range map[mcptest.Era]string{mcptest.Modern: "subscriptions/listen", mcptest.Legacy: mcptest.MethodGet} {
		t.Run(standing, func(t *testing.T) {
			t.Parallel()
			server := &mcptest.Server{Era: era, Tools: []mcptest.Tool{echoTool()}, Resources: []mcptest.Resource{{URI: "test://a", Text: "a"}}}
			s := serve(t, map[string]target{"one": fake(t, server)}).stubs(t)
			s.must(t, "one", "echo", "{}")
			arrived(t, &server.Log, standing, 1)
			server.Disconnect()
			arrived(t, &server.Log, standing, 2)
			s.must(t, "one", "echo", "{}")
			for range 20 { // what may be repeated need not wait until the end was seen
				server.Disconnect()
				if _, err := s.resources.ReadResource(t.Context(), &pb.ReadResourceRequest{Uri: "test://a"}); err != nil {
					t.Error(explain(err))
				}
				if one := s.target(t, "one"); one.GetPool().GetConnections() != 1 || one.GetState() != pb.TargetState_TARGET_STATE_READY {
					t.Errorf("%v with %v", one.GetState(), one.GetPool())
				}
			}
		})
	}
}

func TestFault6ASessionThatExpiredWhileIdleIsRenewed(t *testing.T) {
	t.Parallel()
	for name, getStatus := range map[string]int{"no other stream": http.StatusMethodNotAllowed, "with a GET stream": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, ran := runs()
			server.Session.GetStatus = getStatus
			var expiries atomic.Int64
			idle := time.AfterFunc(time.Hour, func() {
				server.ExpireSessions()
				expiries.Add(1)
			})
			t.Cleanup(func() { idle.Stop() })
			server.Status = func(string, int) *mcptest.Reply {
				idle.Reset(time.Second)
				return nil
			}
			s := serve(t, map[string]target{"one": fake(t, server).quick()}).stubs(t)
			for round := range 3 {
				before := expiries.Load()
				if got, want := s.must(t, "one", "run", "{}"), fmt.Sprint("run ", round+1); got != want {
					t.Errorf("the call returned %q, want %q", got, want)
				}
				eventually(t, "the session", func() string {
					if expiries.Load() == before {
						return "does not expire"
					}
					return ""
				})
			}
			if ran.Load() != 3 {
				t.Errorf("3 calls ran %d times", ran.Load())
			}
			if getStatus != 0 {
				wantCount(t, &server.Log, "initialize", 3) // nobody needed a fourth
			}
		})
	}
}

func TestFault8NoBodyOfA404HidesThatTheSessionIsGone(t *testing.T) {
	const failed = `"error":{"code":-32600,"message":"Session not found"}}`
	for name, unknown := range map[string]*mcptest.Reply{
		"empty":             {Status: http.StatusNotFound},
		"text":              {Status: http.StatusNotFound, ContentType: "text/plain", Body: "session not found\n"},
		"id null":           {Status: http.StatusNotFound, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":null,` + failed},
		`id "server-error"`: {Status: http.StatusNotFound, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":"server-error",` + failed},
		"the request's id":  {Status: http.StatusNotFound, ContentType: "application/json", Body: `{"jsonrpc":"2.0","id":` + ownID + `,` + failed},
	} {
		t.Run(name, func(t *testing.T) {
			server, ran := runs()
			server.Session.Unknown = unknown
			config, _ := fakeBehind(t, server, echoesID)
			s := serve(t, map[string]target{"one": config}).stubs(t)
			s.must(t, "one", "run", "{}")
			server.ExpireSessions()
			if got := s.must(t, "one", "run", "{}"); got != "run 2" || ran.Load() != 2 {
				t.Errorf("the call returned %q, and 2 calls ran %d times", got, ran.Load())
			}
			wantCount(t, &server.Log, "initialize", 2)
		})
	}
}

// ownID stands for the id of the request in what is answered through echoesID.
const ownID = `"the request's own id"`

func echoesID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		id := member(body, "id")
		if id == nil {
			id = json.RawMessage("null")
		}
		next.ServeHTTP(&idWriter{ResponseWriter: w, id: id}, r)
	})
}

type idWriter struct {
	http.ResponseWriter
	id []byte
}

func (w *idWriter) Write(b []byte) (int, error) {
	if _, err := w.ResponseWriter.Write(bytes.ReplaceAll(b, []byte(ownID), w.id)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// WriteString hides that of the writer below.
func (w *idWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *idWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestFault15ACallIsOneRequest(t *testing.T) {
	for name, era := range map[string]mcptest.Era{"modern": mcptest.Modern, "legacy": mcptest.Legacy} {
		t.Run(name, func(t *testing.T) {
			server := &mcptest.Server{Era: era, Tools: []mcptest.Tool{echoTool()}}
			config, connections := fakeBehind(t, server, bare)
			s := serve(t, map[string]target{"one": config}).stubs(t)
			s.must(t, "one", "echo", "{}")
			before := len(server.Transcript())
			if before > 8 {
				t.Errorf("%d requests for the first call: %q", before, server.Methods())
			}
			const calls = 200
			for range calls / 2 {
				s.must(t, "one", "echo", "{}")
			}
			if connections.Load() > 3 {
				t.Errorf("%d connections for calls one after the other", connections.Load())
			}
			each(calls/2, func(int) {
				if _, err := s.call(t.Context(), "one", "echo", "{}"); err != nil {
					t.Error(explain(err))
				}
			})
			if got := len(server.Transcript()) - before; got != calls {
				t.Errorf("%d requests for %d calls: %q", got, calls, server.Methods()[before:])
			}
			wantCount(t, &server.Log, "tools/call", calls+1)
		})
	}
}
