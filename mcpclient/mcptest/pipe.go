package mcptest

import (
	"context"
	"io"
	"sync"
)

// Acceptor is the server's end of an in-memory transport.
type Acceptor interface {
	Accept(ctx context.Context) (io.ReadWriteCloser, error)
	Close()
}

// StartPipe serves every connection that l accepts, with stdio framing, until
// the test ends; dials fail then. It works inside synctest bubbles. The test
// fails for every violation left at its end.
func StartPipe(t TB, s *Server, l Acceptor) {
	t.Helper()
	Check(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept(ctx)
			if err != nil {
				return
			}
			work.Go(func() { _ = s.ServeStream(ctx, conn) }) // how a connection ends is in the log
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		work.Wait()
	})
}
