package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// disturbance is what was done to a target, as it happened.
type disturbance struct {
	target string
	step   step
	start  time.Time // when it began, at the latest
	back   time.Time // when the server was back, at the earliest
	served time.Time // the end of the first successful call that began after back; zero = none within patience
}

// tail is the time at the end of a run in which no new disturbance ends.
const tail = 12 * time.Second

// disturber carries out the plans.
type disturber struct {
	servers *servers
	load    *load
	until   time.Time
	fail    context.CancelCauseFunc // for what the driver itself could not do

	mu  sync.Mutex // guards log
	log []disturbance
}

// run carries out all plans side by side and returns what was done.
func (d *disturber) run(ctx context.Context, plans planList) []disturbance {
	var wg sync.WaitGroup
	for _, p := range plans {
		wg.Go(func() {
			for _, s := range p.steps {
				if time.Until(d.until) < s.wait+s.hold+tail || !pause(ctx, s.wait) {
					return
				}
				served, err := d.disturb(ctx, p.target, s)
				if err != nil && ctx.Err() == nil {
					d.fail(fmt.Errorf("disturb %s with %s: %w", p.target.name, s.fault, err))
				}
				if !served {
					return // it has failed its check
				}
			}
		})
	}
	wg.Wait()
	return d.log
}

// pause waits, unless the run ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// disturb does one thing to a target, ends it, and waits until the target serves again.
func (d *disturber) disturb(ctx context.Context, t *target, s step) (served bool, err error) {
	done := disturbance{target: t.name, step: s, start: time.Now()}
	end, err := d.begin(ctx, t, s)
	if err != nil {
		return false, err
	}
	held := pause(ctx, s.hold)
	done.back = time.Now() // a server that has to be started is allowed its boot time
	if err := end(); err != nil {
		return false, err
	}
	if s.fault != faultKill && s.fault != faultRestart {
		done.back = time.Now()
	}
	if held {
		done.served = d.load.probe(ctx, t)
	}
	d.mu.Lock()
	d.log = append(d.log, done)
	d.mu.Unlock()
	return !done.served.IsZero(), ctx.Err()
}

// begin starts a disturbance and returns what ends it. Whatever happens, end leaves the server well.
func (d *disturber) begin(ctx context.Context, t *target, s step) (end func() error, err error) {
	mode := func(mode string) (func() error, error) {
		return func() error { return d.servers.setMode(t, "") }, d.servers.setMode(t, mode)
	}
	harm := func(toxic, attributes string) (func() error, error) {
		p := d.servers.proxies[t.name]
		return func() error { return p.heal(ctx) }, p.harm(ctx, toxic, attributes)
	}
	switch s.fault {
	case faultKill, faultRestart:
		if t.kind != kindStdio {
			return func() error { return d.servers.startHTTP(ctx, t) }, d.servers.killHTTP(t)
		}
		p, err := d.servers.awaitProcess(ctx, t)
		if err != nil {
			return nil, err
		}
		return func() error { return nil }, p.Kill()
	case faultStop:
		p, err := d.servers.awaitProcess(ctx, t)
		if err != nil {
			return nil, err
		}
		resume := func() error {
			if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) { // the bridge may have replaced it
				return err
			}
			return nil
		}
		return resume, p.Signal(syscall.SIGSTOP)
	case fault500:
		return mode(mode500)
	case fault404:
		return mode(mode404)
	case faultHTML:
		return mode(modeHTML)
	case faultSlow:
		return mode(fmt.Sprintf("%s%d", slowMode, s.slow.Milliseconds()))
	case faultReset:
		return harm("reset_peer", `{"timeout":0}`)
	case faultLimit:
		return harm("limit_data", `{"bytes":150}`)
	case faultHang:
		return harm("timeout", `{"timeout":0}`)
	case faultTimeout:
		return harm("timeout", `{"timeout":700}`)
	case faultOff:
		p := d.servers.proxies[t.name]
		return func() error { return p.on(ctx) }, p.off(ctx)
	}
	return nil, fmt.Errorf("nobody knows how to do that")
}
