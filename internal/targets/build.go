package targets

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/balance"
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
	changed func(*Target, pool.Status)
}

// build makes a target, without I/O. It must be closed.
func (b *builder) build(name string, c *config.Target) (*Target, error) {
	if c == nil {
		return nil, errors.New("has no settings; give it a command or a url")
	}
	replicas, err := b.replicas(name, c)
	if err != nil {
		return nil, err
	}
	sample, err := b.transport(name, c, replicas)
	if err != nil {
		return nil, err
	}
	t := &Target{name: name, config: c, info: b.info, transport: sample.Name(), replicas: replicas, redact: c.Redactor(), settled: make(chan struct{}), wanted: make(chan struct{})}
	opts := b.options(name, c)
	var watch Instruments
	if b.deps.Instruments != nil {
		watch = b.deps.Instruments(name, c)
	}
	opts.Interceptors, opts.Meta, opts.Headers = watch.Interceptors, watch.Meta, watch.Headers
	opts.OnConnect, opts.OnWait, opts.OnRequest = watch.OnConnect, watch.OnWait, watch.OnRequest
	opts.OnList, opts.OnSessionEnd = watch.OnList, watch.OnSessionEnd
	if c.ServerLogLevel != config.ServerLogNone {
		opts.Handlers.Log = serverLog(opts.Logger, t.redact)
	}
	t.pool, err = pool.New(pool.Options{
		New:            b.members(t, opts),
		Mode:           modeOf(c.Pool.Isolation),
		MaxConnections: c.Pool.MaxConnections,
		MaxInFlight:    unlimited(c.Pool.MaxInFlight), MaxInFlightPerConnection: unlimited(c.Pool.MaxInFlightPerConnection),
		MaxQueue:     unlimited(c.Pool.MaxQueue),
		MaxExclusive: c.Pool.MaxInteractive,
		IdleTimeout:  c.Pool.IdleTimeout, MaxLifetime: c.Pool.MaxLifetime,
		Reconnect: opts.Reconnect,
		Lazy:      c.Lazy,
		OnWait:    watch.OnQueue,
		OnChange:  func(s pool.Status) { b.changed(t, s) },
		Logger:    opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	t.told.status = t.Status()
	return t, nil
}

// members makes the clients of a target, each with a transport of its own.
func (b *builder) members(t *Target, opts mcpclient.Options) func(pool.Member) (*mcpclient.Client, error) {
	var first gate
	if t.connectsAtStart() {
		first = b.firstConnect(t.wanted)
	}
	c := t.config
	limits := newLimits(c)
	return func(m pool.Member) (*mcpclient.Client, error) {
		tr, err := b.transport(t.name, c, t.replicas)
		if err != nil {
			return nil, err
		}
		o := opts
		limit := limits(m)
		o.Lazy, o.OnState, o.ConnectGate = m.Lazy, limit.watch(m.OnState), gates(limit, m.Gate, first)
		o.Capabilities = capabilitiesOf(m.Key.Profile)
		client, err := mcpclient.New(tr, o)
		if err == nil {
			t.children.add(tr)
		}
		return client, err
	}
}

func (b *builder) transport(name string, c *config.Target, replicas *balance.Balancer) (transport.Transport, error) {
	if b.deps.transport != nil {
		return b.deps.transport(name, c)
	}
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
	if replicas != nil {
		h.URL, h.Wrap = c.URLs[0], replicas.Wrap
	}
	if c.Transport == config.TransportStreamableHTTP {
		h.SSEFallback = transport.SSENever
	}
	return valid(h)
}

// replicas spreads what is sent to a target over its urls; nil for one url. All
// its clients share it.
func (b *builder) replicas(name string, c *config.Target) (*balance.Balancer, error) {
	if len(c.URLs) == 0 {
		return nil, nil
	}
	return balance.New(c.URLs, balance.Options{Logger: b.deps.Logger.With("target", name)})
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
