package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// HTTP is the streamable HTTP transport, for servers of both eras. URL is
// required; fields must not change after the first Dial.
type HTTP struct {
	// URL is the MCP endpoint, http or https.
	URL string
	// Header is added to every request. Headers of the protocol win over it,
	// and Accept is extended by it.
	Header http.Header
	// Client sends the requests; nil = a tuned one of this transport's own,
	// with proxies from the environment. Its CheckRedirect and Timeout are not
	// used: redirects are followed by the rules of this package, and contexts
	// bound requests.
	Client *http.Client
	// Wrap, when set, returns the round tripper to use in front of the one this
	// transport makes; it is not used with Client, and called once, by the first
	// Dial. It may change what it is given before it returns. What it returns
	// may send a request again only after [Outgoing.Unsent], and its errors of
	// type *Error are passed on as they are.
	Wrap func(*http.Transport) http.RoundTripper
	// MaxReplyBytes bounds one reply or one event; 0 = DefaultMaxReplyBytes,
	// negative = none.
	MaxReplyBytes int64
	// NoGetStream keeps Ready from opening the GET stream of legacy servers.
	NoGetStream bool
	// SSEFallback says whether a server that refuses initialize is tried with
	// the deprecated HTTP+SSE transport.
	SSEFallback SSEFallback
	// LenientIDs lets a response with the id "7" answer our request 7, and the
	// other way round.
	LenientIDs bool
	// Redact replaces secrets in what the server says, before any of it goes
	// into an error's message or a log record; nil = leave it as it is. It must
	// be safe for concurrent use.
	Redact func(string) string
	// Logger; nil = no logs.
	Logger *slog.Logger

	setup   sync.Once
	sender  *sender
	readers sync.Pool   // of *bufio.Reader, for event streams
	onlySSE atomic.Bool // the server was last seen to speak only HTTP+SSE
}

// Name returns NameHTTP.
func (h *HTTP) Name() string { return NameHTTP }

// Validate reports what is wrong with the configuration.
func (h *HTTP) Validate() error {
	_, err := h.parse()
	return err
}

func (h *HTTP) parse() (*url.URL, error) {
	u, err := url.Parse(h.URL)
	switch {
	case err != nil:
		// The cause repeats the URL, which may hold secrets.
		return nil, errors.New("the URL cannot be parsed; write it like https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the URL's scheme is %q; use http or https", u.Scheme)
	case u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the URL has no host; write it like https://host/path")
	case u.Path == "":
		u.Path = "/"
	}
	u.Fragment, u.RawFragment = "", ""
	return u, checkHeader(h.Header)
}

// Dial returns a connection. It does no I/O, except for a server that an
// earlier connection found to speak only HTTP+SSE: its stream is opened. It
// else fails only on configuration that Validate refuses.
func (h *HTTP) Dial(ctx context.Context, handler Handler) (Conn, error) {
	if h.SSEFallback == SSENever {
		return h.dial(ctx, handler)
	}
	return h.dialEither(ctx, handler)
}

// dial returns a streamable HTTP connection.
func (h *HTTP) dial(ctx context.Context, handler Handler) (*httpConn, error) {
	u, err := h.parse()
	if err != nil {
		return nil, &Error{Kind: NotSent, Message: err.Error()}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("dial %s: %w", u.Host, err)
	}
	h.setup.Do(func() { h.sender = h.newSender(u.Scheme) })
	c := &httpConn{
		transport: h, sender: h.sender, url: u, handler: handler,
		log: h.Logger, redact: h.Redact, limit: h.MaxReplyBytes, done: make(chan struct{}), calls: make(map[jsonrpc.ID]*exchange),
		base: http.Header{"User-Agent": {"mcpbridge"}, "Accept": {acceptPost}},
	}
	if c.handler == nil {
		c.handler = func(Inbound) {}
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.limit == 0 {
		c.limit = DefaultMaxReplyBytes
	}
	if password, _ := u.User.Password(); u.User != nil {
		basic := &http.Request{Header: c.base}
		basic.SetBasicAuth(u.User.Username(), password)
	}
	addHeader(c.base, h.Header)
	c.blank = http.Request{Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	for name, values := range h.Header {
		if http.CanonicalHeaderKey(name) == "Host" && len(values) > 0 {
			c.blank.Host = values[0]
		}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// httpConn is one logical connection: a session of a legacy server, or just a
// set of requests to a modern one.
type httpConn struct {
	transport *HTTP
	sender    *sender
	url       *url.URL
	blank     http.Request // what all requests have in common
	base      http.Header  // of all requests
	handler   Handler
	log       *slog.Logger
	redact    redactor
	limit     int64

	//nolint:containedctx // it ends at Close
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	wg      sync.WaitGroup // calls, drains and the GET stream
	closing sync.Once
	lingers atomic.Int32 // event streams in a row that the server kept open behind the response
	junk    limiter
	stray   limiter
	large   limiter

	affinity atomic.Value // see Outgoing
	bound    bool         // it posts for a stream of HTTP+SSE, with which its session began

	mu        sync.Mutex // guards what follows
	closed    bool
	err       error // why done is closed
	calls     map[jsonrpc.ID]*exchange
	session   string
	offered   string // the session of an initialize whose reply is being read
	gone      bool   // the server has forgotten the session
	version   string
	listening bool
}

// Call sends a request and waits for its response.
func (c *httpConn) Call(ctx context.Context, r *Request) (*jsonrpc.Message, error) {
	if r.ID.IsZero() {
		return nil, errNoID()
	}
	x, err := c.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer x.end()
	resp, err := x.post()
	if err != nil {
		return nil, err
	}
	m, err := x.response(resp)
	if x.offered != "" {
		c.mu.Lock()
		if c.offered = ""; err == nil && m.Error == nil {
			c.session, c.gone = x.offered, false
		}
		c.mu.Unlock()
	}
	return m, err
}

// Notify sends a notification. Whatever comes with a success is ignored.
func (c *httpConn) Notify(ctx context.Context, r *Request) error {
	n := *r
	n.ID = jsonrpc.ID{}
	return c.send(ctx, &n)
}

// Reply sends our response to a request of a legacy server.
func (c *httpConn) Reply(ctx context.Context, body []byte, version string) error {
	return c.send(ctx, &Request{Body: body, Version: version})
}

func (c *httpConn) send(ctx context.Context, r *Request) error {
	x, err := c.begin(ctx, r)
	if err != nil {
		return err
	}
	defer x.end()
	return x.deliver()
}

// Ready records the negotiated version and opens the GET stream of a legacy
// server.
func (c *httpConn) Ready(n Negotiated) {
	c.mu.Lock()
	c.version = n.Version
	if n.Modern || c.closed || c.listening || c.transport.NoGetStream {
		c.mu.Unlock()
		return
	}
	c.listening = true
	opened := make(chan struct{})
	c.wg.Go(func() { c.listen(sync.OnceFunc(func() { close(opened) })) })
	c.mu.Unlock()
	timer := time.NewTimer(getWait)
	defer timer.Stop()
	select {
	case <-opened:
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

// getWait bounds the wait for the response to the GET that opens the stream of
// a legacy server. Until it is open, a server drops what it asks there.
const getWait = time.Second

// PerRequestStreams returns true.
func (c *httpConn) PerRequestStreams() bool { return true }

// Done is closed by Close.
func (c *httpConn) Done() <-chan struct{} { return c.done }

// Err returns an error of kind Closed after Close.
func (c *httpConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// finish closes Done; the first reason counts.
func (c *httpConn) finish(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = reason
		close(c.done)
	}
}

// deleteTimeout bounds the DELETE that ends a session.
const deleteTimeout = 5 * time.Second

// Close fails what is pending, deletes the session if there is one, and waits
// for all goroutines.
func (c *httpConn) Close(ctx context.Context) error {
	var err error
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		session, version, gone := c.session, c.version, c.gone
		c.cancel()
		for _, x := range c.calls {
			x.cancel()
		}
		c.mu.Unlock()
		c.finish(errConnClosed())
		if session != "" && !gone {
			c.deleteSession(ctx, session, version)
		}
		err = wait(ctx, &c.wg)
		if c.sender.own {
			c.sender.closeIdle()
		}
	})
	return err
}

// wait waits for wg until ctx ends.
func wait(ctx context.Context, wg *sync.WaitGroup) error {
	idle := make(chan struct{})
	go func() {
		wg.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the connection: %w", ctx.Err())
	}
}

func subject(r *Request) string {
	if r.Method == "" {
		return "the reply"
	}
	return r.Method
}

func errConnClosed() error {
	return &Error{Kind: Closed, Message: "the connection to the server was closed"}
}

func errNoID() error {
	return &Error{Kind: Invalid, Message: "a request needs an id; use Notify for notifications"}
}

func errDuplicateID(id jsonrpc.ID) error {
	return &Error{Kind: Invalid, Message: fmt.Sprintf("request id %v is already in flight on this connection; ids must be unique", id)}
}
