package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/mcpbridge/mcpbridge/server"
)

const (
	// telemetryBudget bounds the last export, whatever time the drain took.
	telemetryBudget = 5 * time.Second
	// targetsBudget bounds the end of sessions and child processes; a child that
	// does not go by itself is killed within its restart.stop_timeout.
	targetsBudget = 30 * time.Second
)

// sameSignal is how long after the first signal another one counts as the same:
// programs such as timeout signal a process and then its group.
const sameSignal = 200 * time.Millisecond

// errAgain is why a shutdown is cut short.
var errAgain = errors.New("a second signal came")

// closingOf returns the context of a shutdown that begins when ctx ends: the next
// SIGINT or SIGTERM ends it, unless it comes along with the first. release ends it, too, and waits for what watches.
func closingOf(ctx context.Context) (closing context.Context, release func()) {
	closing, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ctx.Done():
		case <-closing.Done():
			return
		}
		begin := time.Now()
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		for {
			select {
			case <-again:
				if time.Since(begin) > sameSignal {
					cancel(errAgain)
					return
				}
			case <-closing.Done():
				return
			}
		}
	})
	return closing, func() {
		cancel(nil)
		watch.Wait()
	}
}

// drain lets calls finish until the limit, or a second signal.
func drain(closing context.Context, log *slog.Logger, srv *server.Server, limit time.Duration) {
	limited, cancel := context.WithTimeout(closing, limit)
	defer cancel()
	switch err := srv.Shutdown(limited); {
	case err == nil:
	case context.Cause(closing) != nil:
		log.WarnContext(closing, "calls were cut off: a second signal came", "error", err)
	default:
		log.WarnContext(closing, "calls were cut off at the shutdown limit", "limit", limit, "error", err)
	}
}

// ending ends one part; what does not end in time is cut off, which is worth a
// line but no failure of the program.
func ending(closing context.Context, log *slog.Logger, part string, budget time.Duration, end func(context.Context) error) {
	limited, cancel := context.WithTimeout(closing, budget)
	defer cancel()
	if err := end(limited); err != nil {
		log.WarnContext(closing, "shutdown was not clean", "part", part, "error", err)
	}
}

// cannotListen says why an address cannot be had, and what to do. flag is "" for
// a setting that has none.
func cannotListen(address, setting, flag string, err error) error {
	hint := ""
	if errors.Is(err, syscall.EADDRINUSE) {
		with := setting
		if flag != "" {
			with = flag + " or " + setting
		}
		hint = "; another program listens there, perhaps another bridge: stop it, or choose another address with " + with
	}
	// What net adds repeats the address.
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return fmt.Errorf("cannot listen at %s (%s): %w%s", address, setting, err, hint)
}
