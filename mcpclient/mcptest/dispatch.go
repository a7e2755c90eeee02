package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// conn is a legacy session, a stdio connection, or the modern HTTP endpoint.
type conn struct {
	s      *Server
	http   bool
	id     string          // legacy HTTP session id
	ctx    context.Context //nolint:containedctx // the connection's own lifetime
	cancel context.CancelFunc

	mu          sync.Mutex // protects the fields below
	era         Era        // Dual until a stdio client showed its own
	version     string     // negotiated by initialize
	initialized bool       // notifications/initialized arrived
	shared      *events    // what belongs to no request
	calls       map[string]*Request
	used        map[string]string // id → method of all requests so far
	cancelled   map[string]bool
	asks        map[string]chan *message
	resources   map[string]bool // legacy subscriptions by uri
	level       string          // logging/setLevel; "" = all
	requests    int
}

func newConn(s *Server, overHTTP bool, era Era) *conn {
	ctx, cancel := context.WithCancel(s.ctx)
	return &conn{
		s: s, http: overHTTP, era: era, ctx: ctx, cancel: cancel, shared: newEvents(),
		calls: map[string]*Request{}, used: map[string]string{}, cancelled: map[string]bool{},
		asks: map[string]chan *message{}, resources: map[string]bool{},
	}
}

func (s *Server) register(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
}

// drop ends a connection or session and everything in flight on it.
func (s *Server) drop(c *conn) {
	s.mu.Lock()
	s.conns = slices.DeleteFunc(s.conns, func(o *conn) bool { return o == c })
	if c.id != "" {
		s.gone[c.id] = true
	}
	s.mu.Unlock()
	c.stream().finish(errBroken)
	c.cancel()
}

func (c *conn) stream() *events {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shared
}

// restartShared breaks the GET stream and offers a new one.
func (c *conn) restartShared() {
	c.mu.Lock()
	old := c.shared
	c.shared = newEvents()
	c.mu.Unlock()
	old.finish(errBroken)
}

func (c *conn) isLegacy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.era == Legacy
}

func (c *conn) subscribed(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resources[uri]
}

// eraOf tells by which rules a message is served.
func (c *conn) eraOf(m *message) Era {
	switch {
	case c.s.Era != Dual:
		return c.s.Era
	case m.method == "initialize" || c.isLegacy():
		return Legacy
	case m.isNotification() && c.http:
		return c.era
	}
	return Modern
}

// request starts one request; its answer goes to out. The returned Request is
// in flight, or nil when it was refused at once.
func (c *conn) request(m *message, header http.Header, out *events, n int) *Request {
	r := &Request{
		Method: m.method, ID: m.id, Params: m.params, Raw: m.raw, Header: header, N: n,
		Era: c.eraOf(m), server: c.s, conn: c, out: out,
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	r.cancel = cancel
	r.builtin = builtin(r)
	refusal := c.enter(r)
	h := c.s.Handle[r.Method]
	switch {
	case refusal != nil:
		h = func(context.Context, *Request) (any, error) { return nil, refusal }
	case h != nil:
	case r.Method == "server/discover" && c.s.Discover != nil:
		h = c.s.Discover
	case r.Method == "initialize" && c.s.Initialize != nil:
		h = c.s.Initialize
	default:
		h = r.builtin
	}
	if !c.s.goWork(func() {
		defer cancel(nil)
		result, err := h(ctx, r)
		c.answer(r, result, err)
	}) {
		cancel(nil)
		out.finish(errBroken)
	}
	return r
}

// augmented stands for the method of a request that creates a task.
const augmented = "$task"

// enter books the id and applies the rules of the era.
func (c *conn) enter(r *Request) error {
	id := string(r.ID)
	if strings.HasPrefix(r.Method, "notifications/") {
		c.s.violate("%s was sent as a request, with id %s", r.Method, id)
	}
	c.mu.Lock()
	_, busy := c.calls[id]
	_, used := c.used[id]
	c.calls[id] = r
	delete(c.cancelled, id)
	if !c.s.NoLog && !(used && r.Era == Legacy) {
		c.used[id] = r.Method
		if r.Era == Legacy && r.Param("task") != nil {
			c.used[id] = augmented
		}
	}
	c.mu.Unlock()
	switch {
	case busy && !(c.http && r.Era == Modern && c.s.ManyClients):
		c.s.violate("%s reuses the id %s of a request in flight", r.Method, id)
	case used && !busy && r.Era == Legacy:
		c.s.violate("%s reuses the id %s of an earlier request of the session", r.Method, id)
	}
	if r.Era == Modern {
		return c.enterModern(r)
	}
	return c.enterLegacy(r)
}

// answer composes and sends the response of a request.
func (c *conn) answer(r *Request, result any, err error) {
	c.mu.Lock()
	if c.calls[string(r.ID)] == r && !errors.Is(err, ErrSilent) {
		delete(c.calls, string(r.ID))
	}
	c.mu.Unlock()
	r.mu.Lock()
	dropped := r.dropped
	r.mu.Unlock()
	if dropped && !c.s.AnswerCancelled || c.ctx.Err() != nil {
		if c.http {
			r.out.finish(errEnded)
		}
		return
	}
	defer func() {
		if !c.http { // over HTTP the exchange writes them
			for _, raw := range r.trailers() {
				r.out.send(raw)
			}
		}
	}()
	switch {
	case errors.Is(err, ErrSilent):
	case errors.Is(err, ErrHangup):
		r.out.finish(errBroken)
		if !c.http {
			c.s.drop(c)
		}
	case err != nil:
		r.out.push(c.errorEvent(r, err))
	default:
		if reply, ok := result.(*Reply); ok {
			r.out.push(event{reply: reply, answer: true})
			return
		}
		raw := c.complete(r, result)
		if r.Method == "initialize" && r.Era == Legacy {
			c.accept(r, raw)
		}
		r.out.push(event{answer: true, data: c.response(r.ID, "", `"result":`+string(raw))})
	}
}

func (c *conn) errorEvent(r *Request, err error) event {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{Code: -32603, Message: err.Error()}
	}
	body := fmt.Sprintf(`"error":{"code":%d,"message":%s`, e.Code, quote(e.Message))
	if e.Data != nil {
		body += `,"data":` + string(marshal(e.Data))
	}
	status := e.Status
	if status == 0 && r.Era == Modern {
		switch e.Code {
		case -32601:
			status = http.StatusNotFound
		case -32020, -32021, -32022:
			status = http.StatusBadRequest
		}
	}
	return event{answer: true, status: status, data: c.response(r.ID, e.ID, body+"}")}
}

// response wraps a result or error; override replaces the id, "-" drops it.
func (c *conn) response(id json.RawMessage, override, body string) []byte {
	switch {
	case override == "-":
		id = nil
	case override != "":
		id = json.RawMessage(override)
	case c.s.ReplyID != nil:
		id = c.s.ReplyID(id)
	}
	if id == nil {
		return []byte(`{"jsonrpc":"2.0",` + body + "}")
	}
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + "," + body + "}")
}

// complete marshals a result and adds what every modern result has.
func (c *conn) complete(r *Request, result any) json.RawMessage {
	if result == nil {
		result = Raw("{}")
	}
	raw := marshal(result)
	if _, verbatim := result.(Raw); verbatim && r.Era == Modern && member(raw, "resultType") != nil {
		return raw
	}
	if r.Era == Modern {
		raw = with(raw, "_meta", `{"io.modelcontextprotocol/serverInfo":`+c.s.info()+`}`)
		raw = with(raw, "resultType", `"complete"`)
	}
	return raw
}

// notify takes a notification of the client.
func (c *conn) notify(m *message, header http.Header, n int) {
	r := &Request{Method: m.method, Params: m.params, Raw: m.raw, Header: header, N: n, Era: c.eraOf(m), server: c.s, conn: c, out: c.stream()}
	switch m.method {
	case "notifications/cancelled":
		c.takeCancel(r)
	case "notifications/initialized":
		if r.Era == Modern {
			c.s.violate("notifications/initialized does not exist on a modern connection")
			break
		}
		c.mu.Lock()
		if c.version == "" {
			c.s.violate("notifications/initialized before initialize was answered")
		} else if c.initialized {
			c.s.violate("notifications/initialized was sent twice")
		}
		first := !c.initialized
		c.initialized = true
		c.mu.Unlock()
		if first && c.s.PingEvery > 0 {
			c.s.goWork(c.pingOften)
		}
	default:
		if r.Era == Modern && c.http {
			c.s.violate("%s: modern HTTP clients send no notifications", m.method)
		}
	}
	if c.s.OnNotification != nil {
		c.s.OnNotification(r)
	}
}

// maybeCut reports whether a request with this id may have been cut while it was
// written, so that only its cancellation arrived.
func (c *conn) maybeCut(id string) bool {
	n, err := strconv.Atoi(id)
	return c.http && err == nil && n > 0
}

func (c *conn) takeCancel(r *Request) {
	if r.Era == Modern && c.http {
		c.s.violate("notifications/cancelled over modern HTTP; closing the response stream cancels")
		return
	}
	id := string(r.Param("requestId"))
	c.mu.Lock()
	call := c.calls[id]
	method, known := c.used[id]
	again := c.cancelled[id]
	c.cancelled[id] = true
	c.mu.Unlock()
	switch {
	case id == "":
		c.s.violate("notifications/cancelled without requestId")
	case again:
		c.s.violate("request %s was cancelled twice", id)
	case !known && !c.s.NoLog && !c.maybeCut(id):
		c.s.violate("notifications/cancelled names %s, which was never requested on this connection", id)
	case method == "initialize":
		c.s.violate("initialize was cancelled; it must not be")
	case method == augmented:
		c.s.violate("the tool call %s created a task; only tasks/cancel cancels it", id)
	}
	if call != nil {
		call.drop(errors.New("cancelled by the client"))
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
	}
}

// drop marks a request as cancelled by the client and ends its context.
func (r *Request) drop(cause error) {
	r.mu.Lock()
	r.dropped = true
	r.mu.Unlock()
	r.cancel(cause)
}

// take hands the client's response to whoever asked.
func (c *conn) take(m *message, era Era) {
	if era == Modern {
		c.s.violate("a response (id %s) was sent on a modern connection; clients never respond there", m.id)
		return
	}
	c.mu.Lock()
	answer := c.asks[string(m.id)]
	delete(c.asks, string(m.id))
	c.mu.Unlock()
	if answer == nil {
		c.s.violate("a response with id %s, which the server did not ask or had its answer to", m.id)
		return
	}
	answer <- m
}

// ask sends a request to the client and waits for its answer.
func (c *conn) ask(ctx context.Context, out *events, method string, params any) (json.RawMessage, error) {
	c.s.mu.Lock()
	c.s.nextAsk++
	id := fmt.Sprintf(`"ask-%d"`, c.s.nextAsk)
	c.s.mu.Unlock()
	answer := make(chan *message, 1)
	c.mu.Lock()
	c.asks[id] = answer
	c.mu.Unlock()
	body := `{"jsonrpc":"2.0","id":` + id + `,"method":` + quote(method)
	if params != nil {
		body += `,"params":` + string(marshal(params))
	}
	out.send([]byte(body + "}"))
	select {
	case m := <-answer:
		if m.err == nil {
			return m.result, nil
		}
		e := &Error{}
		var wire struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(m.err, &wire); err != nil {
			return nil, fmt.Errorf("error answer to %s: %w", method, err)
		}
		e.Code, e.Message = wire.Code, wire.Message
		if wire.Data != nil {
			e.Data = wire.Data
		}
		return nil, e
	case <-ctx.Done():
		return nil, fmt.Errorf("ask %s: %w", method, context.Cause(ctx))
	case <-c.ctx.Done():
		return nil, fmt.Errorf("ask %s: the connection ended", method)
	}
}
