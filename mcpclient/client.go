package mcpclient

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// Client is one supervised logical connection to one MCP server. It finds out
// the server's era, connects, replaces a connection that ended, and sends
// requests. All methods may be called from many goroutines at once.
type Client struct {
	transport    transport.Transport
	opts         Options
	log          *slog.Logger
	invoke       Next   // the interceptors around send
	info         []byte // our Implementation object
	capabilities capabilitySet
	endpoint     string // host and port of an HTTP server

	lists                  lists
	lastID                 atomic.Int64
	lastToken              atomic.Int64
	dispatched             atomic.Int64  // places taken under the in-flight cap
	shed                   atomic.Int64  // messages dropped at the cap
	cacheHits, cacheMisses atomic.Uint64 // lists from the cache, and others
	forbidden              atomic.Int64  // requests of modern servers, which may not send any
	replies                atomic.Int64  // refusals on their way

	subs      subscriptions
	questions taskQuestions

	streamMu sync.Mutex // guards the following
	byID     map[jsonrpc.ID]*callStream
	byToken  map[jsonrpc.ID]*callStream

	lifetime context.Context //nolint:containedctx // bounds background work; ends with Close
	end      context.CancelFunc
	wg       sync.WaitGroup // every goroutine of the client

	mu       sync.Mutex // guards the following; never held during I/O or callbacks
	started  bool
	closed   bool
	status   Status
	session  *session              // the live connection, nil while there is none
	open     map[*session]struct{} // connections not yet closed: the live one, and retired ones in use
	attempt  *attempt              // the connection attempt under way, nil when there is none
	failures int                   // failed attempts since the last connection
	replaced time.Time             // when a connection that ended was last replaced at once
	pace     *backoff.ExponentialBackOff
	timer    *time.Timer // starts the next attempt
	gaveUp   bool        // Reconnect.MaxAttempts was reached
	roots    []Root
	verdict  Era      // what the last probe found; EraUnknown = probe again
	events   []Status // state changes not yet told to OnState
	telling  bool     // a goroutine is draining events

	farewells int           // cancellations on their way
	silence   chan struct{} // closed when there are none any more; nil while nobody waits
}

// attempt is one connection attempt that any number of callers may wait for.
type attempt struct {
	done chan struct{} // closed once session or err is set
	err  error
	ctx  context.Context //nolint:containedctx // what OnConnect returned, nil before; guarded by Client.mu
}

// New checks the options and returns a client that is not yet connected. It
// does no I/O. The transport must not be shared with another client.
func New(t transport.Transport, opts Options) (*Client, error) {
	if t == nil {
		return nil, errors.New("mcpclient: the transport is nil")
	}
	if err := opts.prepare(t.Name()); err != nil {
		return nil, err
	}
	info, err := json.Marshal(opts.Info)
	if err != nil {
		return nil, errors.Join(errors.New("mcpclient: Info cannot be encoded"), err)
	}
	c := &Client{
		transport: t, opts: opts, log: opts.Logger.With("client", opts.Key), info: info, roots: opts.Roots,
		open: map[*session]struct{}{}, byID: map[jsonrpc.ID]*callStream{}, byToken: map[jsonrpc.ID]*callStream{},
	}
	c.capabilities = c.declare()
	c.endpoint = endpoint(t)
	c.invoke = c.send
	for _, interceptor := range slices.Backward(opts.Interceptors) {
		next := c.invoke
		c.invoke = func(ctx context.Context, call *Call) (*Result, error) { return interceptor(ctx, call, next) }
	}
	c.pace = backoff.NewExponentialBackOff()
	c.pace.InitialInterval = opts.Reconnect.Interval
	c.pace.MaxInterval = opts.Reconnect.MaxInterval
	c.pace.Multiplier = opts.Reconnect.Multiplier
	c.pace.RandomizationFactor = 0.1
	c.pace.Reset()
	c.lifetime, c.end = context.WithCancel(context.Background())
	c.status.Since = time.Now()
	c.lists.init(opts.Cache)
	return c, nil
}

// endpoint is the host and port of a server behind a network.
func endpoint(t transport.Transport) string {
	address := ""
	switch t := t.(type) {
	case *transport.HTTP:
		address = t.URL
	case *transport.SSE:
		address = t.URL
	case *transport.Socket:
		return t.Address
	}
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// Start begins connecting in the background and keeps the client connected
// until Close. With Options.Lazy it does nothing: the first call connects.
// Calling it again has no effect.
func (c *Client) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.closed || c.opts.Lazy { // a lazy client connects at its first call
		return
	}
	c.started = true
	if c.session == nil && c.attempt == nil {
		c.startAttemptLocked()
	}
}

// Connect waits until the client is connected, connecting if need be. When ctx
// ends first the wait is over, the attempt goes on.
func (c *Client) Connect(ctx context.Context) error {
	s, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	c.release(s)
	return nil
}

// Status returns a snapshot.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Close ends the client: cancellations of earlier calls that are on their way
// get a second, calls in flight fail with KindClosed, the session and the child
// process are ended, and every goroutine is waited for until ctx ends. A second
// call waits for the first.
func (c *Client) Close(ctx context.Context) error {
	c.awaitFarewells(ctx)
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	if s := c.session; s != nil {
		c.sessionEndedLocked(s, nil)
	}
	c.retireLocked()
	open := slices.Collect(maps.Keys(c.open))
	clear(c.open)
	if first {
		c.stopTimerLocked()
		c.setStateLocked(StateClosed, nil)
	}
	c.mu.Unlock()
	c.end()
	var closing sync.WaitGroup
	errs := make([]error, len(open))
	for i, s := range open {
		closing.Go(func() { errs[i] = s.conn.Close(ctx) })
	}
	closing.Wait()
	err := errors.Join(errs...)
	if limit := c.opts.Reconnect.StopTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	done := make(chan struct{})
	go func() { c.wg.Wait(); close(done) }() // ends when the last goroutine does
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return errors.Join(err, &Error{Kind: KindTimeout, Message: "closing did not finish in time", Err: ctx.Err()})
	}
}

// goLocked starts a goroutine that Close waits for; false when the client is
// closed.
func (c *Client) goLocked(f func()) bool {
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// background is goLocked for callers that do not hold the lock.
func (c *Client) background(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goLocked(f)
}

// farewell has a cancellation sent behind the caller's back, within
// cancelBudget. ctx has its values.
func (c *Client) farewell(ctx context.Context, send func(context.Context)) {
	values := context.WithoutCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	started := c.goLocked(func() {
		defer c.endFarewell()
		ctx, cancel := context.WithTimeout(values, cancelBudget)
		defer cancel()
		defer context.AfterFunc(c.lifetime, cancel)()
		send(ctx)
	})
	if started {
		c.farewells++
	}
}

func (c *Client) endFarewell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.farewells--; c.farewells == 0 && c.silence != nil {
		close(c.silence)
		c.silence = nil
	}
}

// awaitFarewells gives cancellations that are on their way a moment.
func (c *Client) awaitFarewells(ctx context.Context) {
	c.mu.Lock()
	if c.farewells == 0 {
		c.mu.Unlock()
		return
	}
	if c.silence == nil {
		c.silence = make(chan struct{})
	}
	silence := c.silence
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, farewellGrace)
	defer cancel()
	select {
	case <-silence:
	case <-ctx.Done():
	}
}

// setStateLocked records a state change and has OnState told of it, in order.
func (c *Client) setStateLocked(state State, cause error) {
	c.status.LastError = cause
	if c.status.State != state {
		c.status.Since = time.Now()
	}
	c.status.State = state
	if c.opts.OnState == nil {
		return
	}
	c.events = append(c.events, c.status)
	if c.telling {
		return
	}
	c.telling = true
	c.wg.Go(c.tell) // also while closing: the last change must be told, and Close waits after it
}

// tell delivers state changes until none is left.
func (c *Client) tell() {
	for {
		c.mu.Lock()
		if len(c.events) == 0 {
			c.telling = false
			c.mu.Unlock()
			return
		}
		status := c.events[0]
		c.events = c.events[1:]
		c.mu.Unlock()
		c.opts.OnState(status)
	}
}
