package mcptest

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inMemory serves s in memory; it works in bubbles.
func inMemory(t *testing.T, s *Server) *client {
	url, hc := StartMemoryHTTP(t, s)
	return &client{t: t, url: url, http: hc, header: map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	}}
}

func TestCredentialsAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Auth: AuthOptions{Times: 1, Issue: true, TokenDelay: time.Minute, Challenge: "Bearer x"}}
		c := inMemory(t, s)
		resp := c.do(http.MethodPost, "{}")
		if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != "Bearer x" {
			t.Errorf("first = %d %v", resp.StatusCode, resp.Header)
		}
		if status, _ := c.modern("1", "tools/list", ""); status != 401 {
			t.Errorf("without a token = %d", status)
		}
		began := time.Now()
		c.url = strings.TrimSuffix(c.url, "/mcp") + "/token"
		if status, body := c.post(""); status != 200 || !strings.Contains(body, `"token-1"`) || time.Since(began) != time.Minute {
			t.Errorf("token = %d %s after %v", status, body, time.Since(began))
		}
		c.url = strings.TrimSuffix(c.url, "/token") + "/mcp"
		if status, _ := c.modern("2", "tools/list", "", "Authorization", "Bearer token-1"); status != 200 {
			t.Errorf("with it = %d", status)
		}
		s.RevokeToken()
		if status, _ := c.modern("3", "tools/list", "", "Authorization", "Bearer token-1"); status != 401 {
			t.Errorf("revoked = %d", status)
		}
		if s.Count(MethodUnauthorized) != 3 || s.Count(MethodToken) != 1 || s.Count("tools/list") != 1 {
			t.Errorf("log = %v", s.Methods())
		}
	})
}

func TestExchangesAtTheWrongPathAreRedirected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Redirect: RedirectOptions{Code: 308, Target: "/mcp/"}}
		c := inMemory(t, s)
		if status, _ := c.modern("1", "tools/list", ""); status != 200 || s.Count(MethodRedirected) != 1 {
			t.Errorf("status = %d, log %v", status, s.Methods())
		}
	})
}

func TestTheOldTransportNamesItsEndpointAndAnswersOnTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Era: Legacy, OldSSE: OldSSEOptions{On: true}}
		c := inMemory(t, s)
		if status, _ := c.post(initializeBody); status != 405 {
			t.Errorf("POST to the stream = %d", status)
		}
		resp := c.do(http.MethodGet, "")
		next := lines(resp.Body)
		if got := next(t) + "|" + next(t) + "|" + next(t); got != "event: endpoint|data: /messages?session=sse-1|" {
			t.Errorf("first event = %s", got)
		}
		c.url = strings.TrimSuffix(c.url, "/mcp") + "/messages?session=sse-1"
		if status, body := c.post(initializeBody); status != 202 || body != "" {
			t.Errorf("POST = %d %s", status, body)
		}
		if got := next(t) + "|" + next(t); !strings.HasPrefix(got, `event: message|data: {"jsonrpc":"2.0","id":1,"result":{`) {
			t.Errorf("answer = %s", got)
		}
		s.Hangup()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the stream did not break")
		}
		synctest.Wait()
		if status, _ := c.post(request("2", "tools/list")); status != 404 {
			t.Errorf("POST to a session that is gone = %d", status)
		}
	})
}

func TestRoundsCompareWhatComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Tools: []Tool{{Name: "ask", Call: Rounds(Respond(Text("done")), Round{State: `"a\/b"`}, Round{Requests: `{"k":{"method":"roots/list"}}`})}}}
		c := inMemory(t, s)
		call := func(id, more string) string {
			_, body := c.modern(id, "tools/call", `"name":"ask",`+more, "Mcp-Name", "ask")
			return body
		}
		if got := call("1", ""); !strings.Contains(got, `"requestState":"a\/b"`) {
			t.Errorf("first = %s", got)
		}
		if got := call("2", `"requestState":"a/b",`); !strings.Contains(got, `"inputRequests":{"k":`) || len(s.Violations()) != 0 {
			t.Errorf("second = %s, violations %q", got, s.Violations())
		}
		if got := call("3", `"inputResponses":{"other":{}},`); !strings.Contains(got, "done") {
			t.Errorf("third = %s", got)
		}
		wantViolation(t, &s.Log, `inputResponses answer ["other"]`)
		call("4", "")
		call("5", `"requestState":"mangled",`)
		wantViolation(t, &s.Log, "requestState is")
		call("6", "") // begins anew
		if got := s.Violations(); len(got) != 0 {
			t.Errorf("violations = %q", got)
		}
	})
}

func TestTasksGoThroughTheirStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Tasks: true, Tools: []Tool{{Name: "job", Call: StartTask(
			TaskState{PollMs: "50"}, TaskState{Status: "input_required", Requests: `{"k":{"method":"roots/list"}}`}, TaskState{Status: "completed", Result: `{"content":[]}`},
		)}}}
		c := inMemory(t, s)
		if _, body := c.modern("1", "tools/call", `"name":"job",`, "Mcp-Name", "job"); code(t, body) != -32021 {
			t.Errorf("undeclared = %s", body)
		}
		meta := strings.Replace(modernMeta, `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
		_, body := c.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"job",`+meta+`}}`, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "job")
		if !strings.Contains(body, `"resultType":"task"`) || !strings.Contains(body, `"pollIntervalMs":50`) {
			t.Errorf("created = %s", body)
		}
		id := s.TaskIDs()[0]
		task := func(n, method, more string) string {
			_, body := c.modern(n, method, `"taskId":"`+id+`",`+more, "Mcp-Name", "=?base64?dMOkc2stMQ==?=")
			return body
		}
		for n := 3; n < 5; n++ { // it waits for an answer
			if got := task(itoa(n), "tasks/get", ""); !strings.Contains(got, `"inputRequests":{"k"`) {
				t.Errorf("get = %s", got)
			}
		}
		task("5", "tasks/update", `"inputResponses":{"k":{},"x":{}},`)
		wantViolation(t, &s.Log, `"x"`)
		if got := task("6", "tasks/get", ""); !strings.Contains(got, `"completed"`) || !strings.Contains(got, `"result":{"content":[]}`) {
			t.Errorf("get = %s", got)
		}
		task("7", "tasks/cancel", "")
		if got := task("8", "tasks/get", ""); !strings.Contains(got, `"cancelled"`) {
			t.Errorf("get = %s", got)
		}
		id = "nobody's"
		if _, body := c.modern("9", "tasks/get", `"taskId":"nobody's",`, "Mcp-Name", "nobody's"); code(t, body) != -32602 {
			t.Errorf("unknown = %s", body)
		}
	})
}

func TestSubscriptionsAreScripted(t *testing.T) {
	listen := func(t *testing.T, s *Server) string {
		c := inMemory(t, s)
		_, body := c.modern("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true},`)
		return body
	}
	for name, tt := range map[string]struct {
		options ListenOptions
		holds   []string
	}{
		"graceful": {ListenOptions{End: "graceful", EndAfter: time.Hour}, []string{"acknowledged", `"result":{`}},
		"subset":   {ListenOptions{End: "graceful", Subset: `{"toolsListChanged":true}`}, []string{`"notifications":{"toolsListChanged":true}`}},
		"no ack":   {ListenOptions{End: "error", NoAck: true}, []string{"-32603"}},
		"foreign":  {ListenOptions{End: "graceful", Foreign: true}, []string{"nobody's"}},
		"rejected": {ListenOptions{Reject: &Error{Code: -32601, Message: "no"}}, []string{"-32601"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := listen(t, &Server{Listen: tt.options})
				for _, part := range tt.holds {
					if !strings.Contains(body, part) {
						t.Errorf("%s is not in %s", part, body)
					}
				}
				if tt.options.NoAck && strings.Contains(body, "acknowledged") {
					t.Errorf("acknowledged: %s", body)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		body := listen(t, &Server{Listen: ListenOptions{End: "graceful", Flood: 50}})
		if n := strings.Count(body, "list_changed"); n != 50 {
			t.Errorf("%d notifications", n)
		}
	})
}

func TestNotificationsAndAnswersCanBeForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Tools: []Tool{{Name: "t", Call: Flood("notifications/x", 3, nil, FloodProgress(2, ForeignProgress(LateProgress(Twice(Echo())))))}}}
		c := inMemory(t, s)
		meta := strings.Replace(modernMeta, `"_meta":{`, `"_meta":{"progressToken":7,`, 1)
		_, body := c.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",`+meta+`}}`, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "t")
		for part, n := range map[string]int{
			"notifications/x": 3, `"progressToken":7,`: 3, `"progressToken":"7"`: 1, `"progressToken":null`: 1, `"result":`: 2, `"progress":1e6`: 1,
		} {
			if got := strings.Count(body, part); got != n {
				t.Errorf("%s is there %d times, want %d, in %s", part, got, n, body)
			}
		}
		if late := strings.Index(body, "1e6"); late < strings.Index(body, `"result":`) {
			t.Error("the late progress is early")
		}
	})
}

func TestLogLevelsAreKeptPerSessionAndPerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := func(_ context.Context, r *Request) (any, error) {
			r.LogMessage("debug", 1)
			r.LogMessage("error", 2)
			return Text("ok"), nil
		}
		s := &Server{Era: Dual, Logging: LoggingOptions{On: true}, Tools: []Tool{{Name: "l", Call: log}}}
		c := inMemory(t, s)
		call := `{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"l"}}`
		first, second := open(t, c), open(t, c)
		c.post(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}`, first...)
		if _, body := c.post(strings.Replace(call, "ID", "3", 1), first...); strings.Count(body, "notifications/message") != 1 {
			t.Errorf("the first session got %s", body)
		}
		if _, body := c.post(strings.Replace(call, "ID", "4", 1), second...); strings.Count(body, "notifications/message") != 2 {
			t.Errorf("the second session got %s", body)
		}
		resp := c.do(http.MethodGet, "", second...)
		s.LogMessage("debug", "hello")
		if got := lines(resp.Body)(t); !strings.Contains(got, "hello") {
			t.Errorf("the shared stream got %s", got)
		}
		if _, body := c.modern("5", "tools/call", `"name":"l",`, "Mcp-Name", "l"); strings.Contains(body, "notifications/message") {
			t.Errorf("nobody asked: %s", body)
		}
	})
}

func TestServersPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Era: Legacy, PingEvery: time.Minute}
		Check(t, s)
		send, next, hangup := dial(t, s)
		send(initializeBody)
		next(t)
		began := time.Now()
		send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		for n := range 3 {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			if err := json.Unmarshal([]byte(next(t)), &m); err != nil || m.Method != "ping" || time.Since(began) != time.Duration(n+1)*time.Minute {
				t.Errorf("%+v after %v, %v", m, time.Since(began), err)
			}
			send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}`)
		}
		if err := hangup(); err != nil {
			t.Error(err)
		}
		if s.Count(MethodResponse) != 3 {
			t.Errorf("log = %v", s.Methods())
		}
	})
}

func TestLaxServersDoNotCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{ContentType: "application/json; charset=utf-8", Accepted: &Reply{Status: 200, Body: "ok"}, Lax: LaxOptions{Accept: true, ContentType: true, Version: true, Names: true}}
		c := inMemory(t, s)
		resp := c.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`, "Accept", "", "Content-Type", "text/plain")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != s.ContentType {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		legacy := &Server{Era: Legacy, Accepted: &Reply{Status: 200, Body: "ok"}, Lax: LaxOptions{Version: true}}
		c = inMemory(t, legacy)
		id := c.do(http.MethodPost, initializeBody).Header.Get("Mcp-Session-Id")
		if status, body := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", id); status != 200 || body != "ok" {
			t.Errorf("accepted = %d %s", status, body)
		}
	})
}

func TestAServerStopsReadingAfterACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Era: Legacy, Stdio: StdioOptions{StopAfter: 1}}
		Check(t, s)
		client, server := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.ServeStream(t.Context(), server) }()
		sent := make(chan error, 1)
		go func() { _, err := io.WriteString(client, initializeBody+"\n"); sent <- err }()
		if got := lines(client)(t); !strings.Contains(got, "protocolVersion") || <-sent != nil {
			t.Errorf("first = %s", got)
		}
		go func() { _, err := io.WriteString(client, request("2", "tools/list")+"\n"); sent <- err }()
		synctest.Wait()
		s.Close()
		if <-sent == nil || <-served != nil || s.Count("tools/list") != 0 {
			t.Error("it read on")
		}
	})
}

func TestCursorsAndIDsAreForged(t *testing.T) {
	loop, endless := Cursors("A", nil), EndlessCursors()
	if loop("", 0, "") != "A" || loop("", 0, "") != nil || loop("", 0, "") != "A" || endless("", 0, "") == endless("", 0, "") {
		t.Error("the cursors are wrong")
	}
	if got := string(IDAsString(json.RawMessage("7"))); got != `"7"` {
		t.Errorf("as string = %s", got)
	}
	if AlwaysID("")(json.RawMessage("7")) != nil || string(AlwaysID("0")(nil)) != "0" {
		t.Error("AlwaysID")
	}
}
