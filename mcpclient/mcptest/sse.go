package mcptest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// sseWriter writes events in the form that SSEOptions ask for.
type sseWriter struct {
	w       io.Writer
	control *http.ResponseController
	opt     SSEOptions
	eol     string
	n       int
}

func (x *exchange) openSSE(out *events) *sseWriter {
	x.copyHeader(out)
	opt := x.s.SSE
	kind := opt.ContentType
	if kind == "" {
		kind = "text/event-stream"
	}
	x.w.Header().Set("Content-Type", kind)
	x.w.Header().Set("X-Accel-Buffering", "no")
	x.w.WriteHeader(http.StatusOK)
	s := &sseWriter{w: x.w, control: http.NewResponseController(x.w), opt: opt, eol: opt.EOL}
	if s.eol == "" {
		s.eol = "\n"
	}
	if opt.BOM {
		s.write("\uFEFF")
	}
	for _, raw := range opt.Before {
		s.write(raw)
	}
	if opt.Prime && out.name != "" {
		s.write("id: " + out.name + "/-1" + s.eol + "data: " + s.eol + s.eol)
	}
	_ = s.control.Flush()
	return s
}

// event writes one message as the event with index i of the named stream.
func (s *sseWriter) event(data []byte, stream string, i int, last bool) {
	var b strings.Builder
	if s.opt.Comments {
		b.WriteString(": keep-alive" + s.eol + s.eol)
	}
	if s.opt.RetryMs > 0 && s.n == 0 {
		b.WriteString("retry: " + itoa(s.opt.RetryMs) + s.eol)
	}
	if s.opt.EventName != "" {
		b.WriteString("event: " + s.opt.EventName + s.eol)
	}
	if stream != "" {
		b.WriteString("id: " + stream + "/" + itoa(i) + s.eol)
	}
	if s.opt.MultiData {
		var pretty bytes.Buffer
		if json.Indent(&pretty, data, "", "  ") == nil {
			data = pretty.Bytes()
		}
	}
	field := "data: "
	if s.opt.NoSpace {
		field = "data:"
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		b.WriteString(field + line + s.eol)
	}
	text := b.String()
	if !last || !s.opt.NoFinalBlank {
		text += s.eol
	}
	s.n++
	s.write(text)
}

func (s *sseWriter) write(text string) {
	if !s.opt.SplitBytes {
		_, _ = io.WriteString(s.w, text) // a client that left ends the exchange by its context
		_ = s.control.Flush()
		return
	}
	for i := range len(text) {
		_, _ = io.WriteString(s.w, text[i:i+1])
		_ = s.control.Flush()
	}
}
