package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Methods of log entries that are not JSON-RPC methods.
const (
	MethodResponse = "$response" // the client's answer to a request of the server
	MethodGet      = "GET"       // HTTP GET: the legacy stream, or a resumption
	MethodDelete   = "DELETE"    // HTTP DELETE of a legacy session
	MethodAborted  = "$aborted"  // the client closed a request's HTTP exchange before its answer
	MethodOpened   = "$opened"   // a stdio connection began
	MethodEOF      = "$eof"      // a stdio connection's input ended
	MethodInvalid  = "$invalid"  // something that is no JSON-RPC message
)

// Entry is one thing that reached the server.
type Entry struct {
	Seq     int             `json:"seq"` // counts from 1
	Time    time.Time       `json:"time"`
	Method  string          `json:"method"`
	ID      string          `json:"id,omitempty"` // the id's JSON token, "" when there is none
	Raw     json.RawMessage `json:"raw,omitempty"`
	Header  http.Header     `json:"header,omitempty"`  // nil on stdio
	Session string          `json:"session,omitempty"` // legacy HTTP session id sent with it
}

// Params returns the params object of the message.
func (e Entry) Params() json.RawMessage { return member(e.Raw, "params") }

// Meta returns one member of params._meta; nil when it is absent.
func (e Entry) Meta(key string) json.RawMessage { return member(member(e.Params(), "_meta"), key) }

// Log records what reached a server and what was wrong with it. The zero value
// is ready; all methods may be called at any time.
type Log struct {
	mu         sync.Mutex // protects the fields below
	entries    []Entry
	violations []string
	counts     map[string]int
	changed    chan struct{} // closed and replaced at every entry
	mirror     func(record)  // a child's copy to its parent
	off        bool
}

// record is one line of a child's log on its way to the parent.
type record struct {
	Entry     *Entry `json:"entry,omitempty"`
	Violation string `json:"violation,omitempty"`
}

// Transcript returns a copy of all entries, in order of arrival.
func (l *Log) Transcript() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// Entries returns the entries of one method, in order.
func (l *Log) Entries(method string) []Entry {
	return slices.DeleteFunc(l.Transcript(), func(e Entry) bool { return e.Method != method })
}

// Methods returns the methods of all entries, in order.
func (l *Log) Methods() []string {
	entries := l.Transcript()
	methods := make([]string, len(entries))
	for i, e := range entries {
		methods[i] = e.Method
	}
	return methods
}

// Count returns how many entries of a method there are.
func (l *Log) Count(method string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[method]
}

// WaitFor waits until method arrived n times and returns the nth entry.
func (l *Log) WaitFor(ctx context.Context, method string, n int) (Entry, error) {
	return l.WaitUntil(ctx, fmt.Sprintf("%s to arrive %d times", method, n), func(entries []Entry) (Entry, bool) {
		seen := 0
		for _, e := range entries {
			if e.Method == method {
				if seen++; seen == n {
					return e, true
				}
			}
		}
		return Entry{}, false
	})
}

// WaitUntil waits until find is content with the entries so far. what names
// the event in the error. find is called with the log locked.
func (l *Log) WaitUntil(ctx context.Context, what string, find func([]Entry) (Entry, bool)) (Entry, error) {
	for {
		l.mu.Lock()
		entry, ok := find(l.entries)
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		if ok {
			return entry, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("waiting for %s, got [%s]: %w", what, strings.Join(l.Methods(), " "), context.Cause(ctx))
		}
	}
}

// Violations returns what the client did against the specification.
func (l *Log) Violations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.violations)
}

// ForgiveViolations returns the violations so far and forgets them, for tests
// that provoke one.
func (l *Log) ForgiveViolations() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.violations
	l.violations = nil
	return v
}

func (l *Log) add(e Entry) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[e.Method]++
	if !l.off {
		e.Seq = len(l.entries) + 1
		if e.Time.IsZero() {
			e.Time = time.Now()
		}
		l.entries = append(l.entries, e)
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	if l.mirror != nil {
		l.mirror(record{Entry: &e})
	}
	return l.counts[e.Method]
}

func (l *Log) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.violations = append(l.violations, text)
	if l.mirror != nil {
		l.mirror(record{Violation: text})
	}
}
