package transport

import (
	"context"
	"net/http"
	"sync/atomic"
)

// Outgoing is what a round tripper from [HTTP.Wrap] may know of a request that
// it is given. It belongs to that request with all its redirects, which come
// one after the other.
type Outgoing struct {
	// Start is true for a request that begins a session with a legacy server:
	// initialize, and the GET that opens the stream of HTTP+SSE.
	Start bool
	// Session is true for whatever follows on such a connection, the GET stream
	// and the DELETE included: only the server that answered the last Start can
	// answer it. Requests of the modern era are neither Start nor Session.
	Session bool
	// Affinity is the round tripper's to fill, with one type of value. All
	// requests of one connection share it, no two connections do.
	Affinity *atomic.Value
	// Value is the round tripper's to use, and kept over redirects.
	Value any
	// Host, when the round tripper sets it, is named in messages instead of the
	// URL's host.
	Host string

	x *exchange
}

// Unsent reports whether a connection for the request was asked for, and surely
// nothing of the request was written. It may be asked once the round tripper
// behind has returned an error; the request can then be sent again.
func (o *Outgoing) Unsent() bool {
	stage := o.x.stage.Load()
	return stage == stageConnecting || stage == stageConnected
}

type outgoingKey struct{}

// OutgoingOf returns what is known of a request of an [HTTP] with a Wrap; nil
// for any other. ctx is the request's.
func OutgoingOf(ctx context.Context) *Outgoing {
	out, _ := ctx.Value(outgoingKey{}).(*Outgoing)
	return out
}

// methodOpen is the method of the exchange that opens the stream of HTTP+SSE.
const methodOpen = "GET"

// outgoing describes the request for the round tripper from Wrap.
func (x *exchange) outgoing(method string) *Outgoing {
	o := &Outgoing{Affinity: &x.conn.affinity, x: x}
	if x.req.Modern {
		return o
	}
	switch method {
	case http.MethodPost:
		o.Start = x.req.Method == "initialize" && !x.conn.bound
	case http.MethodGet: // else it resumes the stream of a request, or is the shared one
		o.Start = x.req.Method == methodOpen
	}
	o.Session = !o.Start
	return o
}
