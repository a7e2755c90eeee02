package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxyServer makes TCP proxies that can harm what passes.
type proxyServer struct{ api *toxiproxy.ApiServer }

func newProxyServer() *proxyServer {
	return &proxyServer{api: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())}
}

// tcpProxy stands before the server of one target.
type tcpProxy struct{ proxy *toxiproxy.Proxy }

func (s *proxyServer) start(name, upstream string) (*tcpProxy, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p := &tcpProxy{proxy: toxiproxy.NewProxy(s.api, name, listen, upstream)}
	return p, p.proxy.Start()
}

func (p *tcpProxy) address() string { return p.proxy.Listen }

// harm adds a toxic to what the server sends, on the connections that are open and on new ones.
func (p *tcpProxy) harm(ctx context.Context, toxic, attributes string) error {
	return within(ctx, "add the toxic "+toxic, func() error {
		_, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":"harm","type":%q,"stream":"downstream","attributes":%s}`, toxic, attributes)))
		return err
	})
}

// heal removes what harm added.
func (p *tcpProxy) heal(ctx context.Context) error {
	return within(ctx, "remove the toxic", func() error {
		return p.proxy.Toxics.RemoveToxic(ctx, "harm")
	})
}

// off cuts every connection and refuses new ones, until on.
func (p *tcpProxy) off(ctx context.Context) error {
	return within(ctx, "stop the proxy", func() error { p.proxy.Stop(); return nil })
}

func (p *tcpProxy) on(ctx context.Context) error {
	return within(ctx, "start the proxy", p.proxy.Start)
}

func (p *tcpProxy) stop() { p.proxy.Stop() }

// within runs something of another module that has no deadline of its own.
func within(ctx context.Context, what string, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: not done after %v: %w", what, time.Since(began).Round(time.Millisecond), ctx.Err())
	}
}
