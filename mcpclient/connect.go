package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// connect makes one connection: it dials, finds out the era unless it is
// pinned or known, and negotiates (2026-07-28 basic/versioning, Backward
// Compatibility; 2025-11-25 basic/lifecycle, Initialization).
func (c *Client) connect(ctx context.Context, a *attempt) (s *session, err error) {
	if gate := c.opts.ConnectGate; gate != nil {
		done, refused := gate(ctx)
		if refused != nil {
			return nil, refusedByGate(ctx, refused)
		}
		defer func() { done(err) }()
	}
	ctx, observed := c.observeConnect(ctx, a)
	defer func() { observed(s, err) }()
	if limit := c.opts.Version.Timeout; limit > 0 && !c.opts.Version.SeparateBudgets {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &ownTimeout{limit: limit, setting: "timeouts.initialize"})
		defer cancel()
	}
	n := &negotiation{c: c}
	if s, err = n.run(ctx); err != nil {
		n.close()
		return nil, err
	}
	n.link.session.Store(s)
	s.link, s.replaced, s.since = n.link, make(chan struct{}), time.Now()
	s.link.heard.Store(s.since.UnixNano())
	s.conn.Ready(transport.Negotiated{Modern: s.era == EraModern, Version: s.version})
	return s, nil
}

// refusedByGate is an attempt that was not made, which is no failure of the
// server.
func refusedByGate(ctx context.Context, cause error) error {
	refusal := contextError(ctx, "the connection attempt did not get its turn before")
	if e, ok := errors.AsType[*Error](cause); ok && ctx.Err() == nil {
		copied := *e
		refusal = &copied
	}
	refusal.gated = true
	return refusal
}

// negotiation is one connection attempt. A connection may be replaced on the
// way: some servers end on an unknown first method, others cannot go back to a
// handshake once they were asked server/discover.
type negotiation struct {
	c    *Client
	conn transport.Conn
	link *link // conn's inbound side
}

func (n *negotiation) run(ctx context.Context) (*session, error) {
	if err := n.dial(ctx); err != nil {
		return nil, err
	}
	switch pin := n.c.opts.Version.Pin; EraOf(pin) {
	case EraModern:
		return n.pinnedModern(ctx, pin)
	case EraLegacy:
		return n.initialize(ctx, pin)
	case EraUnknown:
	}
	if n.c.knownEra() == EraLegacy {
		s, err := n.initialize(ctx, n.c.advertised())
		if err != nil {
			n.c.setKnownEra(EraUnknown) // the verdict stopped working: probe next time
		}
		return s, err
	}
	if n.c.knownEra() == EraModern { // no hurry: silence is no answer any more
		found, err := n.discover(ctx, modernVersions[0])
		s, err := n.decide(ctx, probe{found, err})
		if err != nil {
			n.c.setKnownEra(EraUnknown)
			return nil, err
		}
		n.c.setKnownEra(s.era)
		return s, nil
	}
	s, err := n.detect(ctx)
	if err == nil {
		n.c.setKnownEra(s.era)
	}
	return s, err
}

// dial opens the connection, replacing an earlier one.
func (n *negotiation) dial(ctx context.Context) error {
	n.close()
	l := n.c.newLink()
	conn, err := n.c.transport.Dial(ctx, func(in transport.Inbound) { n.c.receive(l, in) })
	if err != nil {
		return n.c.classify(ctx, &Call{Method: "connect"}, err)
	}
	l.conn = conn
	close(l.dialed)
	n.conn, n.link = conn, l
	return nil
}

func (n *negotiation) close() {
	if n.conn != nil {
		_ = n.conn.Close(n.c.lifetime)
		n.conn = nil
	}
}

// redial replaces the connection where a server's process keeps state between
// requests; HTTP requests stand alone.
func (n *negotiation) redial(ctx context.Context) error {
	if n.conn.PerRequestStreams() {
		return nil
	}
	return n.dial(ctx)
}

func (n *negotiation) pinnedModern(ctx context.Context, pin string) (*session, error) {
	found, err := n.discover(ctx, pin)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Kind == KindRPC && e.Status != 401 && e.Status != 403 && e.RPC.Code != CodeCapabilityRequired && e.RPC.Code != CodeHeaderMismatch {
			return nil, versionError(pin, supportedIn(e.RPC.Data), err)
		}
		return nil, err
	}
	if found.version != pin {
		return nil, versionError(pin, found.SupportedVersions, nil)
	}
	return n.modern(found), nil
}

// probe is a server/discover under way.
type probe struct {
	found discovery
	err   error
}

// modern reports whether the server answered that it speaks our modern version.
func (p probe) modern() bool { return p.err == nil && p.found.version != "" }

// detect finds out the era by asking server/discover and reading what comes
// back, or does not.
func (n *negotiation) detect(ctx context.Context) (*session, error) {
	ask := modernVersions[0]
	probed := make(chan probe, 1)
	probing, stop := context.WithCancel(ctx)
	defer stop()
	conn := n.conn
	if !n.c.background(func() {
		found, err := n.discoverOn(probing, conn, ask)
		probed <- probe{found, err}
	}) {
		return nil, errClosed()
	}
	wait := n.detectTimeout(ctx)
	var silence <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		silence = timer.C
	}
	select {
	case p := <-probed:
		return n.decide(ctx, p)
	case <-silence:
	}
	if n.c.opts.Version.FailOnSilence && n.conn.PerRequestStreams() {
		return nil, &Error{Kind: KindTimeout, Method: methodDiscover, Sent: true, Message: fmt.Sprintf("the server left server/discover unanswered for %v; pin the protocol version, or allow the fallback", wait)}
	}
	n.c.log.WarnContext(ctx, "the server left the era probe unanswered and is taken for a legacy one; "+
		"if it is modern, raise the detect timeout or pin the protocol version", "waited", wait)
	return n.initializeUnlessProbeAnswers(ctx, probed)
}

// initializeUnlessProbeAnswers falls back after silence, but a late answer to
// the probe still wins: a modern server that boots slowly answers it first
// (csharp-sdk#1701).
func (n *negotiation) initializeUnlessProbeAnswers(ctx context.Context, probed <-chan probe) (*session, error) {
	type outcome struct {
		s   *session
		err error
	}
	initialized := make(chan outcome, 1)
	trying, stop := context.WithCancel(ctx)
	defer stop()
	if !n.c.background(func() {
		s, err := n.initialize(trying, n.c.advertised())
		initialized <- outcome{s, err}
	}) {
		return nil, errClosed()
	}
	for {
		select {
		case o := <-initialized:
			if o.err != nil && probed != nil && n.answersYet(ctx, probed) {
				// a server that had just understood the probe refuses a handshake
				return n.modernAfterAll(ctx)
			}
			return n.settle(ctx, o.s, o.err)
		case p := <-probed:
			if p.modern() {
				n.c.setKnownEra(EraModern) // for the next attempt, should this one run out of time
				stop()
				<-initialized
				return n.modernAfterAll(ctx)
			}
			probed = nil // it says nothing new; the handshake decides
		}
	}
}

// answersYet waits a moment for the probe, whose answer may be on its way behind
// a refused handshake.
func (n *negotiation) answersYet(ctx context.Context, probed <-chan probe) bool {
	const moment = time.Second
	timer := time.NewTimer(moment)
	defer timer.Stop()
	select {
	case p := <-probed:
		return p.modern()
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// settle reads the outcome of a handshake that followed an unanswered probe.
func (n *negotiation) settle(ctx context.Context, s *session, err error) (*session, error) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return s, err
	}
	if ctx.Err() == nil && e.RPC != nil && bestMutual(modernVersions, supportedIn(e.RPC.Data)) != "" {
		return n.modernAfterAll(ctx)
	}
	both := *e
	if both.Message == "" && both.RPC != nil {
		both.Message = refusal(&both)
	}
	both.Message += "; before that it left server/discover unanswered"
	return nil, &both
}

// modernAfterAll asks again on a connection that has seen no handshake.
func (n *negotiation) modernAfterAll(ctx context.Context) (*session, error) {
	if err := n.redial(ctx); err != nil {
		return nil, err
	}
	found, err := n.discover(ctx, modernVersions[0])
	if err != nil {
		return nil, err
	}
	if found.version == "" {
		return nil, versionError("", found.SupportedVersions, nil)
	}
	return n.modern(found), nil
}

// decide reads the outcome of the probe.
func (n *negotiation) decide(ctx context.Context, p probe) (*session, error) {
	if p.err == nil {
		if p.found.version != "" {
			return n.modern(p.found), nil
		}
		// the server answers discover but does not speak our modern versions
		best := bestMutual(legacyVersions, p.found.SupportedVersions)
		if best == "" && len(p.found.SupportedVersions) > 0 {
			return nil, versionError("", p.found.SupportedVersions, nil)
		}
		return n.fallback(ctx, best)
	}
	e, ok := errors.AsType[*Error](p.err)
	if !ok || ctx.Err() != nil {
		return nil, p.err
	}
	switch e.Kind {
	case KindRPC:
		return n.decideError(ctx, e)
	case KindHTTP:
		if e.Status >= 400 && e.Status < 500 {
			return n.initialize(ctx, n.c.advertised())
		}
		return nil, p.err // 5xx is no verdict
	case KindLost, KindUnavailable:
		if n.conn.PerRequestStreams() {
			return nil, p.err // a network error is no verdict
		}
		// the process ended on a method it does not know (go-sdk#1177)
		return n.fallback(ctx, "")
	default:
		return nil, p.err
	}
}

func (n *negotiation) decideError(ctx context.Context, e *Error) (*session, error) {
	switch e.RPC.Code {
	case CodeCapabilityRequired, CodeHeaderMismatch:
		return nil, e // a modern server rejecting us
	case CodeUnsupportedVersion:
		supported := supportedIn(e.RPC.Data)
		if v := bestMutual(modernVersions, supported); v != "" {
			found, err := n.discover(ctx, v)
			if err != nil {
				return nil, err
			}
			if found.version == "" {
				return nil, versionError("", found.SupportedVersions, nil)
			}
			return n.modern(found), nil
		}
		if v := bestMutual(legacyVersions, supported); v != "" {
			return n.fallback(ctx, v)
		}
		return nil, versionError("", supported, e)
	}
	return n.initialize(ctx, n.c.advertised())
}

// fallback opens a legacy session on a connection that has seen no probe.
func (n *negotiation) fallback(ctx context.Context, version string) (*session, error) {
	if version == "" {
		version = n.c.advertised()
	}
	if err := n.redial(ctx); err != nil {
		return nil, err
	}
	return n.initialize(ctx, version)
}

// detectTimeout is the time for the probe; half of what is left stays for the
// handshake that may have to follow.
func (n *negotiation) detectTimeout(ctx context.Context) time.Duration {
	wait := n.c.opts.Version.DetectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		half := time.Until(deadline) / 2
		if wait < 0 || half < wait {
			wait = max(half, time.Millisecond)
		}
	}
	return wait
}

// advertised is the legacy version that a handshake asks for.
func (c *Client) advertised() string {
	if v := c.opts.Version.Advertise; v != "" {
		return v
	}
	return legacyVersions[0]
}

func (c *Client) knownEra() Era {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verdict
}

func (c *Client) setKnownEra(era Era) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdict = era
}

// supportedIn reads data.supported of an UnsupportedProtocolVersionError.
func supportedIn(data []byte) []string {
	var d struct {
		Supported []string `json:"supported"`
	}
	if len(data) == 0 || json.Unmarshal(data, &d, jsonOptions) != nil {
		return nil
	}
	return d.Supported
}

func versionError(pin string, supported []string, cause error) error {
	text := "the server speaks no protocol version that this client speaks"
	if pin != "" {
		text = fmt.Sprintf("the server does not offer the pinned protocol version %s; unpin it to allow another one", pin)
	}
	switch {
	case len(supported) > 0:
		text += fmt.Sprintf(" (the server lists %v)", slices.Clip(supported[:min(len(supported), 8)]))
	case pin != "":
		text += " (the server did not say which versions it speaks)"
	}
	return &Error{Kind: KindVersion, Message: text, Err: cause}
}
