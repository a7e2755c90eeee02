// Package pool is the connections of one target.
//
// A [Pool] makes the target's [mcpclient.Client] values and leases them to
// calls: the connection with the least in flight, bounded per connection and
// per target, the next callers waiting in order of arrival. It keeps callers
// apart that must not share a connection, closes what is idle and replaces
// what is old. It observes the clients; connecting and reconnecting are their
// own business.
//
// File map: pool.go life; acquire.go leases and the queue; member.go single
// connections; places.go how many of them there may be; sweep.go idle and lifetime limits; breaker.go what connections
// of one target learn from each other's failures; status.go what is reported.
package pool

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// Defaults of [Options].
const (
	defaultMaxInFlight    = 1024
	defaultMaxQueue       = 1024
	defaultMaxConnections = 256 // of modes that keep callers apart
	defaultMaxExclusive   = 16
	// closeBudget bounds the end of one connection that is no longer needed.
	closeBudget = 30 * time.Second
)

// Mode says which calls may share a connection.
type Mode int

const (
	// ModeShared: all calls with the same [Key] share connections.
	ModeShared Mode = iota
	// ModePerKey: each key has exactly one connection, which nobody else uses.
	ModePerKey
	// ModePerCall: each call has a connection of its own, which ends with it.
	ModePerCall
)

// Key says for whom a connection is. Different keys never share one.
type Key struct {
	Isolation  string // the caller's key, in the terms of the bridge; "" = everybody
	Profile    string // the capabilities declared when connecting; "" = the usual ones
	Credential string // what the server is shown; "" = the configured one
}

// Member is what Options.New must build into the client it makes.
type Member struct {
	Key Key
	// Exclusive: the connection carries one call at a time.
	Exclusive bool
	// Lazy, OnState and Gate belong into the fields of [mcpclient.Options] of
	// these names (Gate into ConnectGate, beside others; it may be nil).
	Lazy    bool
	OnState func(mcpclient.Status)
	Gate    func(ctx context.Context) (done func(error), err error)
}

// Options configures a [Pool]. It is copied by [New].
type Options struct {
	// New makes a client; it must do no I/O. Each client needs a transport of its
	// own. Required.
	New func(Member) (*mcpclient.Client, error)
	// Mode says which calls share connections.
	Mode Mode
	// MaxConnections bounds the connections of a shared key, or of all keys in the
	// other modes; 0 = 1 when shared, else 256.
	MaxConnections int
	// MaxInFlight is how many leases exist at once; 0 = 1024,
	// mcpclient.Unlimited = no limit.
	MaxInFlight int
	// MaxInFlightPerConnection is how many of them are on one connection; 0 or
	// mcpclient.Unlimited = no limit of its own.
	MaxInFlightPerConnection int
	// MaxQueue is how many callers may wait for a lease; 0 = 1024,
	// mcpclient.Unlimited = no limit.
	MaxQueue int
	// MaxExclusive bounds the connections of exclusive requests, those included
	// that are being closed, unless each call has its own anyway; 0 = 16.
	MaxExclusive int
	// IdleTimeout ends a connection that was not used for so long, except the
	// first one of a shared pool. MaxLifetime replaces one that is older. Both
	// vary by a tenth; 0 = never.
	IdleTimeout, MaxLifetime time.Duration
	// Reconnect paces the attempts of several connections together, once three in
	// a row have failed.
	Reconnect mcpclient.ReconnectOptions
	// Lazy connects at the first call instead of at Start.
	Lazy bool
	// OnWait, when set, is called when a caller has to wait for a lease, with its
	// context; done is called when the wait is over, with the error that it ended
	// with. Both run on the caller's goroutine.
	OnWait func(ctx context.Context) (done func(err error))
	// OnChange, when set, is told of every change of the status, in order. It must
	// not block or call the pool.
	OnChange func(Status)
	// Logger receives what happens to connections; nil discards.
	Logger *slog.Logger
}

// Pool hands out leases on the connections of one target. All methods may be
// called from many goroutines at once. It must be closed.
type Pool struct {
	opts    Options
	breaker *breaker // of all connections but the first of a shared pool

	lifetime context.Context //nolint:containedctx // ends when Close gives up waiting
	abort    context.CancelFunc
	work     sync.WaitGroup // connections that end

	mu       sync.Mutex // protects the fields below; nothing blocks while it is held
	shared   *group     // of the zero request, nil in other modes
	groups   map[Request]*group
	leaving  map[*member]struct{} // out of their group, with leases left
	usual    places
	apart    places // of exclusive requests, unless each call has its own anyway
	inFlight int
	queue    list.List // of *waiter: all leases are taken
	queued   int       // callers waiting, in any queue
	counters counters
	status   Status
	reopen   *time.Timer // looks at the status again when the breaker has waited
	sweeper  *time.Timer // nil while no connection can be idle for too long, or too old
	draining bool
	closed   bool
	idle     chan struct{} // closed when the pool is draining and inFlight is 0

	closing   sync.Once
	closeErr  error
	closeDone chan struct{}
}

// New checks the options and makes the first client of a shared pool. It does
// no I/O.
func New(o Options) (*Pool, error) {
	if o.New == nil {
		return nil, errors.New("pool: Options.New is nil; it must make the client")
	}
	if err := o.prepare(); err != nil {
		return nil, err
	}
	p := &Pool{opts: o, groups: map[Request]*group{}, leaving: map[*member]struct{}{}, idle: make(chan struct{}), closeDone: make(chan struct{})}
	p.lifetime, p.abort = context.WithCancel(context.Background())
	p.status.Since = time.Now()
	p.breaker = newBreaker(o.Reconnect)
	p.usual.most, p.apart.most = o.MaxConnections, o.MaxExclusive
	if o.Mode == ModeShared {
		p.shared = p.groupLocked(Request{})
		_, err := p.addLocked(p.shared, role{primary: true})
		return p, err
	}
	// the options of later clients are those of this one, which never connects
	trial, err := o.New(Member{Lazy: true})
	if err != nil {
		return nil, err
	}
	return p, trial.Close(context.Background())
}

// prepare fills in defaults and refuses what makes no sense.
func (o *Options) prepare() error {
	connections := 1
	if o.Mode != ModeShared {
		connections = defaultMaxConnections
	}
	var errs []error
	limit := func(name string, value *int, unset int, unlimited bool) {
		switch {
		case *value == 0:
			*value = unset
		case *value < 0 && (!unlimited || *value != mcpclient.Unlimited):
			advice := ""
			if unlimited {
				advice = fmt.Sprintf(", or %d for no limit", mcpclient.Unlimited)
			}
			errs = append(errs, fmt.Errorf("pool: Options.%s is %d; use a positive number, 0 for %d%s", name, *value, unset, advice))
		}
	}
	limit("MaxConnections", &o.MaxConnections, connections, false)
	limit("MaxInFlight", &o.MaxInFlight, defaultMaxInFlight, true)
	limit("MaxInFlightPerConnection", &o.MaxInFlightPerConnection, mcpclient.Unlimited, true)
	limit("MaxQueue", &o.MaxQueue, defaultMaxQueue, true)
	limit("MaxExclusive", &o.MaxExclusive, defaultMaxExclusive, false)
	if o.IdleTimeout < 0 || o.MaxLifetime < 0 {
		errs = append(errs, errors.New("pool: Options.IdleTimeout and MaxLifetime must not be negative; 0 means never"))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// Start begins connecting in the background, unless the pool is lazy or its
// connections are made for callers.
func (p *Pool) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining || p.shared == nil {
		return
	}
	if p.opts.MaxLifetime > 0 { // the first connection is never idle for too long
		p.startSweeperLocked()
	}
	for _, m := range p.shared.members {
		m.client.Start()
	}
}

// Close refuses new leases, fails the queue, waits until the leases are
// released or ctx ends, and closes the connections, which ends what is still
// running. It returns their errors. A second call waits for the first.
func (p *Pool) Close(ctx context.Context) error {
	first := false
	p.closing.Do(func() { first = true })
	if !first {
		select {
		case <-p.closeDone:
			return p.closeErr
		case <-ctx.Done():
			return fmt.Errorf("close the pool: %w", ctx.Err())
		}
	}
	p.drain()
	select {
	case <-p.idle:
	case <-ctx.Done():
	}
	p.closeErr = p.end(ctx)
	close(p.closeDone)
	return p.closeErr
}

// drain refuses what is not leased yet.
func (p *Pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	if p.sweeper != nil {
		p.sweeper.Stop()
	}
	p.failLocked(&p.queue)
	p.failLocked(&p.usual.crowd)
	p.failLocked(&p.apart.crowd)
	for _, g := range p.groups {
		p.failLocked(&g.queue)
	}
	if p.inFlight == 0 {
		close(p.idle)
	}
	p.refreshLocked()
}

// end closes all connections at the same time.
func (p *Pool) end(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	if p.reopen != nil {
		p.reopen.Stop()
	}
	var clients []*mcpclient.Client
	for _, g := range p.groups {
		for _, m := range g.members {
			m.gone = true
			p.counters.ended = p.counters.ended.Add(m.client.Stat())
			clients = append(clients, m.client)
		}
		g.members = nil
	}
	for m := range p.leaving {
		clients = append(clients, m.client)
	}
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, p.abort) // those that were already ending have no longer than the rest
	defer stop()
	errs := make([]error, len(clients))
	var ending sync.WaitGroup
	for i, client := range clients {
		ending.Go(func() { errs[i] = client.Close(ctx) })
	}
	ending.Wait()
	p.mu.Lock()
	p.refreshLocked()
	p.mu.Unlock()
	p.work.Wait()
	p.abort()
	return errors.Join(errs...)
}
