package server

import (
	"container/list"
	"math"
	"slices"
	"sync"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// Bounds of what waits for a caller who reads slowly. What does not fit alone
// does not fit into the 4 MiB either that clients commonly accept, where it
// would end the stream.
const (
	maxWaitingLogs     = 256
	maxWaitingLogBytes = 1 << 20
	maxProgressText    = 64 << 10 // of one message; it is cut
)

// event is one thing that happens while a call runs; exactly one of the first
// four fields is set.
type event struct {
	progress  *mcpclient.Progress
	log       *mcpclient.LogMessage
	question  *question
	withdrawn string // id of a question

	dropped uint32 // log messages that were left out before log
}

// feed is what a call has to tell and its caller has not taken yet, in the
// order in which it happened. It never blocks who fills it and is bounded: of
// progress only the newest waits, of log messages the newest ones.
type feed struct {
	least severity      // of log messages; 0 = none are wanted
	woken chan struct{} // holds a token when there may be something to take

	mu       sync.Mutex // protects the fields below
	queue    list.List  // of event, oldest first
	progress *list.Element
	logs     int
	logBytes int
	dropped  int64 // log messages, since the last one that was taken
}

func newFeed(least severity) *feed { return &feed{least: least, woken: make(chan struct{}, 1)} }

func (f *feed) addProgress(p mcpclient.Progress) {
	p.Message = cut(p.Message, maxProgressText)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.progress != nil {
		f.queue.Remove(f.progress)
	}
	f.progress = f.queue.PushBack(event{progress: &p})
	notify(f.woken)
}

// addLog keeps a message that is severe enough, or whose severity is unknown.
func (f *feed) addLog(m mcpclient.LogMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of := severityOf(m.Level); f.least == 0 || of != 0 && of < f.least {
		f.dropped += m.Shed
		return
	}
	if logSize(&m) > maxWaitingLogBytes {
		f.dropped += 1 + m.Shed
		return
	}
	f.queue.PushBack(event{log: &m})
	f.logs++
	f.logBytes += logSize(&m)
	for e := f.queue.Front(); f.logs > maxWaitingLogs || f.logBytes > maxWaitingLogBytes; {
		next := e.Next()
		if old := eventOf(e); old.log != nil {
			f.removeLog(e, old.log)
			f.dropped += 1 + old.log.Shed
		}
		e = next
	}
	notify(f.woken)
}

func (f *feed) removeLog(e *list.Element, m *mcpclient.LogMessage) {
	f.queue.Remove(e)
	f.logs--
	f.logBytes -= logSize(m)
}

func logSize(m *mcpclient.LogMessage) int { return len(m.Level) + len(m.Logger) + len(m.Data) }

// ask adds a question.
func (f *feed) ask(q *question) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue.PushBack(event{question: q})
	notify(f.woken)
}

// withdraw takes a question back. The caller never hears of one that still
// waits.
func (f *feed) withdraw(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := f.queue.Front(); e != nil; e = e.Next() {
		if q := eventOf(e).question; q != nil && q.id == id {
			f.queue.Remove(e)
			return
		}
	}
	f.queue.PushBack(event{withdrawn: id})
	notify(f.woken)
}

// take returns the oldest event; false when there is none.
func (f *feed) take() (event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.queue.Front()
	if e == nil {
		return event{}, false
	}
	out := eventOf(e)
	switch {
	case out.log != nil:
		f.removeLog(e, out.log)
		out.dropped, f.dropped = uint32(min(f.dropped+out.log.Shed, math.MaxUint32)), 0 //nolint:gosec // in range
		return out, true
	case out.progress != nil:
		f.progress = nil
	}
	f.queue.Remove(e)
	return out, true
}

func eventOf(e *list.Element) event {
	out, _ := e.Value.(event)
	return out
}

// severity orders log levels as MCP and pb.LogLevel do; 0 = unknown.
type severity int

var severities = []mcpclient.LogLevel{
	mcpclient.LogDebug, mcpclient.LogInfo, mcpclient.LogNotice, mcpclient.LogWarning,
	mcpclient.LogError, mcpclient.LogCritical, mcpclient.LogAlert, mcpclient.LogEmergency,
}

func severityOf(level mcpclient.LogLevel) severity {
	return severity(slices.Index(severities, level) + 1)
}

// level is the severity's name; "" for 0.
func (s severity) level() mcpclient.LogLevel {
	if s <= 0 || int(s) > len(severities) {
		return ""
	}
	return severities[s-1]
}
