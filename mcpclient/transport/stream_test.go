package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// pair returns a memory connection and the server's end of it, in a bubble.
func pair(t *testing.T, h Handler, o StreamOptions) (*Stream, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	s := NewStream(ours, h, o)
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		_ = theirs.Close()
	})
	return s, theirs
}

func readLine(t *testing.T, r *bufio.Reader) *jsonrpc.Message {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	m, err := jsonrpc.Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// call runs Call in a goroutine.
func call(ctx context.Context, c Conn, id int64) chan reply {
	out := make(chan reply, 1)
	go func() {
		m, err := c.Call(ctx, legacy(id, "tools/call"))
		out <- reply{m, err}
	}()
	return out
}

func TestFault56_Fault58_Fault61_Fault77_AnswersFindTheirCallsThroughEveryKindOfNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box := newInbox()
		s, server := pair(t, box.handle, StreamOptions{})
		one, two := call(t.Context(), s, 1), call(t.Context(), s, 2)
		r := bufio.NewReader(server)
		readLine(t, r)
		readLine(t, r)
		noise := []string{
			"Starting server v1…\n", "\x1b[31mred\x1b[0m\n", "\n", "\r\n", "npm WARN x\n", `{"level":"info"}` + "\n", "42\n", "[]\n", "[INFO] up\n", "\"s\"\n",
			bom + `{"method":"n1"}` + "\r\n", `  {"id":"q","method":"n2"}` + " \t\r\n", "{\"method\":\"n3\",\"params\":{\"x\":\"\u2028\u0085\"}}\n",
			`{"id":"1","result":{}}` + "\n", `{"id":1.0,"result":{}}` + "\n", `{"id":null,"result":{}}` + "\n", `{"id":null,"error":{"code":1}}` + "\n", `{"id":3,"result":{}}` + "\n",
			`[{"method":"n4"},{"id":2,"result":{"b":2}}]` + "\n",
			`{"id":1,"result":{"a":1}}` + "\n", `{"id":1,"result":{"second":1}}` + "\n",
		}
		for _, line := range noise {
			if _, err := io.WriteString(server, line); err != nil {
				t.Fatal(err)
			}
		}
		got := <-one
		wantResult(t, got.msg, got.err, 1, `{"a":1}`)
		got = <-two
		wantResult(t, got.msg, got.err, 2, `{"b":2}`)
		if got := box.list(); got != "n1@none n2@none n3@none n4@none" {
			t.Errorf("inbound: %s", got)
		}
		if s.Err() != nil || s.PerRequestStreams() {
			t.Error("the connection is not fine")
		}
	})
}

func TestFault71_Fault73_ABrokenAnswerFailsItsOwnCall(t *testing.T) {
	for _, answer := range []string{`{"id":1,"result":{},"method":"x"}`, `{"id":1,"error":"boom"}`, `{"id":1}`, `{"id":1,"result":{`, `{"id":1,"result":{},"error":{"code":1}}`} {
		synctest.Test(t, func(t *testing.T) {
			s, server := pair(t, nil, StreamOptions{})
			one := call(t.Context(), s, 1)
			r := bufio.NewReader(server)
			readLine(t, r)
			say(server, "%s\n", answer)
			wantError(t, (<-one).err, Malformed)
			two := call(t.Context(), s, 2)
			readLine(t, r)
			say(server, "%s\n", `{"id":null,"error":{"code":-32600,"message":"m"}}`)
			if got := <-two; got.err != nil || got.msg.Error == nil || got.msg.ID != jsonrpc.IntID(2) {
				t.Errorf("an error with id null, one call pending: %+v", got)
			}
			three := call(t.Context(), s, 3)
			readLine(t, r)
			say(server, "%s\n", `{"error":{"code":-32600,"message":"m"}}`)
			if got := <-three; got.err != nil || got.msg.Error == nil || got.msg.ID != jsonrpc.IntID(3) {
				t.Errorf("an error without id, one call pending: %+v", got)
			}
		})
	}
}

func TestFault59_ALineBeyondTheLimitFailsTheCallItAnswers(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for name, tt := range map[string]struct {
		line string
		ours bool
	}{
		"id first":        {`{"jsonrpc":"2.0","id":1,"result":{"x":"` + big + `"}}`, true},
		"id last":         {`{"result":{"x":"` + big + `"},"jsonrpc":"2.0","id":1}`, true},
		"id nearly last":  {`{"result":{"x":"` + big + `"},"id":1,"jsonrpc":"2.0"}`, true},
		"nested id last":  {`{"jsonrpc":"2.0","result":{"x":"` + big + `","id":1}}`, false},
		"quoted id":       {`{"jsonrpc":"2.0","result":{"x":"` + big + `\"id\":1}`, false},
		"server's call":   {`{"method":"x","params":{"x":"` + big + `"},"id":1}`, false},
		"server's call 2": {`{"id":1,"method":"x","params":{"x":"` + big + `"}}`, false},
		"junk":            {big, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, server := pair(t, nil, StreamOptions{MaxReplyBytes: 100 << 10})
				one := call(t.Context(), s, 1)
				r := bufio.NewReader(server)
				readLine(t, r)
				say(server, "%s\n", tt.line)
				if !tt.ours {
					say(server, "%s\n", `{"id":1,"result":{}}`)
				}
				got := <-one
				if tt.ours {
					if e := wantError(t, got.err, TooLarge); e.Limit != 100<<10 {
						t.Errorf("limit %d", e.Limit)
					}
				} else {
					wantResult(t, got.msg, got.err, 1, "{}")
				}
			})
		})
	}
}

func TestFault58_Fault59_LinesAreWholeHoweverTheyArrive(t *testing.T) {
	big := strings.Repeat("y", 17<<20)
	in := "a\n" + bom + "b\r\n\n  c \n" + big + "\nlast"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "halves": iotest.HalfReader(strings.NewReader(in))} {
		l := &lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: -1}
		var got []string
		for {
			line, _, err := l.next()
			got = append(got, string(line))
			if err != nil {
				break
			}
		}
		if want := []string{"a", "b", "", "c", big, "last"}; !slices.Equal(got, want) {
			t.Errorf("%s: %d lines, %.40q", name, len(got), got)
		}
	}
}

func TestConcurrentCallsNeverMixTheirLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		go func() {
			r := bufio.NewReader(server)
			for {
				line, err := r.ReadBytes('\n')
				if err != nil {
					return
				}
				m, err := jsonrpc.Decode(line)
				if err != nil {
					t.Errorf("line %.80q: %v", line, err)
					return
				}
				_, _ = server.Write(append(jsonrpc.AppendResult(nil, m.ID, m.Params), '\n'))
			}
		}()
		var wg sync.WaitGroup
		for id := range int64(200) {
			wg.Go(func() {
				params := fmt.Sprintf(`{"p":"%s"}`, strings.Repeat(fmt.Sprint(id%10), int(id)*50))
				r := &Request{ID: jsonrpc.IntID(id), Method: "x", Body: jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), "x", []byte(params))}
				m, err := s.Call(t.Context(), r)
				wantResult(t, m, err, id, params)
			})
		}
		wg.Wait()
	})
}

func TestFault67_ADeadlineHoldsWhileTheServerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := call(ctx, s, 1), call(ctx, s, 2)
		for _, c := range []chan reply{first, second} {
			if got := <-c; !errors.Is(got.err, context.DeadlineExceeded) {
				t.Errorf("error: %v", got.err)
			}
		}
		err := s.Notify(ctx, notification("n"))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Notify: %v after %v", err, time.Since(start))
		}
		// A server that is only slow gets the whole line and lives on.
		r := bufio.NewReader(server)
		readLine(t, r)
		synctest.Wait()
		three := call(t.Context(), s, 3)
		if m := readLine(t, r); m.ID != jsonrpc.IntID(3) {
			t.Errorf("next line is of call %v; what was not begun must not be sent", m.ID)
		}
		say(server, "%s\n", `{"id":1,"result":{}}`) // late
		say(server, "%s\n", `{"id":3,"result":{}}`)
		got := <-three
		wantResult(t, got.msg, got.err, 3, "{}")
		time.Sleep(2 * stallAfter)
		if s.Err() != nil {
			t.Errorf("connection: %v", s.Err())
		}
	})
}

func TestFault67_AServerThatStopsReadingForGoodBreaksTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := pair(t, nil, StreamOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		first := call(ctx, s, 1)
		synctest.Wait()
		second := call(t.Context(), s, 2) // waits for its turn
		if got := <-first; !errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("error: %v", got.err)
		}
		wantError(t, (<-second).err, NotSent)
		<-s.Done()
		if took := time.Since(start); took != time.Second+stallAfter {
			t.Errorf("took %v", took)
		}
		wantError(t, s.Err(), Lost)
		_, err := s.Call(t.Context(), legacy(3, "x"))
		wantError(t, err, NotSent)
	})
}

func TestFault65_WhatTheServerSaidLastIsDeliveredBeforeTheRestFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		one, two := call(t.Context(), s, 1), call(t.Context(), s, 2)
		r := bufio.NewReader(server)
		readLine(t, r)
		readLine(t, r)
		_, _ = io.WriteString(server, `{"id":1,"result":{}}`) // no line end
		_ = server.Close()
		got := <-one
		wantResult(t, got.msg, got.err, 1, "{}")
		wantError(t, (<-two).err, Lost)
		wantError(t, s.Notify(t.Context(), notification("n")), NotSent)
	})
}

// halfClosed refuses writes but can still be read.
type halfClosed struct{ net.Conn }

func (halfClosed) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestRepliesAreStillReadAfterWritingHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := net.Pipe()
		defer server.Close()
		s := NewStream(halfClosed{ours}, nil, StreamOptions{})
		answer := make(chan reply, 1)
		if err := s.register(legacy(1, "x"), answer); err != nil {
			t.Fatal(err)
		}
		_, err := s.Call(t.Context(), legacy(2, "x"))
		wantError(t, err, NotSent)
		_, err = s.Call(t.Context(), legacy(3, "x"))
		wantError(t, err, NotSent)
		say(server, "%s\n", `{"id":1,"result":{}}`)
		got := <-answer
		wantResult(t, got.msg, got.err, 1, "{}")
		start := time.Now()
		<-s.Done()
		if time.Since(start) != brokenGrace {
			t.Errorf("gave up after %v", time.Since(start))
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseFailsWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, server := pair(t, nil, StreamOptions{})
		one := call(t.Context(), s, 1)
		readLine(t, bufio.NewReader(server))
		_, err := s.Call(t.Context(), legacy(1, "x"))
		wantError(t, err, Invalid) // the same id
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		wantError(t, (<-one).err, Closed)
		_, err = s.Call(t.Context(), legacy(2, "x"))
		wantError(t, err, Closed)
		wantError(t, s.Reply(t.Context(), []byte("{}"), ""), Closed)
		broken := legacy(3, "x")
		broken.Body = []byte("{\n}")
		_, err = s.Call(t.Context(), broken)
		wantError(t, err, Closed)
	})
}

func TestFault61_ALineBreakNeverLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := pair(t, nil, StreamOptions{})
		wantError(t, s.Reply(t.Context(), []byte("{\n}"), ""), Invalid)
		_, err := s.Call(t.Context(), &Request{Body: []byte("{}")})
		wantError(t, err, Invalid)
	})
}

func TestThePipeConnectsClientAndServerInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := NewPipe()
		if client.Name() != NameMemory {
			t.Error(client.Name())
		}
		for range 2 {
			go func() {
				conn, err := server.Accept(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				m := readLine(t, bufio.NewReader(conn))
				_, _ = conn.Write(append(jsonrpc.AppendResult(nil, m.ID, nil), '\n'))
				_ = conn.Close()
			}()
			conn, err := client.Dial(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			conn.Ready(Negotiated{})
			m, err := conn.Call(t.Context(), legacy(1, "x"))
			wantResult(t, m, err, 1, "{}")
			if err := conn.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Dial(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial with nobody there: %v", err)
		}
		if _, err := server.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Accept: %v", err)
		}
		server.Close()
		server.Close()
		_, err := client.Dial(t.Context(), nil)
		wantError(t, err, NotSent)
		if _, err := server.Accept(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}
