package mcpclient_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// streams checks that progress and result of a call come through an event
// stream of the given form, whole and in order, in both eras.
func streams(t *testing.T, form mcptest.SSEOptions) {
	t.Helper()
	form.Always = true
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		synctest.Test(t, func(t *testing.T) {
			s := answered(features(era), "steps", mcptest.FloodProgress(3, mcptest.Echo()))
			s.SSE = form
			c := overHTTP(t, s, mcpclient.Options{})
			var steps []float64
			args := jsontext.Value(`{"text":"line one\nline two","n":9007199254740993}`)
			result, err := c.CallTool(t.Context(), "steps", args, &mcpclient.CallOptions{
				Progress: func(_ context.Context, p mcpclient.Progress) { steps = append(steps, p.Progress) },
			})
			if err != nil {
				t.Fatalf("era %v, %+v: %v", era, form, err)
			}
			var got struct {
				Structured struct{ Text, N any } `json:"structuredContent"`
			}
			dec := json.NewDecoder(strings.NewReader(string(result.Raw)))
			dec.UseNumber()
			if err := dec.Decode(&got); err != nil || got.Structured.Text != "line one\nline two" || got.Structured.N != json.Number("9007199254740993") {
				t.Errorf("era %v, %+v: %s %v", era, form, result.Raw, err)
			}
			if len(steps) != 3 || steps[2] != 3 {
				t.Errorf("era %v, %+v: progress %v", era, form, steps)
			}
			stillWorks(t, c)
		})
	}
}

// rawStream answers the tool "raw" with a whole event stream; ANSWER stands
// for the right response.
func rawStream(stream string) *mcptest.Server {
	return answered(features(mcptest.Modern), "raw", func(_ context.Context, r *mcptest.Request) (any, error) {
		answer := `{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"resultType":"complete","content":[]}}`
		return &mcptest.Reply{ContentType: "text/event-stream", Body: strings.ReplaceAll(stream, "ANSWER", answer)}, nil
	})
}

func reads(t *testing.T, stream string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, rawStream(stream), mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "raw", nil, nil); err != nil {
			t.Errorf("%q: %v", stream, err)
		}
		stillWorks(t, c)
	})
}

func TestFault43LinesMayEndInAnyWayAndBeSplitAnywhere(t *testing.T) {
	for _, eol := range []string{"\n", "\r\n", "\r"} {
		for _, split := range []bool{false, true} {
			streams(t, mcptest.SSEOptions{EOL: eol, SplitBytes: split, Comments: true})
		}
	}
}

func TestFault44AByteOrderMarkAndAMissingLastBlankLineAreForgiven(t *testing.T) {
	streams(t, mcptest.SSEOptions{BOM: true})
	streams(t, mcptest.SSEOptions{NoFinalBlank: true})
	streams(t, mcptest.SSEOptions{BOM: true, NoFinalBlank: true, SplitBytes: true, EOL: "\r\n"})
	reads(t, "data: ANSWER") // not even a line end
	synctest.Test(t, func(t *testing.T) {
		c := overHTTP(t, rawStream(`data: {"jsonrpc":"2.0","id":`), mcpclient.Options{})
		if e, ok := errOf(c.CallTool(t.Context(), "raw", nil, nil)).(*mcpclient.Error); !ok || e.SafeToRetry { //nolint:errorlint // its own error
			t.Errorf("half of an event at the end is no answer: %v", e)
		}
		stillWorks(t, c)
	})
}

func TestFault46AtMostOneSpaceFollowsTheColon(t *testing.T) {
	streams(t, mcptest.SSEOptions{NoSpace: true})
	reads(t, "data:ANSWER\n\n")
	reads(t, "data:  ANSWER\n\n")
}

func TestFault47TheDataLinesOfAnEventAreOneMessage(t *testing.T) {
	streams(t, mcptest.SSEOptions{MultiData: true})
	streams(t, mcptest.SSEOptions{MultiData: true, NoSpace: true, SplitBytes: true, EOL: "\r\n"})
}

func TestFault49UnknownFieldsAndFieldsWithoutColonAreIgnored(t *testing.T) {
	streams(t, mcptest.SSEOptions{Before: []string{"foo: bar\ndata\nid: a\x00b\nretry: soon\nretry\nevent\n\n"}})
	reads(t, "id\nfoo\nfoo: bar\nretry: -1\ndata: ANSWER\n\n")
	reads(t, "data\n\n: a comment\n\n\n\ndata: ANSWER\n\n")
}

func TestFault50AnEventBeyondTheLimitFailsItsCallAlone(t *testing.T) {
	s := large()
	s.SSE.Always = true
	url, client := mcptest.StartMemoryHTTP(t, s)
	call := func(limit int64, n int) (*mcpclient.Client, error) {
		c := newClient(t, &transport.HTTP{URL: url, Client: client, MaxReplyBytes: limit}, mcpclient.Options{})
		return c, errOf(c.CallTool(t.Context(), "letters", jsontext.Value(`{"n":`+strconv.Itoa(n)+`}`), nil))
	}
	s.ManyClients = true
	if _, err := call(0, 5<<20); err != nil {
		t.Errorf("5 MiB within the default limit: %v", err)
	}
	if _, err := call(-1, 17<<20); err != nil {
		t.Errorf("17 MiB without a limit: %v", err)
	}
	c, err := call(16<<20, 17<<20)
	if e := wantKind(t, err, mcpclient.KindTooLarge, "limit"); e.Limit != 16<<20 {
		t.Errorf("the limit is named as %d", e.Limit)
	}
	stillWorks(t, c)
}

func TestFault52EventsOfOtherNamesCarryNoMessages(t *testing.T) {
	streams(t, mcptest.SSEOptions{EventName: "message", Before: []string{"event: ping\ndata: hello\n\n", "event: endpoint\ndata: /messages\n\n"}})
	reads(t, "event: ping\ndata: hello\n\nevent: other\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\ndata: ANSWER\n\n")
}

func TestFault53WhatFollowsTheResponseIsIgnored(t *testing.T) {
	streams(t, mcptest.SSEOptions{Tail: []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"progress-1","progress":99}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"the second answer"}]}}`,
		`not even JSON`,
	}})
	either(t, func(t *testing.T, over overFunc) {
		s := answered(features(mcptest.Modern), "twice", mcptest.LateProgress(mcptest.Twice(mcptest.Respond(mcptest.Text("first")))))
		c := over(t, s, mcpclient.Options{})
		late := 0
		result, err := c.CallTool(t.Context(), "twice", nil, &mcpclient.CallOptions{Progress: func(context.Context, mcpclient.Progress) { late++ }})
		if err != nil || !strings.Contains(string(result.Raw), "first") {
			t.Errorf("%v %v", result, err)
		}
		synctest.Wait()
		if late != 0 {
			t.Error("progress from behind the answer was told")
		}
		stillWorks(t, c)
	})
}

func TestFault55AfterARestartTheOldTransportUsesTheNewEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := features(mcptest.Legacy)
		s.Versions = []string{"2024-11-05"}
		s.OldSSE = mcptest.OldSSEOptions{On: true, Endpoint: func(session string) string { return "/moved/" + session + "?session=" + session }}
		c := overHTTP(t, s, mcpclient.Options{})
		if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			s.Hangup() // every stream, and with it every session, is gone
			synctest.Wait()
			time.Sleep(time.Minute)
			if _, err := c.CallTool(t.Context(), "echo", nil, nil); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
		if st := c.Status(); st.Connects != 4 || st.Server.ProtocolVersion != "2024-11-05" {
			t.Errorf("status %+v", st)
		}
		calls := s.Entries("tools/call")
		if last := calls[len(calls)-1].Session; len(calls) != 4 || last == calls[0].Session {
			t.Errorf("%d calls, the last to session %s", len(calls), last)
		}
	})
	t.Run("never at another origin", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := features(mcptest.Legacy)
			s.OldSSE = mcptest.OldSSEOptions{On: true, Endpoint: func(session string) string { return "http://thief.invalid/messages?session=" + session }}
			c := overHTTP(t, s, mcpclient.Options{Lazy: true})
			if err := c.Connect(t.Context()); err == nil {
				t.Error("it connected")
			}
			if s.Count("notifications/initialized") != 0 {
				t.Errorf("the server saw %v", s.Methods())
			}
		})
	})
}
