package mcptest

import (
	"context"
	"encoding/json"
	"os"
	"time"
)

// Text is a tool result with one text block.
func Text(text string) Raw {
	return Raw(`{"content":[{"type":"text","text":` + quote(text) + `}]}`)
}

// Respond answers always with the same result.
func Respond(result any) Handler {
	return func(context.Context, *Request) (any, error) { return result, nil }
}

// Fail answers with a JSON-RPC error; status 0 = what the specification says.
func Fail(code int, message string, data any, status int) Handler {
	return func(context.Context, *Request) (any, error) {
		return nil, &Error{Code: code, Message: message, Data: data, Status: status}
	}
}

// Silence never answers.
func Silence() Handler {
	return func(ctx context.Context, _ *Request) (any, error) {
		<-ctx.Done()
		return nil, ErrSilent
	}
}

// Hangup breaks the connection instead of an answer.
func Hangup() Handler {
	return func(context.Context, *Request) (any, error) { return nil, ErrHangup }
}

// Exit ends the process with code; only for child processes.
func Exit(code int) Handler {
	return func(context.Context, *Request) (any, error) {
		os.Exit(code)
		return nil, nil
	}
}

// HTML answers with a web page, as a login wall does.
func HTML(status int) Handler {
	return Respond(&Reply{Status: status, ContentType: "text/html; charset=utf-8", Body: "<!doctype html><title>Sign in</title>"})
}

// Delay runs h after d, or the built-in handler when h is nil. It stops
// waiting when the client cancels.
func Delay(d time.Duration, h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ErrSilent
		}
		return run(ctx, h, r)
	}
}

// After runs h, or the built-in handler when h is nil, once gate is closed.
func After(gate <-chan struct{}, h Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ErrSilent
		}
		return run(ctx, h, r)
	}
}

// Sequence uses the nth handler for the nth request of the method and the last
// one for all that follow; nil stands for the built-in handler.
func Sequence(handlers ...Handler) Handler {
	return func(ctx context.Context, r *Request) (any, error) {
		return run(ctx, handlers[min(r.N, len(handlers))-1], r)
	}
}

func run(ctx context.Context, h Handler, r *Request) (any, error) {
	if h == nil {
		h = r.builtin
	}
	return h(ctx, r)
}

// Echo answers a tool call with its arguments as structuredContent, byte for
// byte.
func Echo() Handler {
	return func(_ context.Context, r *Request) (any, error) {
		args := r.Param("arguments")
		if args == nil {
			args = json.RawMessage("{}")
		}
		return Raw(`{"content":[{"type":"text","text":` + quote(string(args)) + `}],"structuredContent":` + string(args) + `}`), nil
	}
}
