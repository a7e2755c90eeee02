package mcpclient

import "time"

// Stat is a snapshot of what a [Client] has counted so far.
type Stat struct {
	Connects    uint64 // connections made
	Reconnects  uint64 // of these, those that replaced an earlier one
	CacheHits   uint64 // lists that came from the cache
	CacheMisses uint64 // lists that had to be asked for
	Shed        uint64 // messages of the server dropped at Dispatch.MaxInFlight
}

// Add returns the sums of both.
func (s Stat) Add(o Stat) Stat {
	return Stat{
		Connects: s.Connects + o.Connects, Reconnects: s.Reconnects + o.Reconnects,
		CacheHits: s.CacheHits + o.CacheHits, CacheMisses: s.CacheMisses + o.CacheMisses, Shed: s.Shed + o.Shed,
	}
}

// Stat returns a snapshot.
func (c *Client) Stat() Stat {
	s := Stat{
		Connects:  uint64(max(c.Status().Connects, 0)),
		CacheHits: c.cacheHits.Load(), CacheMisses: c.cacheMisses.Load(),
		Shed: uint64(max(c.shed.Load(), 0)),
	}
	if s.Connects > 1 {
		s.Reconnects = s.Connects - 1
	}
	return s
}

// SessionEnd is what is told of a connection that no longer serves.
type SessionEnd struct {
	// Era and ProtocolVersion are what it spoke, Transport and Endpoint as in
	// [Call].
	Era             Era
	ProtocolVersion string
	Transport       string
	Endpoint        string
	// Duration is how long it served.
	Duration time.Duration
	// Err is why it was given up; nil when the client was closed.
	Err error
}

// sessionEndedLocked tells of the end of the live connection.
func (c *Client) sessionEndedLocked(s *session, cause error) {
	f := c.opts.OnSessionEnd
	if f == nil {
		return
	}
	end := SessionEnd{
		Era: s.era, ProtocolVersion: s.version, Transport: c.transport.Name(), Endpoint: c.endpoint,
		Duration: time.Since(s.since), Err: cause,
	}
	c.wg.Go(func() { c.guard("OnSessionEnd", func() { f(end) }) }) // also while closing, which waits for it
}

// Relist has the client read the tools or prompts of its server anew, in the
// background, if that is what the call is about and nothing does so already.
// What comes of it is told to Options.OnList.
func (c *Call) Relist() {
	client := c.client
	var list *listCache
	switch {
	case client == nil:
	case c.Method == methodCallTool:
		list = &client.lists.tools
	case c.Method == methodGetPrompt:
		list = &client.lists.prompts
	}
	if list == nil {
		return
	}
	client.background(func() { _, _ = list.join(client.lifetime, client) }) // a failure is noted with the list
}
