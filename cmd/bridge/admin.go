package main

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/admin"
	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	bridgeotel "github.com/mcpbridge/mcpbridge/otel"
	"github.com/mcpbridge/mcpbridge/server"
)

// adminBudget bounds the requests under way when the admin listener ends.
const adminBudget = 2 * time.Second

// figures are what metrics and readiness read of the targets.
func figures(set *targets.Set) []bridgeotel.TargetFigures {
	var all []bridgeotel.TargetFigures
	for _, t := range set.All() {
		all = append(all, bridgeotel.TargetFigures{Name: t.Name(), State: t.Status().State, Stat: t.Stat()})
	}
	return all
}

// startAdmin opens the admin listener, if there is to be one. stop ends it; it
// comes last, so that the listener answers while everything else ends; closing
// bounds it.
func startAdmin(ctx, closing context.Context, c config.Admin, metrics *bridgeotel.Metrics, set *targets.Set, log *slog.Logger) (s *admin.Server, stop func(), err error) {
	s = admin.New(admin.Options{
		Metrics: metrics.Handler(),
		Pprof:   c.Pprof,
		Targets: func() map[string]string {
			states := map[string]string{}
			for _, t := range set.All() {
				states[t.Name()] = t.Status().State.String()
			}
			return states
		},
		Logger: log,
	})
	if c.Address == "" {
		return s, func() {}, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, nil, cannotListen(c.Address, "listen.admin.address", "--admin", err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	log.InfoContext(ctx, "the admin listener is open", "address", listener.Addr().String(), "pprof", c.Pprof)
	return s, func() {
		ending(closing, log, "admin listener", adminBudget, s.Shutdown)
		if err := <-served; err != nil {
			log.WarnContext(ctx, "the admin listener failed", "error", err)
		}
	}, nil
}

// accessOf is what a configuration says of lines for calls.
func accessOf(c config.Log) server.AccessLog {
	switch c.Access {
	case config.AccessOn:
		return server.AccessOn
	case config.AccessSampled:
		return server.AccessSampled
	case config.AccessOff:
	}
	return server.AccessOff
}
