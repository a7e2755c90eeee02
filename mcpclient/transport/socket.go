package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// Socket connects to a server that speaks the stdio framing on a socket: one
// JSON-RPC message per line in both directions. Network and Address are
// required; fields must not change after the first Dial.
type Socket struct {
	// Network is "unix" or "tcp".
	Network string
	// Address is the path of the Unix socket, or host:port.
	Address string
	// MaxReplyBytes bounds one line; 0 = DefaultMaxReplyBytes, negative = none.
	MaxReplyBytes int64
	// MaxJunk bounds output that is no JSON-RPC message.
	MaxJunk JunkLimit
	// LenientIDs: see StreamOptions.
	LenientIDs bool
	// Redact: see HTTP.
	Redact func(string) string
	// Logger; nil = no logs.
	Logger *slog.Logger
}

// Name returns NameUnix or NameTCP.
func (s *Socket) Name() string { return s.Network }

// Validate reports what is wrong with the configuration.
func (s *Socket) Validate() error {
	switch {
	case s.Network != NameUnix && s.Network != NameTCP:
		return fmt.Errorf("the network is %q; use unix or tcp", s.Network)
	case s.Address == "" && s.Network == NameUnix:
		return errors.New("the address is empty; give the path of the socket")
	case s.Network == NameTCP:
		if host, port, err := net.SplitHostPort(s.Address); err != nil || host == "" || port == "" {
			return fmt.Errorf("the address is %q; write it like host:port", s.Address)
		}
	}
	return nil
}

// Dial connects, until ctx ends.
func (s *Socket) Dial(ctx context.Context, h Handler) (Conn, error) {
	if err := s.Validate(); err != nil {
		return nil, &Error{Kind: NotSent, Message: err.Error()}
	}
	dialer := net.Dialer{Timeout: 30 * time.Second}
	conn, err := dialer.DialContext(ctx, s.Network, s.Address)
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return nil, fmt.Errorf("connect to %s: %w", s.Address, ended)
		}
		return nil, &Error{Kind: NotSent, Message: s.message(err), Err: err}
	}
	return NewStream(conn, h, StreamOptions{
		MaxReplyBytes: s.MaxReplyBytes, MaxJunk: s.MaxJunk, LenientIDs: s.LenientIDs, Redact: s.Redact, Logger: s.Logger,
	}), nil
}

// message says why no connection came about.
func (s *Socket) message(err error) string {
	if s.Network == NameTCP {
		return connectMessage(s.Address, err)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("there is no socket %s; check the path, and that the server is running", s.Address)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("the socket %s may not be used; check the permissions of the file and its directories", s.Address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens on the socket %s; check that the server is running", s.Address)
	case errors.Is(err, syscall.EINVAL):
		return fmt.Sprintf("the socket path %s cannot be used; it may be too long", s.Address)
	}
	return fmt.Sprintf("no connection to the socket %s came about; check that it is the server's socket", s.Address)
}
