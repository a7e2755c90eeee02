package mcpclient

import (
	"sync"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// calls are the requests under way on one connection. A server that does one
// thing at a time leaves probes unanswered while it works on a call, and such a
// call has a timeout of its own to end it.
type calls struct {
	mu    sync.Mutex
	under map[jsonrpc.ID]underWay
}

// underWay is one request that waits for its answer.
type underWay struct {
	began  time.Time
	dialog *dialog // nil = its caller answers no questions
}

// add notes a call until it is removed; d may be nil.
func (c *calls) add(id jsonrpc.ID, d *dialog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under == nil {
		c.under = map[jsonrpc.ID]underWay{}
	}
	c.under[id] = underWay{time.Now(), d}
}

func (c *calls) remove(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.under, id)
}

// excuse reports whether a call that began before t may be why a probe failed.
// The time of a call whose question waits for the caller stands still, so it
// excuses silence alone, which is what a server that waits for us may well keep;
// that a server cannot be reached has nothing to do with it. Such an excuse lasts
// as long as the caller waits, then as long as the call has time left.
func (c *calls) excuse(t time.Time, silence bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.under {
		if call.began.Before(t) && (silence || call.dialog == nil || !call.dialog.waiting()) {
			return true
		}
	}
	return false
}
