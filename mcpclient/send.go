package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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

// do carries out one request of a caller: it takes the live connection, sends,
// and tries a second time where that surely does no harm.
func (c *Client) do(ctx context.Context, method, name string, params []byte, options *CallOptions) (*Result, error) {
	if options == nil {
		options = &CallOptions{}
	}
	for attempt := 1; ; attempt++ {
		s, err := c.acquire(ctx)
		if err != nil {
			return nil, about(err, method, name)
		}
		call := &Call{Method: method, Name: name, Attempt: attempt, params: params, options: options}
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
		if call.header, err = c.paramHeaders(ctx, call.Name, call.params); err != nil {
			return nil, false, about(err, call.Method, call.Name)
		}
	}
	result, err = c.roundTrip(ctx, s, call)
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
	if limit, setting := c.timeout(call); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &ownTimeout{limit: limit, setting: setting})
		defer cancel()
	}
	return c.invoke(ctx, call)
}

// address tells a call which connection it goes out on.
func (c *Client) address(call *Call, s *session) {
	call.session, call.Era, call.ProtocolVersion = s, s.era, s.version
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
	params, header, err := c.decorate(ctx, call)
	if err != nil {
		return nil, err
	}
	request := &transport.Request{ID: call.ID, Method: call.Method, Name: call.Name, Modern: s.era == EraModern, Version: s.version, Header: header}
	if call.Method == methodInitialize {
		request.Version = "" // the version is not agreed on yet
	}
	if call.IsNotification() {
		request.Body = jsonrpc.AppendNotification(make([]byte, 0, len(params)+128), call.Method, params)
		if err := s.conn.Notify(ctx, request); err != nil {
			return nil, c.classify(ctx, call, err)
		}
		return nil, nil
	}
	request.Body = jsonrpc.AppendRequest(make([]byte, 0, len(params)+128), call.ID, call.Method, params)
	if ctx.Err() != nil {
		return nil, about(contextError(ctx, "the request had not been sent before"), call.Method, call.Name)
	}
	reply, err := s.conn.Call(ctx, request)
	if err != nil {
		err = c.classify(ctx, call, err)
		c.cancelUpstream(ctx, call, err)
		return nil, err
	}
	if reply.Error != nil {
		return nil, &Error{Kind: KindRPC, Method: call.Method, Name: call.Name, RPC: reply.Error, Sent: true}
	}
	return c.readResult(call, reply.Result)
}

// decorate builds the params object with `_meta`, and the headers. In `_meta`
// the caller's members come first, then the supplier's, then the protocol's:
// later wins.
func (c *Client) decorate(ctx context.Context, call *Call) (params []byte, header http.Header, err error) {
	var meta Meta
	if o := call.options; o != nil && len(o.Meta) > 0 {
		if err := meta.setObject(o.Meta); err != nil {
			return nil, nil, &Error{Kind: KindInvalid, Method: call.Method, Name: call.Name, Message: "the caller's meta is not a JSON object", SafeToRetry: true, Err: err}
		}
	}
	if c.opts.Meta != nil {
		if err := c.opts.Meta(ctx, call, &meta); err != nil {
			if !call.IsNotification() {
				return nil, nil, &Error{Kind: KindInternal, Method: call.Method, Name: call.Name, Message: "the meta supplier failed", SafeToRetry: true, Err: err}
			}
			c.log.WarnContext(ctx, "the meta supplier failed; the notification goes out without its members", "method", call.Method, "error", err)
			meta = Meta{}
		}
	}
	// a request of ours never asks for progress under a token of the caller's making
	meta.Delete(MetaProgressToken)
	call.session.lifecycle.add(&meta, call.options)

	params = make([]byte, 0, len(call.params)+512)
	params = append(params, '{')
	params = append(params, call.params...)
	if len(meta.members) > 0 {
		if len(call.params) > 0 {
			params = append(params, ',')
		}
		params = append(params, `"_meta":{`...)
		params = meta.appendMembers(params)
		params = append(params, '}')
	}
	params = append(params, '}')

	header = call.header
	if c.opts.Headers != nil && call.session.conn.PerRequestStreams() {
		if header == nil {
			header = make(http.Header, 4)
		}
		c.opts.Headers(ctx, call, header)
	}
	return params, header, nil
}

// readResult checks the outer form of a result (2026-07-28 basic/index,
// ResultType). It reads the two members that decide and leaves the rest.
func (c *Client) readResult(call *Call, raw jsontext.Value) (*Result, error) {
	result := &Result{Raw: raw, Type: ResultComplete, Era: call.Era, ProtocolVersion: call.ProtocolVersion}
	malformed := func(text string, cause error) error {
		return &Error{Kind: KindProtocol, Method: call.Method, Name: call.Name, Message: text, Sent: true, Err: cause}
	}
	err := eachMember(raw, func(key string, value jsontext.Value) error {
		switch key {
		case "resultType":
			if call.Era != EraModern || value.Kind() == 'n' {
				return nil
			}
			text, ok := unquote(value)
			if !ok {
				return errors.New("resultType is not a string")
			}
			result.Type = text
		case "isError":
			result.IsError = call.Method == methodCallTool && value.Kind() == 't'
		}
		return nil
	})
	if err != nil {
		return nil, malformed("the server's result is malformed", err)
	}
	switch result.Type {
	case ResultComplete:
		return result, nil
	case ResultInputRequired:
		if call.Method == methodCallTool || call.Method == methodReadResource || call.Method == methodGetPrompt {
			return result, nil
		}
		return nil, malformed("the server asked for input on "+call.Method+", which the protocol does not allow", nil)
	case ResultTask:
		if call.options != nil && declaresTasks(call.options.Capabilities) {
			return result, nil
		}
		return nil, malformed("the server answered with a task although the tasks extension was not declared", nil)
	}
	return nil, malformed(fmt.Sprintf("the server's result has the unknown resultType %.40q", result.Type), nil)
}

// TasksExtension is the identifier of the tasks extension in capabilities.
const TasksExtension = "io.modelcontextprotocol/tasks"

// declaresTasks reports whether a ClientCapabilities object lists the tasks
// extension.
func declaresTasks(capabilities jsontext.Value) bool {
	declared := false
	if capabilities.Kind() != '{' {
		return false
	}
	_ = eachMember(capabilities, func(key string, value jsontext.Value) error {
		if key != "extensions" || value.Kind() != '{' {
			return nil
		}
		return eachMember(value, func(name string, _ jsontext.Value) error {
			declared = declared || name == TasksExtension
			return nil
		})
	})
	return declared
}

// cancelUpstream tells the server to stop a request that nobody waits for any
// more. On a modern HTTP connection the closed stream says it; elsewhere one
// notification goes out, behind the caller's back (2026-07-28
// patterns/cancellation; 2025-11-25 utilities/cancellation).
func (c *Client) cancelUpstream(ctx context.Context, call *Call, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || (e.Kind != KindTimeout && e.Kind != KindCanceled) || !e.Sent {
		return
	}
	s := call.session
	if call.Method == methodInitialize || call.Method == methodDiscover || (s.era == EraModern && s.conn.PerRequestStreams()) {
		return
	}
	reason := "the caller went away"
	if e.Kind == KindTimeout {
		reason = "timeout"
	}
	params := call.ID.AppendJSON([]byte(`"requestId":`))
	params = appendString(append(params, `,"reason":`...), reason)
	values := context.WithoutCancel(ctx)
	c.background(func() {
		ctx, cancel := context.WithTimeout(values, cancelBudget)
		defer cancel()
		defer context.AfterFunc(c.lifetime, cancel)()
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
	const safe = 1<<53 - 1 // servers in JavaScript drop larger ones
	switch id := c.opts.NewID().(type) {
	case string:
		if id == "" {
			return jsonrpc.ID{}, errors.New("the id is an empty string")
		}
		return jsonrpc.StringID(id), nil
	case int:
		if id < -safe || id > safe {
			return jsonrpc.ID{}, fmt.Errorf("the id %d is beyond ±(2^53-1)", id)
		}
		return jsonrpc.IntID(int64(id)), nil
	case int64:
		if id < -safe || id > safe {
			return jsonrpc.ID{}, fmt.Errorf("the id %d is beyond ±(2^53-1)", id)
		}
		return jsonrpc.IntID(id), nil
	default:
		return jsonrpc.ID{}, fmt.Errorf("the id is a %T, not a string or an integer", id)
	}
}
