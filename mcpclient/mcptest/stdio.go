package mcptest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// ServeStream serves one connection with stdio framing until its input ends,
// ctx ends or the server closes; then it closes rw and returns. Each call is a
// connection of its own, as each start of a child process is.
func (s *Server) ServeStream(ctx context.Context, rw io.ReadWriteCloser) error {
	s.init()
	if s.isDown() {
		return rw.Close()
	}
	c := newConn(s, false, s.Era)
	s.register(c)
	s.add(Entry{Method: MethodOpened})
	stop := context.AfterFunc(ctx, func() { s.drop(c) })
	closed := make(chan struct{})
	context.AfterFunc(c.ctx, func() {
		_ = rw.Close() // unblocks reader and writer
		close(closed)
	})
	written := make(chan struct{})
	go func() { // ends when the stream ends or the connection breaks
		defer close(written)
		if !s.writeLines(c, rw) {
			c.cancel()
		}
	}()
	err := s.readLines(c, rw)
	c.stream().finish(errEnded)
	<-written
	s.drop(c)
	stop()
	<-closed
	if errors.Is(err, io.EOF) || c.ctx.Err() != nil {
		err = nil
	}
	return err
}

// readLines takes messages until the input ends.
func (s *Server) readLines(c *conn, r io.Reader) error {
	if s.Stdio.StopReading {
		<-c.ctx.Done()
		return nil
	}
	in := bufio.NewReader(r)
	for n := 0; ; n++ {
		if s.Stdio.StopAfter > 0 && n >= s.Stdio.StopAfter {
			<-c.ctx.Done()
			return nil
		}
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if err != nil {
				s.violate("the last line is not ended by a newline: %.200q", line)
			}
			s.takeLine(c, bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil {
			s.add(Entry{Method: MethodEOF})
			return err
		}
	}
}

func (s *Server) takeLine(c *conn, line []byte) {
	m, err := parse(line)
	if err != nil {
		s.add(Entry{Method: MethodInvalid, Raw: marshal(string(line))})
		s.violate("stdin line: %v: %.200q", err, line)
		c.stream().send([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`))
		return
	}
	name := m.method
	if name == "" {
		name = MethodResponse
	}
	n := s.add(Entry{Method: name, ID: string(m.id), Raw: m.raw})
	switch {
	case m.isRequest():
		c.request(m, nil, c.stream(), n)
	case m.isNotification():
		c.notify(m, nil, n)
	default:
		c.take(m, c.eraOf(m))
	}
}

// writeLines writes messages until the stream ends; false means that the
// connection is to be closed.
func (s *Server) writeLines(c *conn, w io.Writer) bool {
	opt := s.Stdio
	eol := opt.EOL
	if eol == "" {
		eol = "\n"
	}
	junk := opt.Junk
	if junk == "" {
		junk = "npm WARN deprecated something"
	}
	if opt.BOM {
		if _, err := io.WriteString(w, "\uFEFF"); err != nil {
			return false
		}
	}
	for _, line := range opt.Banner {
		if _, err := io.WriteString(w, line+eol); err != nil {
			return false
		}
	}
	out := c.stream()
	for i, answers := 0, 0; ; i++ {
		ev, err := out.next(c.ctx, i)
		if err != nil {
			return errors.Is(err, errEnded)
		}
		data := ev.data
		if ev.reply != nil {
			if ev.reply.Body == "" {
				continue
			}
			data = []byte(ev.reply.Body)
		}
		line := string(data) + eol
		if opt.JunkEvery > 0 && i%opt.JunkEvery == 0 {
			line = junk + eol + line
		}
		last := false
		if ev.answer {
			answers++
			last = opt.ExitAfter > 0 && answers >= opt.ExitAfter
		}
		if last && opt.NoFinalNewline {
			line = line[:len(line)-len(eol)]
		}
		if _, err := io.WriteString(w, line); err != nil || last {
			return false
		}
	}
}
