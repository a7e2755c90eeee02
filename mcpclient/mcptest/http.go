package mcptest

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ServeHTTP is the MCP endpoint, at any path.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.init()
	x := &exchange{s: s, w: w, req: req}
	if x.authorize() || x.redirect() || x.oldSSE() {
		return
	}
	switch req.Method {
	case http.MethodPost:
		x.post()
	case http.MethodGet:
		x.get()
	case http.MethodDelete:
		x.delete()
	default:
		s.violate("HTTP %s on the MCP endpoint", req.Method)
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// exchange is one HTTP request and its answer.
type exchange struct {
	s   *Server
	w   http.ResponseWriter
	req *http.Request
}

func (x *exchange) log(e Entry) (n int) {
	e.Header = x.req.Header.Clone()
	e.Session = x.req.Header.Get("Mcp-Session-Id")
	return x.s.add(e)
}

// scripted lets Server.Status answer; true means that it did.
func (x *exchange) scripted(method string, n int) bool {
	if x.s.Status == nil {
		return false
	}
	reply := x.s.Status(method, n)
	if reply != nil {
		x.reply(reply)
	}
	return reply != nil
}

func (x *exchange) reply(r *Reply) {
	for key, values := range r.Header {
		x.w.Header()[http.CanonicalHeaderKey(key)] = values
	}
	switch {
	case r.ContentType != "":
		x.w.Header().Set("Content-Type", r.ContentType)
	case x.w.Header().Get("Content-Type") == "":
		x.w.Header()["Content-Type"] = nil // no sniffing: the script wants none
	}
	x.w.WriteHeader(max(r.Status, http.StatusOK))
	_, _ = io.WriteString(x.w, r.Body) // a client that left is no concern of the script
	if r.Stall {
		_ = http.NewResponseController(x.w).Flush()
		ctx, stop := x.context(x.s.ctx)
		defer stop()
		<-ctx.Done()
	}
}

// context ends with the exchange or with the other context.
func (x *exchange) context(other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(x.req.Context())
	stop := context.AfterFunc(other, func() { cancel(errBroken) })
	return ctx, func() { stop(); cancel(nil) }
}

func (x *exchange) refuse(status, code int, message string) {
	x.reply(&Reply{Status: status, ContentType: "application/json", Body: `{"jsonrpc":"2.0","error":{"code":` + strconv.Itoa(code) + `,"message":` + quote(message) + `}}`})
}

func (x *exchange) post() {
	s, header := x.s, x.req.Header
	raw, err := io.ReadAll(x.req.Body)
	if err != nil {
		return // the client left
	}
	m, err := parse(raw)
	if err != nil {
		n := x.log(Entry{Method: MethodInvalid, Raw: marshal(string(raw))})
		s.violate("POST body: %v: %.200q", err, raw)
		if !x.scripted(MethodInvalid, n) {
			x.refuse(http.StatusBadRequest, -32700, err.Error())
		}
		return
	}
	name := m.method
	if name == "" {
		name = MethodResponse
	}
	n := x.log(Entry{Method: name, ID: string(m.id), Raw: m.raw})
	if x.scripted(name, n) {
		return
	}
	if types := accepted(header); !s.Lax.Accept && (!slices.Contains(types, "application/json") || !slices.Contains(types, "text/event-stream")) {
		s.violate("%s: Accept is %q; it must list application/json and text/event-stream", name, header.Get("Accept"))
		x.refuse(http.StatusNotAcceptable, -32600, "Not Acceptable")
		return
	}
	if got := header.Get("Content-Type"); got != "application/json" && !s.Lax.ContentType {
		s.violate("%s: Content-Type is %q, not application/json", name, got)
		x.refuse(http.StatusUnsupportedMediaType, -32600, "Unsupported Media Type")
		return
	}
	c := x.conn(m)
	if c == nil {
		return
	}
	switch {
	case m.isRequest():
		out := newEvents()
		if s.SSE.IDs && c.isLegacy() {
			s.resumable(out)
		}
		x.pump(c, out, 0, c.request(m, header, out, n))
	case m.isNotification():
		c.notify(m, header, n)
		x.accept()
	default:
		c.take(m, c.era)
		x.accept()
	}
}

// accept acknowledges a notification or response.
func (x *exchange) accept() {
	if x.s.Accepted != nil {
		x.reply(x.s.Accepted)
		return
	}
	x.w.WriteHeader(http.StatusAccepted)
}

// conn finds what a message belongs to; nil when the exchange was refused.
func (x *exchange) conn(m *message) *conn {
	s, header := x.s, x.req.Header
	modern := s.Era == Modern
	if s.Era == Dual && header.Get("Mcp-Session-Id") == "" {
		modern = member(member(m.params, "_meta"), "io.modelcontextprotocol/protocolVersion") != nil ||
			slices.Contains(modernVersions, header.Get("MCP-Protocol-Version"))
	}
	if modern {
		return s.endpoint
	}
	c, reply := s.session(header, m)
	if reply != nil {
		x.reply(reply)
		return nil
	}
	if m.method == "initialize" || m.method == "server/discover" {
		return c
	}
	if c.expired() {
		_, reply := s.session(header, m)
		x.reply(reply)
		return nil
	}
	if !c.checkVersionHeader(header, method(m)) {
		x.refuse(http.StatusBadRequest, -32600, "Bad Request: MCP-Protocol-Version")
		return nil
	}
	return c
}

// stream checks what GET and DELETE have in common.
func (x *exchange) stream(name string) *conn {
	n := x.log(Entry{Method: name})
	if x.scripted(name, n) {
		return nil
	}
	if x.s.Era == Modern {
		x.s.violate("HTTP %s on a modern server", name)
		x.w.WriteHeader(http.StatusMethodNotAllowed)
		return nil
	}
	c, reply := x.s.session(x.req.Header, nil)
	if reply != nil {
		x.reply(reply)
		return nil
	}
	if !c.checkVersionHeader(x.req.Header, name) {
		x.refuse(http.StatusBadRequest, -32600, "Bad Request: MCP-Protocol-Version")
		return nil
	}
	return c
}

func (x *exchange) get() {
	c := x.stream(MethodGet)
	if c == nil {
		return
	}
	s := x.s
	if !s.Lax.Accept && !slices.Contains(accepted(x.req.Header), "text/event-stream") {
		s.violate("GET: Accept is %q; it must list text/event-stream", x.req.Header.Get("Accept"))
		x.w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if last := x.req.Header.Get("Last-Event-ID"); last != "" {
		name, index, _ := strings.Cut(last, "/")
		i, err := strconv.Atoi(index)
		s.mu.Lock()
		out := s.streams[name]
		s.mu.Unlock()
		if err != nil || out == nil {
			s.violate("GET: Last-Event-ID %q was never sent", last)
			x.w.WriteHeader(http.StatusNotFound)
			return
		}
		x.pump(c, out, i+1, nil)
		return
	}
	if s.Session.GetStatus != 0 {
		x.w.WriteHeader(s.Session.GetStatus)
		return
	}
	out := c.stream()
	if s.SSE.IDs {
		s.resumable(out)
	}
	x.pump(c, out, out.first(), nil)
}

func (x *exchange) delete() {
	c := x.stream(MethodDelete)
	if c == nil {
		return
	}
	status := x.s.Session.DeleteStatus
	if status == 0 {
		status = http.StatusOK
	}
	if status < 300 {
		c.stream().finish(errEnded)
		x.s.drop(c)
	}
	x.w.WriteHeader(status)
}

// resumable gives a stream a name under which its events can be asked again.
func (s *Server) resumable(e *events) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.name != "" {
		return
	}
	s.nextOut++
	e.name, e.keep = "stream"+itoa(s.nextOut), true
	s.streams[e.name] = e
}

// pump writes a stream as the answer of the exchange, from event i on. r is
// the request whose own exchange this is; nil for GET.
func (x *exchange) pump(c *conn, out *events, i int, r *Request) {
	ctx, stop := x.context(c.ctx)
	defer stop()
	first := out.reader() == 1
	var sse *sseWriter
	for written := 0; ; i++ {
		if sse == nil && r == nil { // a GET stream is open before it has events
			sse = x.openSSE(out)
		}
		ev, err := out.next(ctx, i)
		if err != nil {
			x.end(c, r, err, sse, out)
			return
		}
		var tail [][]byte
		if ev.answer {
			tail = x.tail(r, sse != nil)
		}
		if sse == nil && ev.answer && (!x.s.SSE.Always && len(tail) == 0 || ev.status >= 400 || ev.reply != nil) {
			x.plain(out, ev)
			return
		}
		if sse == nil {
			if r != nil && r.Method == "initialize" && c.http && c.id != "" {
				out.setHeader("Mcp-Session-Id", c.id) // headers go out before the answer
			}
			sse = x.openSSE(out)
		}
		if ev.answer && x.s.SSE.EndWithoutResponse && first {
			return
		}
		sse.event(ev.data, out.name, i, ev.answer && len(tail) == 0)
		if ev.answer {
			for n, raw := range tail {
				sse.event(raw, "", 0, n == len(tail)-1)
			}
			return
		}
		if written++; x.s.SSE.DropAfter > 0 && first && written >= x.s.SSE.DropAfter {
			return
		}
	}
}

// tail returns what follows the answer of a request; streaming says that the
// answer has become an event stream already.
func (x *exchange) tail(r *Request, streaming bool) [][]byte {
	var tail [][]byte
	if streaming || x.s.SSE.Always {
		for _, raw := range x.s.SSE.Tail {
			tail = append(tail, []byte(raw))
		}
	}
	if r != nil {
		tail = append(tail, r.trailers()...)
	}
	return tail
}

// end closes an exchange that got no answer.
func (x *exchange) end(c *conn, r *Request, err error, sse *sseWriter, out *events) {
	switch {
	case errors.Is(err, errEnded):
		if sse == nil {
			x.openSSE(out)
		}
	case errors.Is(err, errBroken):
		panic(http.ErrAbortHandler) // net/http's way to break a connection
	case r != nil: // the client left
		if r.Era == Modern {
			r.drop(errors.New("the client closed the response stream"))
			c.mu.Lock()
			if c.calls[string(r.ID)] == r {
				delete(c.calls, string(r.ID))
			}
			c.mu.Unlock()
		}
		x.log(Entry{Method: MethodAborted, ID: string(r.ID), Raw: r.Raw})
	}
}

func (x *exchange) plain(out *events, ev event) {
	x.copyHeader(out)
	if ev.reply != nil {
		x.reply(ev.reply)
		return
	}
	kind := x.s.ContentType
	if kind == "" {
		kind = "application/json"
	}
	x.w.Header().Set("Content-Type", kind)
	x.w.WriteHeader(max(ev.status, http.StatusOK))
	_, _ = x.w.Write(ev.data) // a client that left is no concern of the script
}

func (x *exchange) copyHeader(out *events) {
	out.mu.Lock()
	defer out.mu.Unlock()
	maps.Copy(x.w.Header(), out.header)
}

// accepted returns the media types of Accept without parameters.
func accepted(header http.Header) []string {
	var types []string
	for _, line := range header.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(item, ";")
			types = append(types, strings.ToLower(strings.TrimSpace(kind)))
		}
	}
	return types
}
