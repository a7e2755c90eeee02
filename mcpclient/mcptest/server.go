package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Era is which family of protocol revisions a server speaks.
type Era int

const (
	// Modern speaks 2026-07-28: stateless, `_meta` on every request.
	Modern Era = iota
	// Legacy speaks 2025-11-25 and older: initialize and sessions.
	Legacy
	// Dual speaks both on one endpoint.
	Dual
)

// Protocol versions, newest first.
var (
	modernVersions = []string{"2026-07-28"}
	legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
)

// Server is the script of one fake server. The zero value is a correct modern
// server without features. Fields must not change once it serves.
type Server struct {
	Log

	Era Era
	// Versions it supports, newest first; nil = all of its eras.
	Versions []string
	// Name is the server's name; "" = "mcptest".
	Name string
	// Capabilities is the raw ServerCapabilities object; "" = what the fields
	// below amount to, with listChanged and subscribe.
	Capabilities string
	Instructions string

	Tools     []Tool
	Resources []Resource
	Templates []Template
	Prompts   []Prompt
	// Complete answers completion/complete; nil = not offered.
	Complete Handler

	// Discover and Initialize replace the answers to server/discover and
	// initialize; nil = correct ones of the era. See behave.go.
	Discover, Initialize Handler
	// Handle replaces or adds the answer to any method.
	Handle map[string]Handler
	// OnNotification sees each notification of the client, after the server.
	OnNotification func(r *Request)
	// Status intercepts HTTP exchanges before anything is checked: method is
	// the JSON-RPC method, "GET" or "DELETE", n counts it from 1. nil lets the
	// exchange pass.
	Status func(method string, n int) *Reply

	// PageSize splits lists; 0 = one page.
	PageSize int
	// NextCursor replaces the cursor of a list page (page counts from 0; next
	// is "" on the last page); it returns any JSON value, nil = no cursor.
	NextCursor func(method string, page int, next string) any
	// TTLMs and CacheScope go into cacheable modern results; "" = "private".
	TTLMs      int64
	CacheScope string

	// ReplyID rewrites the id of each response; nil leaves it alone. A nil
	// result leaves the id out.
	ReplyID func(id json.RawMessage) json.RawMessage
	// AnswerCancelled answers a cancelled request all the same.
	AnswerCancelled bool

	// ContentType is that of plain JSON answers; "" = application/json.
	ContentType string
	// Accepted answers notifications and responses over HTTP; nil = 202, empty.
	Accepted *Reply
	// PingEvery pings each initialized legacy connection at this interval; 0 =
	// never. The answers are [MethodResponse] entries.
	PingEvery time.Duration

	Session  SessionOptions
	SSE      SSEOptions
	Stdio    StdioOptions
	Auth     AuthOptions
	Redirect RedirectOptions
	OldSSE   OldSSEOptions
	Listen   ListenOptions
	Logging  LoggingOptions
	Lax      LaxOptions
	// Tasks declares the tasks extension and serves tasks/*; see [StartTask].
	Tasks bool
	// LegacyTasks are the tasks of 2025-11-25.
	LegacyTasks LegacyTaskOptions

	// ManyClients permits the same request id in flight twice, as two clients
	// of one modern HTTP endpoint may use it.
	ManyClients bool
	// NoLog keeps counts but no entries, for benchmarks.
	NoLog bool

	once     sync.Once
	ctx      context.Context //nolint:containedctx // the server's own lifetime, ended by Close
	cancel   context.CancelFunc
	work     sync.WaitGroup
	endpoint *conn       // the modern HTTP endpoint
	told     atomic.Bool // the tool list was served at least once

	mu       sync.Mutex // protects the fields below
	closed   bool
	conns    []*conn // legacy sessions and stdio connections that are open
	gone     map[string]bool
	nextSess int
	nextAsk  int
	nextOut  int                // names resumable streams
	streams  map[string]*events // resumable streams by name
	down     bool
	cut      []func() // each ends the HTTP connections of one listener
	subs     []*subscription
	tasks    map[string]*task // by id

	legacyTasks map[string]*legacyTask // by id

	refused  int // exchanges answered 401
	tokens   int // tokens issued
	revoked  int // how many of them are not valid any more
	nextTask int
}

// SessionOptions script the sessions of a legacy HTTP server.
type SessionOptions struct {
	None         bool          // serve without session ids
	ID           func() string // nil = "session-1", "session-2"…
	ExpireAfter  int           // forget a session after n requests; 0 = never
	Unknown      *Reply        // answer to an unknown session; nil = 404, empty
	DeleteStatus int           // answer to DELETE; 0 = 200
	GetStatus    int           // answer to GET; 0 = open the stream
}

// SSEOptions script the event streams of HTTP answers.
type SSEOptions struct {
	Always             bool     // never answer with plain JSON
	EOL                string   // "" = "\n"
	BOM                bool     // start with a byte order mark
	Comments           bool     // a comment line before each event
	EventName          string   // "" = no event field
	NoSpace            bool     // "data:{" instead of "data: {"
	MultiData          bool     // pretty-printed over several data lines
	NoFinalBlank       bool     // the last event is not ended by a blank line
	SplitBytes         bool     // flush after every byte
	IDs                bool     // event ids; streams can be resumed (legacy)
	RetryMs            int      // retry field on the first event; 0 = none
	Prime              bool     // start with an event of an id and empty data
	DropAfter          int      // end the first exchange of a stream after n events; 0 = never
	EndWithoutResponse bool     // end the stream where the response would be
	Before             []string // raw text ahead of the first event
	Tail               []string // raw JSON messages after the response
	ContentType        string   // "" = text/event-stream
}

// StdioOptions script stdio connections. The ones marked (child) work only in
// a child process.
type StdioOptions struct {
	Banner         []string // raw lines before the first message
	JunkEvery      int      // a junk line before every nth message; 0 = never
	Junk           string   // "" = "npm WARN deprecated something"
	EOL            string   // "" = "\n"
	BOM            bool     // a byte order mark before the first line
	NoFinalNewline bool     // no newline after the last message
	ExitAfter      int      // end the connection after n answers; 0 = never
	StopReading    bool     // never read
	StopAfter      int      // stop reading after n messages; 0 = never
	Stderr         []string // (child) lines on stderr at the start
	StderrFlood    int      // (child) bytes of stderr before the first answer
	IgnoreEOF      bool     // (child) go on after stdin ended
	IgnoreTERM     bool     // (child) survive SIGTERM
	Grandchild     bool     // (child) start a process that holds the pipes
}

// LaxOptions name what the server does not check.
type LaxOptions struct {
	Accept      bool // the Accept header of POST and GET
	ContentType bool // the Content-Type header of POST
	Version     bool // MCP-Protocol-Version
	Names       bool // Mcp-Method, Mcp-Name and Mcp-Param-*
}

// TB is what the package needs of testing.TB.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	TempDir() string
}

// Check closes the server at the end of the test and fails the test for every
// violation that is left then.
func Check(t TB, s *Server) {
	t.Helper()
	t.Cleanup(func() {
		s.Close()
		for _, v := range s.Violations() {
			t.Errorf("mcptest: the client broke the protocol: %s", v)
		}
	})
}

// Close cancels all handlers, ends all streams and waits for them. It may be
// called more than once.
func (s *Server) Close() {
	s.init()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}

func (s *Server) init() {
	s.once.Do(func() {
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.gone = map[string]bool{}
		s.streams = map[string]*events{}
		s.tasks = map[string]*task{}
		s.legacyTasks = map[string]*legacyTask{}
		s.endpoint = newConn(s, true, Modern)
		s.off = s.NoLog
	})
}

// goWork runs f unless the server is closed; Close waits for it.
func (s *Server) goWork(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

func (s *Server) name() string {
	if s.Name == "" {
		return "mcptest"
	}
	return s.Name
}

// versions returns the supported versions of one era.
func (s *Server) versions(of Era) []string {
	all := map[Era][]string{Modern: modernVersions, Legacy: legacyVersions}[of]
	if s.Era != of && s.Era != Dual {
		return nil
	}
	if s.Versions == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(s.Versions), func(v string) bool {
		other := legacyVersions
		if of == Legacy {
			other = modernVersions
		}
		return slices.Contains(other, v)
	})
}

func (s *Server) info() string {
	return fmt.Sprintf(`{"name":%s,"version":"1.0.0"}`, quote(s.name()))
}

// Notify sends a notification on every legacy connection's shared stream and,
// with the subscription's id, on every modern subscription that asked for it.
// resources/updated reaches only those who subscribed to its uri.
func (s *Server) Notify(method string, params any) {
	raw := marshal(params)
	uri := ""
	if method == "notifications/resources/updated" {
		uri, _ = unquote(member(raw, "uri"))
	}
	s.mu.Lock()
	conns, subs := slices.Clone(s.conns), slices.Clone(s.subs)
	s.mu.Unlock()
	for _, c := range conns {
		if c.isLegacy() && (uri == "" || c.subscribed(uri)) {
			c.stream().send(notification(method, raw))
		}
	}
	for _, sub := range subs {
		if sub.wants(method, uri) {
			sub.send(method, raw)
		}
	}
}

// Send writes one raw message on every connection's shared stream.
func (s *Server) Send(raw string) {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		c.stream().send([]byte(raw))
	}
}

// Ask sends a request on the newest legacy connection's shared stream and
// waits for the client's result or error.
func (s *Server) Ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	s.mu.Lock()
	var c *conn
	for _, candidate := range s.conns {
		if candidate.isLegacy() {
			c = candidate
		}
	}
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("ask %s: no legacy connection is open", method)
	}
	return c.ask(ctx, c.stream(), method, params)
}

// ExpireSessions forgets all legacy HTTP sessions; their ids are unknown from
// now on.
func (s *Server) ExpireSessions() {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		if c.http {
			s.drop(c)
		}
	}
}

// Hangup ends all stdio connections and all shared HTTP streams abruptly.
func (s *Server) Hangup() {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		if c.http {
			c.restartShared()
		} else {
			s.drop(c)
		}
	}
}

// Disconnect ends all network connections of HTTP listeners, idle and busy
// ones, and all stdio connections; sessions survive.
func (s *Server) Disconnect() {
	s.mu.Lock()
	cut := slices.Clone(s.cut)
	s.mu.Unlock()
	for _, f := range cut {
		f()
	}
	s.Hangup()
}

// SetDown takes the server away and back again. While it is down, connections
// of StartMemoryHTTP are refused, others are closed as soon as they are made;
// going down ends those that exist. Sessions survive; see ExpireSessions.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.Disconnect()
	}
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *Server) onDisconnect(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = append(s.cut, f)
}
