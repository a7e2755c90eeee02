package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// MCP methods.
const (
	methodDiscover      = "server/discover"
	methodInitialize    = "initialize"
	methodInitialized   = "notifications/initialized"
	methodCancelled     = "notifications/cancelled"
	methodPing          = "ping"
	methodListTools     = "tools/list"
	methodCallTool      = "tools/call"
	methodListResources = "resources/list"
	methodListTemplates = "resources/templates/list"
	methodReadResource  = "resources/read"
	methodListPrompts   = "prompts/list"
	methodGetPrompt     = "prompts/get"
	methodComplete      = "completion/complete"
	methodListRoots     = "roots/list"
)

// cancelBudget bounds the delivery of a cancellation, which nobody waits for.
const cancelBudget = 5 * time.Second

// farewellGrace is what a cancellation that is on its way gets of that when the
// client is closed.
const farewellGrace = time.Second

// request is one request of a caller, which may take several messages.
type request struct {
	method, name string
	params       []byte         // members without braces and without _meta
	arguments    jsontext.Value // one more, of tools/call; nil = none
	continuation []byte         // further members, each with a comma before it; for modern servers alone
	options      *CallOptions
	dialog       *dialog             // set by begin; nil = the caller answers no questions
	assigned     func(id jsonrpc.ID) // see Call
	trail        *Trail              // of the operation; may be nil
}

// do carries out one request of a caller, under the listeners and the overall
// time: answers to the server's questions and the end of a task included.
func (c *Client) do(ctx context.Context, r *request) (*Result, error) {
	if r.options == nil {
		r.options = &CallOptions{}
	}
	if answers := r.options.InputResponses; len(answers) > 0 && !r.options.Checked {
		if err := checkObject("input responses", answers); err != nil {
			return nil, about(err, r.method, r.name)
		}
	}
	r.trail = c.newTrail()
	ctx, end := c.begin(ctx, r)
	defer end()
	op := Operation{Method: r.method, Name: r.name}
	result, err := watched(ctx, c, op, itself, func() (*Result, error) {
		result, err := c.request(ctx, r)
		if err == nil && result.Type == ResultInputRequired {
			result, err = c.answerRounds(ctx, r, result)
		}
		if err == nil && result.created != nil {
			result, err = c.awaitLegacyTask(ctx, r, result)
		}
		if err == nil && result.Type == ResultTask && !r.options.ReturnTask {
			result, err = c.awaitTask(ctx, r, result)
		}
		return result, err
	})
	if err != nil && c.standsIn(r, err) {
		return c.timedOut(), nil
	}
	return result, err
}

// request sends one request on the live connection, and a second time where
// that surely does no harm.
func (c *Client) request(ctx context.Context, r *request) (*Result, error) {
	for attempt := 1; ; attempt++ {
		s, err := c.acquire(ctx)
		if err != nil {
			return nil, about(err, r.method, r.name)
		}
		call := &Call{Method: r.method, Name: r.name, Attempt: attempt, Trail: r.trail, params: r.params, arguments: r.arguments, options: r.options, assigned: r.assigned, dialog: r.dialog}
		if s.era == EraModern && len(r.continuation) > 0 {
			call.params = slices.Concat(r.params, r.continuation)
		}
		result, again, err := c.try(ctx, s, call)
		c.release(s)
		if !again {
			return result, err
		}
	}
}

// try sends a request once; again is true when it may be sent a second time.
func (c *Client) try(ctx context.Context, s *session, call *Call) (result *Result, again bool, err error) {
	if !s.server.supports(call.Method) {
		return nil, false, &Error{Kind: KindUnsupported, Method: call.Method, Name: call.Name, SafeToRetry: true,
			Message: fmt.Sprintf("the server does not declare the capability that %s needs", call.Method)}
	}
	if call.Method == methodCallTool && s.mirrorsParams() {
		if call.header, err = c.paramHeaders(ctx, call.Name, call.arguments); err != nil {
			return nil, false, about(err, call.Method, call.Name)
		}
	}
	if err := call.dialog.join(c, s); err != nil {
		return nil, false, about(err, call.Method, call.Name)
	}
	if call.Method == methodCallTool && c.toolTasks(s) && c.needsTask(ctx, call.Name) {
		result, err = c.createTask(ctx, s, call)
	} else {
		result, err = c.roundTrip(ctx, s, call)
	}
	again = err != nil && call.Attempt == 1 && ctx.Err() == nil && c.recover(ctx, s, call, err)
	return result, again, err
}

// roundTrip sends one request on a connection, with its own timeout.
func (c *Client) roundTrip(ctx context.Context, s *session, call *Call) (*Result, error) {
	id, err := c.nextID()
	if err != nil {
		return nil, &Error{Kind: KindInvalid, Method: call.Method, Name: call.Name, Message: "Options.NewID returned an unusable request id", Err: err}
	}
	call.ID = id
	c.address(call, s)
	call.Attempt = max(call.Attempt, 1)
	if call.assigned != nil {
		call.assigned(id)
	}
	var extend func()
	outer := ctx
	if d, setting := c.timeout(call); d > 0 {
		var cancel func()
		ctx, extend, cancel = limit(ctx, d, setting, c.opts.Timeouts.ProgressExtends, call.dialog)
		defer cancel()
	}
	switch call.Method {
	case methodPing, methodDiscover, methodListen:
	default:
		s.calls.add(id, call.dialog)
		defer s.calls.remove(id)
	}
	end, err := c.openStream(outer, call, extend)
	if err != nil {
		return nil, about(err, call.Method, call.Name)
	}
	defer call.dialog.underWay(call)()
	result, err := c.invoke(ctx, call)
	end() // what came before the answer is told before it
	return result, err
}

// address tells a call which connection it goes out on.
func (c *Client) address(call *Call, s *session) {
	call.client, call.session, call.Era, call.ProtocolVersion = c, s, s.era, s.version
	call.Transport, call.Endpoint = c.transport.Name(), c.endpoint
}

// notify sends one notification on a connection.
func (c *Client) notify(ctx context.Context, s *session, method string, params []byte) error {
	call := &Call{Method: method, Attempt: 1, params: params}
	c.address(call, s)
	_, err := c.invoke(ctx, call)
	return err
}

// send is the end of the interceptor chain: it builds `_meta` and headers,
// writes the message and reads the answer.
func (c *Client) send(ctx context.Context, call *Call) (*Result, error) {
	s := call.session
	meta, header, err := c.decorate(ctx, call)
	if err != nil {
		return nil, err
	}
	request := &transport.Request{ID: call.ID, Method: call.Method, Name: call.Name, Modern: s.era == EraModern, Version: s.version, Header: header, Answered: call.answered, Rare: call.rare}
	if call.Method == methodInitialize {
		request.Version = "" // the version is not agreed on yet
	}
	request.Body = body(call, meta)
	if call.IsNotification() {
		if err := s.conn.Notify(ctx, request); err != nil {
			return nil, c.classify(ctx, call, err)
		}
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, about(contextError(ctx, "the request had not been sent before"), call.Method, call.Name)
	}
	reply, err := s.conn.Call(ctx, request)
	if err != nil {
		err = c.classify(ctx, call, err)
		c.cancelUpstream(ctx, call, err)
		return nil, err
	}
	if l := s.link; l != nil {
		l.heard.Store(time.Now().UnixNano())
	}
	if reply.Error != nil {
		return nil, &Error{Kind: KindRPC, Method: call.Method, Name: call.Name, RPC: reply.Error, Sent: true}
	}
	return c.readResult(call, reply.Result, reply.Known)
}

// body is the message of a call.
func body(call *Call, meta *Meta) []byte {
	end := []byte{'}'}
	if len(meta.members) > 0 {
		end = make([]byte, 0, 512)
		if len(call.params) > 0 {
			end = append(end, ',')
		}
		end = append(end, `"_meta":{`...)
		end = append(meta.appendMembers(end), "}}"...)
	}
	start, between := []byte{'{'}, []byte(nil)
	if len(call.arguments) > 0 {
		between = []byte(`,"arguments":`)
	}
	dst := make([]byte, 0, 96+len(call.Method)+len(call.params)+len(call.arguments)+len(end))
	if call.IsNotification() {
		return jsonrpc.AppendNotification(dst, call.Method, start, call.params, end)
	}
	return jsonrpc.AppendRequest(dst, call.ID, call.Method, start, call.params, between, call.arguments, end)
}

// decorate builds `_meta` and the headers. In `_meta` the caller's members come
// first, then the supplier's, then the protocol's: later wins.
func (c *Client) decorate(ctx context.Context, call *Call) (meta *Meta, header http.Header, err error) {
	meta = &Meta{members: make([]metaMember, 0, usualMembers)}
	if o := call.options; o != nil && len(o.Meta) > 0 {
		if err := meta.setObject(o.Meta); err != nil {
			return nil, nil, &Error{Kind: KindInvalid, Method: call.Method, Name: call.Name, Message: "the caller's meta is not a JSON object", SafeToRetry: true, Err: err}
		}
	}
	if c.opts.Meta != nil {
		if err := c.opts.Meta(ctx, call, meta); err != nil {
			if !call.IsNotification() {
				return nil, nil, &Error{Kind: KindInternal, Method: call.Method, Name: call.Name, Message: "the meta supplier failed", SafeToRetry: true, Err: err}
			}
			c.log.WarnContext(ctx, "the meta supplier failed; the notification goes out without its members", "method", call.Method, "error", err)
			*meta = Meta{}
		}
	}
	if call.Method == methodInitialize && len(c.opts.InitializeMeta) > 0 {
		if err := meta.setObject(c.opts.InitializeMeta); err != nil {
			return nil, nil, &Error{Kind: KindInvalid, Method: call.Method, Message: "Options.InitializeMeta is not a JSON object", SafeToRetry: true, Err: err}
		}
	}
	// a request of ours never asks for progress under a token of the caller's making
	meta.Delete(MetaProgressToken)
	if !call.token.IsZero() {
		meta.Set(MetaProgressToken, call.token.AppendJSON(nil))
	}
	if level := c.logLevel(call); level != "" {
		meta.SetString(MetaLogLevel, string(level))
	}
	call.session.lifecycle.add(meta, call.options, c.offersTasks(call))

	header = call.header
	if c.opts.Headers != nil && (call.session.conn.PerRequestStreams() || c.transport.Name() == transport.NameSSE) {
		if header == nil {
			header = make(http.Header, 4)
		}
		c.opts.Headers(ctx, call, header)
		for name, values := range header {
			for _, value := range values {
				if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
					return nil, nil, &Error{Kind: KindInvalid, Method: call.Method, Name: call.Name, SafeToRetry: true,
						Message: fmt.Sprintf("the header supplier set a header that HTTP cannot carry: %.60q", name)}
				}
			}
		}
	}
	return meta, header, nil
}

// cancelUpstream tells the server to stop a request that nobody waits for any
// more. On a modern HTTP connection the closed stream says it; elsewhere one
// notification goes out, behind the caller's back (2026-07-28
// patterns/cancellation; 2025-11-25 utilities/cancellation).
func (c *Client) cancelUpstream(ctx context.Context, call *Call, err error) {
	e, ok := errors.AsType[*Error](err)
	ended := ok && e.Kind == KindInvalid // by its own dialog: an answer was not usable
	if !ok || (e.Kind != KindTimeout && e.Kind != KindCanceled && !ended) || !e.Sent {
		return
	}
	s := call.session
	if call.Method == methodInitialize || call.Method == methodDiscover || strings.HasPrefix(call.Method, "tasks/") || call.asTask || (s.era == EraModern && s.conn.PerRequestStreams()) {
		return
	}
	reason := "the caller went away"
	switch {
	case e.Kind == KindTimeout:
		reason = "timeout"
	case ended:
		reason = "the call failed"
	}
	params := call.ID.AppendJSON([]byte(`"requestId":`))
	params = appendString(append(params, `,"reason":`...), reason)
	c.farewell(ctx, func(ctx context.Context) {
		if err := c.notify(ctx, s, methodCancelled, params); err != nil {
			c.log.DebugContext(ctx, "a cancellation was not delivered", "error", err)
		}
	})
}

// nextID returns a request id.
func (c *Client) nextID() (jsonrpc.ID, error) {
	if c.opts.NewID == nil {
		return jsonrpc.IntID(c.lastID.Add(1)), nil
	}
	return idOf(c.opts.NewID())
}

// idOf checks an id or token that came from outside.
func idOf(value any) (jsonrpc.ID, error) {
	const safe = 1<<53 - 1 // servers in JavaScript drop larger ones
	switch id := value.(type) {
	case string:
		if id == "" {
			return jsonrpc.ID{}, errors.New("the id is an empty string")
		}
		return jsonrpc.StringID(id), nil
	case int:
		return idOf(int64(id))
	case int64:
		if id < -safe || id > safe {
			return jsonrpc.ID{}, fmt.Errorf("the id %d is beyond ±(2^53-1)", id)
		}
		return jsonrpc.IntID(id), nil
	default:
		return jsonrpc.ID{}, fmt.Errorf("the id is a %T, not a string or an integer", id)
	}
}
