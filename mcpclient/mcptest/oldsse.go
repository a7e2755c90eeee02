package mcptest

import (
	"errors"
	"io"
	"net/http"
	"slices"
)

// OldSSEOptions turn the endpoint into one of 2024-11-05 (HTTP with SSE): GET
// opens a stream whose first event names where to POST, and answers come on
// that stream. The server's Era must be Legacy. Each stream is a session.
type OldSSEOptions struct {
	On bool
	// Endpoint returns the data of the endpoint event for a session; nil =
	// "/messages?session=NAME". "" = the event never comes. Messages are
	// recognized by their session parameter, at any path.
	Endpoint func(session string) string
	// PostStatus answers a POST to the stream's own URL; 0 = 405.
	PostStatus int
	// UnknownStatus answers a POST to a session that has ended; 0 = 404.
	UnknownStatus int
}

// oldSSE serves an exchange by the rules of 2024-11-05, if so scripted.
func (x *exchange) oldSSE() bool {
	o := x.s.OldSSE
	switch {
	case !o.On:
		return false
	case x.req.Method == http.MethodGet:
		x.oldStream()
	case x.req.Method == http.MethodPost:
		x.oldPost()
	default:
		x.s.violate("HTTP %s on an endpoint of 2024-11-05", x.req.Method)
		x.w.WriteHeader(http.StatusMethodNotAllowed)
	}
	return true
}

// oldStream is one session: everything that the server says.
func (x *exchange) oldStream() {
	s := x.s
	if n := x.log(Entry{Method: MethodGet}); x.scripted(MethodGet, n) {
		return
	}
	if !s.Lax.Accept && !slices.Contains(accepted(x.req.Header), "text/event-stream") {
		s.violate("GET: Accept is %q; it must list text/event-stream", x.req.Header.Get("Accept"))
		x.w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	c := newConn(s, false, Legacy)
	s.mu.Lock()
	s.nextSess++
	c.id = "sse-" + itoa(s.nextSess)
	s.mu.Unlock()
	s.register(c)
	defer s.drop(c)
	ctx, stop := x.context(c.ctx)
	defer stop()
	out := c.stream()
	w := x.openSSE(out)
	endpoint := "/messages?session=" + c.id
	if s.OldSSE.Endpoint != nil {
		endpoint = s.OldSSE.Endpoint(c.id)
	}
	if endpoint != "" {
		w.write("event: endpoint" + w.eol + "data: " + endpoint + w.eol + w.eol)
	}
	if w.opt.EventName == "" {
		w.opt.EventName = "message"
	}
	for i := 0; ; i++ {
		ev, err := out.next(ctx, i)
		if errors.Is(err, errBroken) {
			panic(http.ErrAbortHandler) // net/http's way to break a connection
		}
		if err != nil {
			return
		}
		data := ev.data
		if ev.reply != nil {
			data = []byte(ev.reply.Body)
		}
		w.event(data, "", 0, false)
	}
}

// oldPost takes one message of a session.
func (x *exchange) oldPost() {
	s := x.s
	raw, err := io.ReadAll(x.req.Body)
	if err != nil {
		return // the client left
	}
	m, err := parse(raw)
	if err != nil {
		x.log(Entry{Method: MethodInvalid, Raw: marshal(string(raw))})
		s.violate("POST body: %v: %.200q", err, raw)
		x.w.WriteHeader(http.StatusBadRequest)
		return
	}
	name := m.method
	if name == "" {
		name = MethodResponse
	}
	id := x.req.URL.Query().Get("session")
	n := s.add(Entry{Method: name, ID: string(m.id), Raw: m.raw, Header: x.req.Header.Clone(), Session: id})
	if x.scripted(name, n) {
		return
	}
	var c *conn
	s.mu.Lock()
	for _, o := range s.conns {
		if o.id == id {
			c = o
		}
	}
	s.mu.Unlock()
	switch {
	case id == "":
		x.w.WriteHeader(statusOr(s.OldSSE.PostStatus, http.StatusMethodNotAllowed))
		return
	case c == nil:
		x.w.WriteHeader(statusOr(s.OldSSE.UnknownStatus, http.StatusNotFound))
		return
	case !s.Lax.ContentType && x.req.Header.Get("Content-Type") != "application/json":
		s.violate("%s: Content-Type is %q, not application/json", name, x.req.Header.Get("Content-Type"))
	}
	switch {
	case m.isRequest():
		c.request(m, x.req.Header, c.stream(), n)
	case m.isNotification():
		c.notify(m, x.req.Header, n)
	default:
		c.take(m, Legacy)
	}
	x.accept()
}

func statusOr(status, unset int) int {
	if status == 0 {
		return unset
	}
	return status
}
