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
	began map[jsonrpc.ID]time.Time
}

// add notes a call until the returned function is called.
func (c *calls) add(id jsonrpc.ID) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began == nil {
		c.began = map[jsonrpc.ID]time.Time{}
	}
	c.began[id] = time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.began, id)
	}
}

// since reports whether a call is under way that began before t.
func (c *calls) since(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, began := range c.began {
		if began.Before(t) {
			return true
		}
	}
	return false
}
