package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newServer is a server whose files are in a folder of the test.
func newServer(t *testing.T) *chaosServer {
	t.Helper()
	dir := t.TempDir()
	calls, err := os.OpenFile(callsFile(dir, "x"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { calls.Close() })
	return &chaosServer{calls: calls, mode: modeFile(dir, "x")}
}

func (s *chaosServer) setMode(t *testing.T, mode string) {
	t.Helper()
	if err := replaceFile(s.mode, mode); err != nil {
		t.Fatal(err)
	}
}

func (s *chaosServer) recorded(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(s.calls.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func request(id string, delay time.Duration) *mcp.CallToolRequest {
	arguments := fmt.Sprintf(`{"id":%q,"delay_ms":%d}`, id, delay.Milliseconds())
	return &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Arguments: json.RawMessage(arguments)}}
}

func TestACallIsRecordedBeforeItIsAnswered(t *testing.T) {
	s := newServer(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := s.record(ctx, request("x/1", time.Hour))
			done <- err
		}()
		synctest.Wait()
		if got := s.recorded(t); got != "x/1\n" {
			t.Errorf("recorded %q before the answer", got)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("a call that was cancelled has an answer")
		}
		began := time.Now()
		result, err := s.record(t.Context(), request("x/2", time.Minute))
		if err != nil || time.Since(began) != time.Minute || len(result.Content) != 1 {
			t.Errorf("%v after %v: %v", result, time.Since(began), err)
		}
	})
	if got := s.recorded(t); got != "x/1\nx/2\n" {
		t.Errorf("recorded %q", got)
	}
}

func TestASlowServerTakesItsTimeAndOneThatIsWellDoesNot(t *testing.T) {
	s := newServer(t)
	synctest.Test(t, func(t *testing.T) {
		for mode, want := range map[string]time.Duration{"": time.Second, slowMode + "2500": 2500 * time.Millisecond} {
			s.setMode(t, mode)
			began := time.Now()
			if _, err := s.record(t.Context(), request("x/1", time.Second)); err != nil || time.Since(began) != want {
				t.Errorf("mode %q: %v, %v", mode, time.Since(began), err)
			}
		}
		s.setMode(t, slowMode+"soon")
		if _, err := s.record(t.Context(), request("x/1", 0)); err == nil {
			t.Error("a mode that makes no sense is obeyed")
		}
	})
}

func TestACallThatCannotBeRecordedHasNoAnswer(t *testing.T) {
	s := newServer(t)
	s.calls.Close()
	if result, err := s.record(t.Context(), request("x/1", 0)); err == nil {
		t.Errorf("answer %v", result)
	}
}

func TestTheModeDecidesWhatHTTPAnswers(t *testing.T) {
	s := newServer(t)
	handler := s.faults(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the server") }))
	for _, tt := range []struct {
		mode   string
		status int
		says   string
	}{{mode500, 500, "out of order"}, {mode404, 404, "not found"}, {modeHTML, 200, "<!doctype html>"}, {slowMode + "10", 200, "the server"}, {"", 200, "the server"}} {
		s.setMode(t, tt.mode)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mcp", nil))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("mode %q: %d %q", tt.mode, w.Code, w.Body)
		}
	}
}

func TestExecutionsAreReadByTarget(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.calls"), []byte("a/1\na/2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readExecutions(dir, []*target{{name: "a"}, {name: "b"}})
	if err != nil || len(got["a"]) != 2 || len(got["b"]) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}
