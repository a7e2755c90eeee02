package targets

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// AcquireInteractive leases a client for one call whose caller answers the
// server's questions as far as declared says; its extensions do not matter here.
// The client is connected, or an earlier call waits for the same connection.
//
// A modern server is told of the capabilities with the call, so any connection
// will do. A legacy one is told when the connection is made, and its questions
// name no call: it gets a connection that declares them and carries this call
// alone, unless nothing is declared. ctx bounds the wait for the connection that
// tells the era. Errors are those of [Target.Acquire] and of
// [mcpclient.Client.Connect].
func (t *Target) AcquireInteractive(ctx context.Context, who Caller, declared mcpclient.Capabilities) (*pool.Lease, error) {
	profile := profileOf(declared)
	apart := func(key pool.Key) pool.Request {
		key.Profile = profile
		return pool.Request{Key: key, Exclusive: true}
	}
	if profile != "" && t.Isolation() == PerCall && t.legacy() { // a connection for nothing but the era would cost a session, or a process
		return t.acquire(ctx, who, apart)
	}
	lease, err := t.Acquire(ctx, who)
	if err != nil {
		return nil, err
	}
	if err := lease.Client().Connect(ctx); err != nil {
		lease.Release()
		return nil, err
	}
	if server := lease.Client().Status().Server; profile == "" || server == nil || server.Era != mcpclient.EraLegacy {
		return lease, nil
	}
	lease.Release()
	return t.acquire(ctx, who, apart)
}

// legacy reports whether the server is known to be of an older revision.
func (t *Target) legacy() bool {
	server := t.pool.Status().Server
	return server != nil && server.Era == mcpclient.EraLegacy
}

// acquire leases a client as request says for the caller's key. A call that
// meets a target at the moment of its replacement gets the new one.
func (t *Target) acquire(ctx context.Context, who Caller, request func(pool.Key) pool.Request) (*pool.Lease, error) {
	for {
		t.want()
		key, err := keyOf(t.Isolation(), who)
		if err != nil {
			return nil, err
		}
		lease, err := t.pool.Acquire(ctx, request(key))
		if err == nil {
			return lease, nil
		}
		next := t.next.Load()
		if e, ok := errors.AsType[*mcpclient.Error](err); next == nil || !ok || e.Kind != mcpclient.KindClosed {
			return nil, err
		}
		t = next
	}
}

// Roots are the configured ones.
func (t *Target) Roots() []mcpclient.Root { return rootsOf(t.config) }

// TaskPollInterval is the wait between polls of a task whose server names none.
func (t *Target) TaskPollInterval() time.Duration { return t.config.Tasks.PollInterval }

// capabilityWords are the parts of a profile, in its order, and where they are
// kept.
func capabilityWords(c *mcpclient.Capabilities) ([]string, []*bool) {
	return []string{"elicitation.form", "elicitation.url", "roots", "sampling", "sampling.context", "sampling.tools"},
		[]*bool{&c.ElicitationForm, &c.ElicitationURL, &c.Roots, &c.Sampling, &c.SamplingContext, &c.SamplingTools}
}

// profileOf writes down what a connection has to declare, the same text for the
// same capabilities; "" for none.
func profileOf(c mcpclient.Capabilities) string {
	c.Sampling = c.Sampling || c.SamplingContext || c.SamplingTools
	words, on := capabilityWords(&c)
	var declared []string
	for i, word := range words {
		if *on[i] {
			declared = append(declared, word)
		}
	}
	return strings.Join(declared, " ")
}

// capabilitiesOf is the reverse of profileOf.
func capabilitiesOf(profile string) mcpclient.Capabilities {
	var c mcpclient.Capabilities
	words, on := capabilityWords(&c)
	for word := range strings.FieldsSeq(profile) {
		if i := slices.Index(words, word); i >= 0 {
			*on[i] = true
		}
	}
	return c
}
