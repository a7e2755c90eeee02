package bridgeotel

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// traced returns a client of a scripted server whose requests are traced.
func traced(t *testing.T, tel *Telemetry, s *mcptest.Server) *mcpclient.Client {
	t.Helper()
	url, http := mcptest.StartMemoryHTTP(t, s)
	target := tel.Target(TargetOptions{Name: "weather"})
	c, err := mcpclient.New(&transport.HTTP{URL: url, Client: http}, mcpclient.Options{
		Interceptors: []mcpclient.Interceptor{target.Interceptor()},
		Meta:         target.Meta(), Headers: target.Headers(),
		OnConnect: target.OnConnect(), OnWait: target.OnWait(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// weather is a server whose tool get_weather answers by the handlers, one after
// the other.
func weather(era mcptest.Era, handlers ...mcptest.Handler) *mcptest.Server {
	return &mcptest.Server{Era: era, Tools: []mcptest.Tool{{Name: "get_weather", Call: mcptest.Sequence(handlers...)}}}
}

// continued lists the ended spans of some methods, each with the number of the
// one that it is linked to.
func continued(recorder interface {
	Ended() []sdktrace.ReadOnlySpan
}, names ...string) []string {
	var list []string
	number := map[trace.SpanID]int{}
	for _, span := range recorder.Ended() {
		for _, name := range names {
			if span.Name() != name {
				continue
			}
			parts := []string{name}
			for _, link := range span.Links() {
				parts = append(parts, fmt.Sprint("after ", number[link.SpanContext.SpanID()]))
			}
			list = append(list, strings.Join(parts, " "))
			number[span.SpanContext().SpanID()] = len(list)
		}
	}
	return list
}

const callSpan = "tools/call get_weather"

func call(t *testing.T, c *mcpclient.Client, o *mcpclient.CallOptions) *mcpclient.Result {
	t.Helper()
	result, err := c.CallTool(t.Context(), "get_weather", nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestARetryIsLinkedToTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, recorder := recording(t, sdktrace.AlwaysSample())
		s := weather(mcptest.Legacy, mcptest.Respond(mcptest.Text("sunny")))
		c := traced(t, tel, s)
		call(t, c, nil)
		s.ExpireSessions()
		call(t, c, nil)
		want := []string{callSpan, callSpan, callSpan + " after 2"}
		if diff := cmp.Diff(want, continued(recorder, callSpan)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, span := range recorder.Ended() {
			if attempt := attributesOf(span)["mcpbridge.attempt"]; span.Name() == callSpan && (attempt != nil) != (len(span.Links()) > 0) {
				t.Errorf("attempt %v has the links %v", attempt, span.Links())
			}
		}
	})
}

func TestRoundsOfQuestionsAreLinked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, recorder := recording(t, sdktrace.AlwaysSample())
		asks := mcptest.Respond(mcptest.Raw(`{"resultType":"input_required","requestState":"s"}`))
		call(t, traced(t, tel, weather(mcptest.Modern, asks, asks, mcptest.Respond(mcptest.Text("sunny")))), nil)
		want := []string{callSpan, callSpan + " after 1", callSpan + " after 1"}
		if diff := cmp.Diff(want, continued(recorder, callSpan)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestACallThatContinuesAnotherIsLinkedToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, recorder := recording(t, sdktrace.AlwaysSample())
		const question = `"inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Where?","requestedSchema":{"type":"object","properties":{}}}}}`
		asks := mcptest.Respond(mcptest.Raw(`{"resultType":"input_required",` + question + `,"requestState":"state \u0031"}`))
		c := traced(t, tel, weather(mcptest.Modern, asks, mcptest.Respond(mcptest.Text("sunny"))))
		if first := call(t, c, &mcpclient.CallOptions{ReturnInput: true}); first.Type != mcpclient.ResultInputRequired {
			t.Fatalf("the first call ended with %s", first.Raw)
		}
		state, other := "state 1", "never seen"
		answers := []byte(`{"q":{"action":"accept","content":{}}}`)
		call(t, c, &mcpclient.CallOptions{ReturnInput: true, RequestState: &state, InputResponses: answers})
		call(t, c, &mcpclient.CallOptions{ReturnInput: true, RequestState: &other, InputResponses: answers})
		want := []string{callSpan, callSpan + " after 1", callSpan}
		if diff := cmp.Diff(want, continued(recorder, callSpan)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestPollsOfATaskAreLinkedToTheCallThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel, recorder := recording(t, sdktrace.AlwaysSample())
		const task = `"taskId":"t1","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"`
		s := weather(mcptest.Modern, mcptest.Respond(mcptest.Raw(`{"resultType":"task","status":"working",`+task+`}`)))
		s.Capabilities = `{"tools":{},"extensions":{"` + mcpclient.TasksExtension + `":{}}}`
		working := mcptest.Respond(mcptest.Raw(`{"status":"working",` + task + `}`))
		completed := mcptest.Respond(mcptest.Raw(`{"status":"completed","result":{"content":[]},` + task + `}`))
		s.Handle = map[string]mcptest.Handler{"tasks/get": mcptest.Sequence(working, completed, completed)}
		c := traced(t, tel, s)
		call(t, c, nil)
		want := []string{callSpan, "tasks/get after 1", "tasks/get after 1"}
		if diff := cmp.Diff(want, continued(recorder, callSpan, "tasks/get")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}

		// one that the caller takes and asks for itself
		taken := call(t, c, &mcpclient.CallOptions{ReturnTask: true})
		if taken.Type != mcpclient.ResultTask {
			t.Fatalf("the call ended with %s", taken.Raw)
		}
		if _, err := c.GetTask(t.Context(), "t1", nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, callSpan, "tasks/get after 4")
		if diff := cmp.Diff(want, continued(recorder, callSpan, "tasks/get")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestOnlyTheNewestResultsAreRemembered(t *testing.T) {
	e := newEarlier()
	span := func(i int) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{byte(i), byte(i >> 8), 1}})
	}
	for i := range maxEarlier + 10 {
		e.add("task", fmt.Sprint(i), span(i))
	}
	e.add("task", "20", span(7)) // again
	for i, want := range map[int]bool{0: false, 9: false, 10: true, 20: true, maxEarlier + 9: true} {
		if _, ok := e.find("task", fmt.Sprint(i)); ok != want {
			t.Errorf("task %d is remembered: %t", i, ok)
		}
	}
	if got, _ := e.find("task", "20"); !got.Equal(span(7)) {
		t.Error("the newest span of a task is not the one that is found")
	}
	if _, ok := e.find("input_required", "20"); ok {
		t.Error("a task was found as a request state")
	}
	if len(e.spans) != maxEarlier || len(e.order) != maxEarlier {
		t.Errorf("%d spans and %d places", len(e.spans), len(e.order))
	}
}

func TestTheSpanOfASubscriptionEndsAtItsAcknowledgement(t *testing.T) {
	for name, tt := range map[string]struct {
		acknowledge bool
		err         error
		status      codes.Code
	}{
		"acknowledged, then lost": {acknowledge: true, err: &mcpclient.Error{Kind: mcpclient.KindLost}},
		"refused":                 {err: &mcpclient.Error{Kind: mcpclient.KindRPC, Message: "no"}, status: codes.Error},
		"over at once":            {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tel, recorder := recording(t, sdktrace.AlwaysSample())
				acknowledged := make(chan struct{})
				c := &mcpclient.Call{Method: "subscriptions/listen", ID: jsonrpc.IntID(1), Attempt: 1, Acknowledged: acknowledged}
				_, err := tel.Target(TargetOptions{}).Interceptor()(t.Context(), c, func(context.Context, *mcpclient.Call) (*mcpclient.Result, error) {
					if tt.acknowledge {
						close(acknowledged)
						synctest.Wait()
						if len(recorder.Ended()) != 1 {
							t.Error("the span goes on behind the acknowledgement")
						}
					}
					return nil, tt.err
				})
				if err != tt.err { //nolint:errorlint // the very same error must come back
					t.Errorf("the chain's outcome became %v", err)
				}
				if ended := recorder.Ended(); len(ended) != 1 || ended[0].Status().Code != tt.status {
					t.Errorf("the ended spans are %v, want one of status %v", ended, tt.status)
				}
			})
		})
	}
}
