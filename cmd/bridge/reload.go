package main

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/internal/targets"
)

const (
	// settleTime is how long files must be left alone before they are read
	// again: editors and deployments change them in several steps.
	settleTime = 250 * time.Millisecond
	// maxSettleTime bounds the wait where something never leaves them alone.
	maxSettleTime = 2 * time.Second
	// pollTime is how often the files are looked at that nothing was told of.
	pollTime = 5 * time.Second
	// stopTime bounds the wait for a reload under way when the bridge ends: a
	// file may be on a file system that does not answer.
	stopTime = 5 * time.Second
)

// reloader goes over to another configuration when its files change, or at
// SIGHUP, while the bridge serves.
type reloader struct {
	load    func() (*config.Config, error)
	hangups <-chan os.Signal
	files   *fileWatch
	running *config.Config // what the process was started with
	set     *targets.Set
	level   *slog.LevelVar
	log     *slog.Logger
}

// start reloads in the background until stop is called, which waits for a
// reload under way.
func (r *reloader) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	if err := r.files.open(); err != nil {
		r.log.DebugContext(ctx, "the configuration's files cannot be watched; they are looked at every few seconds", "error", err)
	}
	var work sync.WaitGroup
	work.Go(func() { r.run(ctx, r.hangups) })
	return func() {
		cancel()
		done := make(chan struct{})
		go func() { // ends with the reload
			work.Wait()
			close(done)
		}()
		limit := time.NewTimer(stopTime)
		defer limit.Stop()
		select {
		case <-done:
		case <-limit.C:
			r.log.WarnContext(ctx, "a reload of the configuration does not end; its files may be on a file system that does not answer")
			return
		}
		if err := r.files.close(); err != nil {
			r.log.WarnContext(ctx, "the watch of the configuration's files did not end properly", "error", err)
		}
	}
}

func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	settled := time.NewTimer(settleTime) // for a change since they were first read
	defer settled.Stop()
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	var since time.Time // of the first change that was not looked at; zero = there is none
	look := func() {
		if since.IsZero() {
			since = time.Now()
		}
		settled.Reset(min(settleTime, max(0, maxSettleTime-time.Since(since))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			r.files.changed() // what is read now is no news later
			r.follow(ctx)
			r.reload(ctx, "SIGHUP")
		case <-poll.C:
			if r.files.moved() {
				look()
			}
		case e := <-r.files.events():
			if r.files.concerns(e) {
				look()
			}
		case err := <-r.files.failures():
			r.log.WarnContext(ctx, "the watch of the configuration's files failed; they are read again", "error", err)
			look() // for an event that was lost
		case <-settled.C:
			since = time.Time{}
			r.follow(ctx)
			if r.files.changed() {
				r.reload(ctx, "a file changed")
			}
		}
	}
}

func (r *reloader) follow(ctx context.Context) {
	if err := r.files.follow(); err != nil {
		r.log.DebugContext(ctx, "the directory of a configuration file cannot be watched; the file is looked at every few seconds", "error", err)
	}
}

// reload changes nothing if anything is wrong.
func (r *reloader) reload(ctx context.Context, cause string) {
	const failed = "the configuration was not reloaded; the bridge goes on with the one it has"
	cfg, err := r.load()
	if err != nil {
		r.log.ErrorContext(ctx, failed, "cause", cause, "error", err)
		return
	}
	changes, err := r.set.Reload(cfg)
	if err != nil {
		r.log.ErrorContext(ctx, failed, "cause", cause, "error", err)
		return
	}
	r.level.Set(levelOf(cfg.Log))
	r.log.InfoContext(ctx, "the configuration was reloaded", "cause", cause, "added", changes.Added, "changed", changes.Changed, "removed", changes.Removed)
	if keys := needRestart(r.running, cfg); len(keys) > 0 {
		r.log.WarnContext(ctx, "some changed settings take effect only when the bridge is started again", "keys", keys)
	}
}

// needRestart names the settings that differ and that a running process does
// not take over.
func needRestart(running, wanted *config.Config) []string {
	live := map[string]bool{"targets": true, "client_info": true, "log.level": true}
	var keys []string
	var compare func(prefix string, a, b reflect.Value)
	compare = func(prefix string, a, b reflect.Value) {
		for i := range a.NumField() {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
			key := prefix + name
			switch {
			case live[key]:
			case a.Field(i).Kind() == reflect.Struct:
				compare(key+".", a.Field(i), b.Field(i))
			case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
				keys = append(keys, key)
			}
		}
	}
	compare("", reflect.ValueOf(running).Elem(), reflect.ValueOf(wanted).Elem())
	return keys
}
