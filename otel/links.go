package bridgeotel

import (
	"hash/maphash"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// trailKey is where the first span of an operation is kept in its Trail.
type trailKey struct{}

// link links the span of a request to the first one of the same operation (a
// retry, a round of questions, a poll of a task), or else to what an earlier call
// left behind that this one goes on with.
func (t *Target) link(span trace.Span, call *mcpclient.Call) {
	if call.Trail == nil {
		return
	}
	kept, later := call.Trail.LoadOrStore(trailKey{}, span)
	if first, ok := kept.(trace.Span); later && ok {
		span.AddLink(trace.Link{SpanContext: first.SpanContext()})
		return
	}
	kind, id := "", ""
	switch call.Method {
	case methodGetTask, methodUpdateTask, methodCancelTask:
		kind, id = mcpclient.ResultTask, call.Name
	default:
		if state := call.RequestState(); state != nil {
			kind, id = mcpclient.ResultInputRequired, *state
		}
	}
	if kind == "" {
		return
	}
	if earlier, ok := t.earlier.find(kind, id); ok {
		span.AddLink(trace.Link{SpanContext: earlier})
	}
}

// remember keeps the span whose result another call may go on with.
func (t *Target) remember(span trace.Span, result *mcpclient.Result) {
	if result == nil {
		return
	}
	member := ""
	switch result.Type {
	case mcpclient.ResultInputRequired:
		member = "requestState"
	case mcpclient.ResultTask:
		member = "taskId"
	default:
		return
	}
	if id, ok := result.Text(member); ok {
		t.earlier.add(result.Type, id, span.SpanContext())
	}
}

// maxEarlier is how many spans are remembered for calls that go on with them.
const maxEarlier = 4096

// earlier remembers, for as long as there is room, the spans of results that
// another call goes on with: request states and tasks. A call that goes on at
// another replica of the bridge finds nothing.
type earlier struct {
	seed maphash.Seed

	mu    sync.Mutex // guards the following
	spans map[uint64]trace.SpanContext
	order []uint64 // keys in spans, a ring once it is full
	next  int      // the oldest in a full ring
}

func newEarlier() *earlier {
	return &earlier{seed: maphash.MakeSeed(), spans: map[uint64]trace.SpanContext{}}
}

// key is a hash: states may be large, and a false link would do little harm.
func (e *earlier) key(kind, id string) uint64 {
	return maphash.String(e.seed, kind+"\x00"+id)
}

// add keeps which span it was, without a trace state, which is for callers to
// fill.
func (e *earlier) add(kind, id string, sc trace.SpanContext) {
	sc = trace.NewSpanContext(trace.SpanContextConfig{TraceID: sc.TraceID(), SpanID: sc.SpanID(), TraceFlags: sc.TraceFlags()})
	key := e.key(kind, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.spans[key]; known {
		e.spans[key] = sc
		return
	}
	e.spans[key] = sc
	if len(e.order) < maxEarlier {
		e.order = append(e.order, key)
		return
	}
	delete(e.spans, e.order[e.next])
	e.order[e.next] = key
	e.next = (e.next + 1) % maxEarlier
}

func (e *earlier) find(kind, id string) (trace.SpanContext, bool) {
	key := e.key(kind, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	sc, ok := e.spans[key]
	return sc, ok
}
