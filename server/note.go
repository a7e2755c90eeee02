package server

import (
	"context"
	"log/slog"
	"strings"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// Outcomes of calls that did not fail, as the access log names them.
const (
	outcomeResult        = "result"
	outcomeToolError     = "tool_error"
	outcomeInputRequired = "input_required"
	outcomeTask          = "task"
)

// maxNameBytes bounds the name of a tool, prompt, resource or task in a line of
// the log.
const maxNameBytes = 256

// note is what the handler of a call leaves for the access log. Work beside the
// handler writes it, too, and is over when the handler is.
type note struct {
	key, name string // what the call was about; "" = nothing with a name
	outcome   string // "" = the method has only one
}

type noteKey struct{}

// noteOf returns the note of a call, nil outside of one.
func noteOf(ctx context.Context) *note {
	n, _ := ctx.Value(noteKey{}).(*note)
	return n
}

// noteName notes what the call is about.
func (s scope) noteName(ctx context.Context) {
	n := noteOf(ctx)
	if n == nil || s.name == "" {
		return
	}
	switch {
	case s.method == methodCallTool:
		n.key = "tool"
	case s.method == methodGetPrompt:
		n.key = "prompt"
	case s.method == methodReadResource, s.method == mcpclient.MethodResourceUpdated:
		n.key = "uri"
	case strings.HasPrefix(s.method, "tasks/"):
		n.key = "task"
	default:
		return
	}
	n.name = s.name
}

// noteOutcome notes how a request ended that may end in several ways.
func (s scope) noteOutcome(ctx context.Context, r *mcpclient.Result) {
	if s.method != methodCallTool && s.method != methodGetPrompt && s.method != methodReadResource {
		return
	}
	n := noteOf(ctx)
	switch {
	case n == nil:
	case r.Type == mcpclient.ResultInputRequired:
		n.outcome = outcomeInputRequired
	case r.Type == mcpclient.ResultTask:
		n.outcome = outcomeTask
	case r.IsError:
		n.outcome = outcomeToolError
	default:
		n.outcome = outcomeResult
	}
}

// attrs adds the note to a line.
func (n *note) attrs(attrs []slog.Attr) []slog.Attr {
	if n.name != "" {
		attrs = append(attrs, slog.String(n.key, cut(n.name, maxNameBytes)))
	}
	if n.outcome != "" {
		attrs = append(attrs, slog.String("outcome", n.outcome))
	}
	return attrs
}
