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
	tr, err := b.transport(name, c)
	if err != nil {
		return nil, err
	}
	t := &Target{name: name, transport: tr}
	opts := b.options(name, c)
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
			Logger:        logger,
		}, nil
	}
	header := make(http.Header, len(c.Headers))
	for key, value := range c.Headers {
		header.Set(key, value.Reveal())
	}
	h := &transport.HTTP{URL: c.URL, Header: header, MaxReplyBytes: int64(c.MaxReplyBytes), Logger: logger}
	if err := h.Validate(); err != nil {
		return nil, err
	}
	return h, nil
}

func (b *builder) options(name string, c *config.Target) mcpclient.Options {
	o := mcpclient.Options{
		Info: mcpclient.Implementation{
			Name: b.info.Name + " - " + name, Version: b.info.Version,
			Title: b.info.Title, Description: b.info.Description, WebsiteURL: b.info.WebsiteURL,
		},
		Version: mcpclient.VersionOptions{DetectTimeout: noTimeout(c.Timeouts.Detect), Timeout: noTimeout(c.Timeouts.Initialize)},
		Timeouts: mcpclient.Timeouts{
			Tool: noTimeout(c.Timeouts.Tool), Resource: noTimeout(c.Timeouts.Resource),
			Prompt: noTimeout(c.Timeouts.Prompt), Completion: noTimeout(c.Timeouts.Completion),
			Tools: make(map[string]time.Duration, len(c.Timeouts.Tools)),
		},
		Reconnect: mcpclient.ReconnectOptions{Interval: c.Reconnect.Interval, MaxInterval: c.Reconnect.MaxInterval},
		Cache: mcpclient.CacheOptions{
			NoTools: !c.Cache.Tools, NoResources: !c.Cache.Resources, NoPrompts: !c.Cache.Prompts,
		},
		Lazy:         c.Lazy,
		Interceptors: b.deps.Interceptors, Meta: b.deps.Meta, Headers: b.deps.Headers,
		Logger: b.deps.Logger.With("target", name),
	}
	if o.Info.Version == "" {
		o.Info.Version = b.deps.Version
	}
	if c.ProtocolVersion != config.VersionAuto {
		o.Version.Pin = string(c.ProtocolVersion)
	}
	for tool, timeout := range c.Timeouts.Tools {
		o.Timeouts.Tools[tool] = noTimeout(timeout)
	}
	for _, root := range c.Roots {
		o.Roots = append(o.Roots, mcpclient.Root{URI: root.URI, Name: root.Name})
	}
	if !c.Lazy {
		o.ConnectGate = b.firstConnect()
	}
	return o
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

// noTimeout translates the configuration's "zero is no limit".
func noTimeout(d time.Duration) time.Duration {
	if d == 0 {
		return mcpclient.NoTimeout
	}
	return d
}

func unlimited(n int) int {
	if n == 0 {
		return mcpclient.Unlimited
	}
	return n
}
