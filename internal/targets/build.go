package targets

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// builder turns configured targets into pools.
type builder struct {
	deps    Deps
	info    config.ClientInfo
	gate    chan struct{} // holds one token per eager connect under way
	changed func(*Target)
}

func (b *builder) build(name string, c *config.Target) (*Target, error) {
	if c == nil {
		return nil, errors.New("has no settings; give it a command or a url")
	}
	redact := c.Redactor()
	tr, err := b.transport(name, c)
	if err != nil {
		return nil, err
	}
	t := &Target{name: name, transport: tr, redact: redact}
	opts := b.options(name, c)
	if c.ServerLogLevel != config.ServerLogNone {
		opts.Handlers.Log = serverLog(opts.Logger, redact)
	}
	opts.OnState = func(mcpclient.Status) { b.changed(t) }
	t.pool, err = pool.New(pool.Options{
		New:         func() (*mcpclient.Client, error) { return mcpclient.New(tr, opts) },
		MaxInFlight: unlimited(c.Pool.MaxInFlight),
		MaxQueue:    unlimited(c.Pool.MaxQueue),
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (b *builder) transport(name string, c *config.Target) (transport.Transport, error) {
	logger := b.deps.Logger.With("target", name)
	if len(c.Command) > 0 {
		environ := b.deps.Environ
		if environ == nil {
			environ = os.Environ()
		}
		return &transport.Command{
			Path: c.Command[0], Args: c.Command[1:], Dir: c.Cwd,
			Env:           childEnviron(environ, c.Env),
			StopTimeout:   max(c.Restart.StopTimeout, time.Nanosecond), // the transport's zero is its default
			MaxReplyBytes: int64(c.MaxReplyBytes),
			Supervisor:    b.deps.Supervisor,
			Redact:        c.Redactor(),
			Logger:        logger,
		}, nil
	}
	if network, address, ok := c.Socket(); ok {
		return valid(&transport.Socket{Network: network, Address: address, MaxReplyBytes: int64(c.MaxReplyBytes), Redact: c.Redactor(), Logger: logger})
	}
	header := make(http.Header, len(c.Headers))
	for key, value := range c.Headers {
		header.Set(key, value.Reveal())
	}
	if c.Transport == config.TransportSSE {
		return valid(&transport.SSE{URL: c.URL, Header: header, MaxReplyBytes: int64(c.MaxReplyBytes), Redact: c.Redactor(), Logger: logger})
	}
	h := &transport.HTTP{URL: c.URL, Header: header, MaxReplyBytes: int64(c.MaxReplyBytes), Redact: c.Redactor(), Logger: logger}
	if c.Transport == config.TransportStreamableHTTP {
		h.SSEFallback = transport.SSENever
	}
	return valid(h)
}

// valid returns a transport whose configuration is usable.
func valid[T interface {
	transport.Transport
	Validate() error
}](tr T) (transport.Transport, error) {
	if err := tr.Validate(); err != nil {
		return nil, err
	}
	return tr, nil
}

// firstConnect gates only the first attempt of a target: later ones would wait
// behind targets that are down, although those concern nobody else.
func (b *builder) firstConnect() func(context.Context) (func(), error) {
	var passed atomic.Bool
	return func(ctx context.Context) (func(), error) {
		if passed.Swap(true) {
			return func() {}, nil
		}
		select {
		case b.gate <- struct{}{}:
			return func() { <-b.gate }, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
