package lightmcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
)

// ServeStdio answers one line after the other until the input or ctx ends; ctx is looked at between two messages.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	lines, w := bufio.NewReader(in), bufio.NewWriter(out)
	for ctx.Err() == nil {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("not a request: %w", err)
		}
		if len(m.ID) == 0 {
			continue
		}
		m.notifications(ctx, func(text string) { _, _ = w.WriteString(text + "\n") }) // an error stays until Flush
		parts, _ := s.reply(&m, "")
		for _, part := range parts {
			_, _ = w.WriteString(part)
		}
		_ = w.WriteByte('\n')
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return ctx.Err()
}
