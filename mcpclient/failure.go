package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// ownTimeout is the context cause of a timeout set here, as opposed to the
// caller's deadline.
type ownTimeout struct {
	limit   time.Duration
	setting string // the name of the setting, as in the configuration file
}

func (t *ownTimeout) Error() string {
	return fmt.Sprintf("no answer within %v (setting %s)", t.limit, t.setting)
}

// timeout is the configured time for a call, and the setting's name; 0 = none.
func (c *Client) timeout(call *Call) (time.Duration, string) {
	t := &c.opts.Timeouts
	switch call.Method {
	case methodCallTool:
		if limit, ok := t.Tools[call.Name]; ok {
			return max(limit, 0), "timeouts.tools." + call.Name
		}
		return max(t.Tool, 0), "timeouts.tool"
	case methodListTools:
		return max(t.Tool, 0), "timeouts.tool"
	case methodListResources, methodListTemplates, methodReadResource, methodSubscribe, methodUnsubscribe:
		return max(t.Resource, 0), "timeouts.resource"
	case methodListPrompts, methodGetPrompt:
		return max(t.Prompt, 0), "timeouts.prompt"
	case methodComplete:
		return max(t.Completion, 0), "timeouts.completion"
	}
	return 0, "" // negotiation has one budget for all of it
}

// pingTimeout bounds the question whether a connection still works.
const pingTimeout = 10 * time.Second

// contextError is the failure of a call whose context ended; what was waited
// for follows the words "before".
func contextError(ctx context.Context, waited string) *Error {
	cause := context.Cause(ctx)
	if ended, ok := errors.AsType[*endedCall](cause); ok {
		copied := *ended.err
		return &copied
	}
	if own, ok := errors.AsType[*ownTimeout](cause); ok {
		return &Error{Kind: KindTimeout, Message: fmt.Sprintf("%s the configured %v passed (setting %s)", waited, own.limit, own.setting), Err: cause}
	}
	kind, ended := KindCanceled, "the caller went away"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind, ended = KindTimeout, "the caller's deadline passed"
	}
	if given(cause) {
		ended = "the call was ended: " + cause.Error()
	}
	return &Error{Kind: kind, Message: waited + " " + ended, Err: ctx.Err()}
}

// given reports whether who ended a context said why: the cause is neither that
// of a plain cancellation or deadline nor one of this package.
func given(cause error) bool {
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, errTornDown, errReplaced} {
		if errors.Is(cause, known) {
			return false
		}
	}
	return cause != nil
}

// classify turns a transport's failure into an [Error].
func (c *Client) classify(ctx context.Context, call *Call, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		e := contextError(ctx, "there was no answer before")
		e.Method, e.Name, e.Sent = call.Method, call.Name, !errors.Is(err, transport.ErrUnsent)
		e.SafeToRetry = !e.Sent
		return e
	}
	out := &Error{Kind: KindInternal, Method: call.Method, Name: call.Name, Message: "the transport failed", Err: err}
	te, ok := errors.AsType[*transport.Error](err)
	if !ok {
		return out
	}
	out.Message, out.Status, out.RPC, out.Limit, out.RetryAfter = te.Message, te.Status, te.RPC, te.Limit, te.RetryAfter
	out.Sent = te.Kind != transport.NotSent && te.Kind != transport.Invalid
	switch te.Kind {
	case transport.NotSent:
		out.Kind, out.SafeToRetry = KindUnavailable, true
	case transport.Invalid:
		out.Kind, out.SafeToRetry = KindInvalid, true
	case transport.Lost:
		out.Kind = KindLost
	case transport.SessionGone:
		// A 404 for a session id says, by the specification of streamable HTTP, that
		// nothing was done; on a stream of 2024-11-05 nothing says so.
		out.Kind, out.SafeToRetry, out.sessionGone = KindUnavailable, true, true
		if s := call.session; s != nil && !s.conn.PerRequestStreams() {
			out.Kind, out.SafeToRetry = KindLost, false
		}
	case transport.Malformed:
		out.Kind = KindProtocol
	case transport.TooLarge:
		out.Kind = KindTooLarge
	case transport.Closed:
		out.Kind = KindLost
		if c.lifetime.Err() != nil {
			out.Kind = KindClosed
		}
	case transport.Status:
		if out.Kind = statusKind(te); out.Kind == KindRPC {
			out.Message = "" // the server's own words say more than the status
		}
	}
	return out
}

func statusKind(te *transport.Error) Kind {
	switch {
	case te.Status == http.StatusUnauthorized || te.Status == http.StatusForbidden:
		return KindUnauthorized
	case te.Status == http.StatusTooManyRequests:
		return KindRateLimited
	case te.RPC != nil:
		return KindRPC
	}
	return KindHTTP
}

// about adds the method and name to an error made before they were known.
func about(err error, method, name string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Method != "" {
		return err
	}
	named := *e
	named.Method, named.Name = method, name
	return &named
}

// safeMethods may be sent again when it is not known whether the server did
// them.
var safeMethods = map[string]bool{
	methodListTools: true, methodListResources: true, methodListTemplates: true, methodListPrompts: true,
	methodReadResource: true, methodGetPrompt: true, methodComplete: true,
}

// recover prepares a second attempt where one is allowed: the request surely
// did not start, or it is safe to repeat.
func (c *Client) recover(ctx context.Context, s *session, call *Call, err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case KindUnavailable:
		how := lossRefused
		if e.sessionGone {
			how = lossForgotten
		}
		c.lost(s, e, how)
		return e.SafeToRetry
	case KindLost:
		if e.sessionGone {
			c.lost(s, e, lossForgotten)
		}
		select {
		case <-s.conn.Done():
			c.lost(s, e, lossEnded)
		default:
		}
		return safeMethods[call.Method] && !c.opts.Reconnect.NoRetry
	case KindRPC:
		if s.era == EraModern && e.RPC.Code == CodeHeaderMismatch && call.Method == methodCallTool {
			// the tool's schema may have changed (2026-07-28 streamable-http, Client Behavior)
			_, err := c.lists.tools.refresh(ctx, c)
			return err == nil
		}
		if call.Method == methodCallTool && c.toolTasks(s) && c.otherwise(ctx, call, e.RPC.Code) {
			return true
		}
		return c.forgotten(ctx, s, call, e)
	case KindHTTP:
		return c.forgotten(ctx, s, call, e)
	default:
	}
	return false
}

// forgotten handles servers that answer 400 instead of 404 once they have
// forgotten a session. A server that refuses a ping in the same way no longer
// knows us: the session is replaced, and the call repeated if that is safe.
func (c *Client) forgotten(ctx context.Context, s *session, call *Call, e *Error) bool {
	if e.Status != http.StatusBadRequest || s.era != EraLegacy || c.alive(ctx, s) {
		return false
	}
	c.lost(s, e, lossForgotten)
	return safeMethods[call.Method]
}

// alive asks a legacy server whether it still knows the session; anything but
// another 400 counts as a yes.
func (c *Client) alive(ctx context.Context, s *session) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := c.roundTrip(ctx, s, &Call{Method: methodPing})
	e, ok := errors.AsType[*Error](err)
	return !ok || e.Status != http.StatusBadRequest
}
