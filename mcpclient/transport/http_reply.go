package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// response reads the reply to a request up to the response.
func (x *exchange) response(resp *http.Response) (*jsonrpc.Message, error) {
	if resp.StatusCode/100 != 2 {
		return nil, x.statusError(resp)
	}
	if x.req.Method == "initialize" && !x.req.Modern {
		x.offered = resp.Header.Get(headerSession)
		x.session = x.offered // a stream of this reply is resumed inside the session
		x.conn.mu.Lock()
		x.conn.offered = x.offered
		x.conn.mu.Unlock()
	}
	if coding := contentCoding(resp.Header); coding != "" {
		_ = resp.Body.Close()
		return nil, x.compressed(resp, coding)
	}
	switch kind := mediaType(resp.Header); {
	case kind == typeStream:
		return x.stream(resp)
	case jsonType(kind):
		return x.document(resp, resp.Body)
	case kind == "" || kind == "text/plain" || kind == "application/octet-stream":
		return x.sniff(resp) // what servers send that set no type, or whose library guesses
	default:
		return nil, x.unexpectedType(resp)
	}
}

// mediaType returns the content type in lower case without parameters; "" when
// there is none.
func mediaType(h http.Header) string {
	value := h.Get("Content-Type")
	if value == typeJSON || value == typeStream {
		return value
	}
	kind, _, err := mime.ParseMediaType(value)
	if err != nil { // broken parameters do not make the type unclear
		kind, _, _ = strings.Cut(value, ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	return kind
}

// contentCoding returns how a body is compressed; "" when it is not.
func contentCoding(h http.Header) string {
	coding := strings.ToLower(strings.TrimSpace(h.Get("Content-Encoding")))
	if coding == "identity" {
		return ""
	}
	return coding
}

// compressed is for replies that came in a coding nobody has asked for.
func (x *exchange) compressed(resp *http.Response, coding string) error {
	return x.malformed(resp, nil, "the reply is compressed ("+x.conn.redact.text(coding)+"), which was not asked for; turn compression off for the MCP endpoint, at the server or the proxy before it", nil)
}

// gzipStart begins every gzip file.
const gzipStart = "\x1f\x8b"

func jsonType(kind string) bool {
	return kind == typeJSON || kind == "text/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// sniff decides by the first byte what a reply is whose content type says
// nothing.
func (x *exchange) sniff(resp *http.Response) (*jsonrpc.Message, error) {
	r := bufio.NewReaderSize(resp.Body, 512)
	start, _ := r.Peek(1)
	for len(start) == 1 && (start[0] == ' ' || start[0] == '\n' || start[0] == '\r') {
		_, _ = r.Discard(1) // cannot fail: the byte is buffered
		start, _ = r.Peek(1)
	}
	if len(start) == 1 && (start[0] == '{' || start[0] == '[') {
		return x.document(resp, r)
	}
	for _, field := range []string{":", "data:", "event:", "id:", "retry:"} {
		if b, _ := r.Peek(len(field)); string(b) == field {
			resp.Body = readCloser{r, resp.Body}
			return x.stream(resp)
		}
	}
	resp.Body = readCloser{r, resp.Body}
	return nil, x.unexpectedType(resp)
}

type readCloser struct {
	io.Reader
	io.Closer
}

const (
	largeReply = 256 << 10 // is checked while it comes
	replyPiece = 512 << 10 // fits the cache of a processor
)

// document reads a reply that is one JSON document.
func (x *exchange) document(resp *http.Response, body io.Reader) (*jsonrpc.Message, error) {
	defer resp.Body.Close()
	c := x.conn
	if c.limit >= 0 && resp.ContentLength > c.limit {
		return nil, c.errTooLarge()
	}
	reply := growing{r: body, size: resp.ContentLength, limit: c.limit}
	var early *jsonrpc.Message
	if reply.size >= largeReply {
		early, _ = jsonrpc.DecodeGrowing(func() ([]byte, bool) { // what is wrong shows below
			more := reply.next(replyPiece)
			return reply.data, more
		})
	}
	data, err := reply.all()
	switch {
	case errors.Is(err, errTooLarge):
		return nil, c.errTooLarge()
	case err != nil:
		if ended := x.ended(); ended != nil {
			return nil, ended
		}
		host := c.url.Host
		if resp.Request != nil && resp.Request.URL != nil { // it may have gone elsewhere
			host = resp.Request.URL.Host
		}
		return nil, errLost("the connection to "+host+" ended inside the reply", c.redact.cover(err))
	}
	if bytes.HasPrefix(data, []byte(gzipStart)) {
		return nil, x.compressed(resp, "gzip")
	}
	data = bytes.TrimPrefix(data, []byte(bom))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, x.malformed(resp, nil, fmt.Sprintf("the server answered %s with HTTP %d and no body; check that the URL is the MCP endpoint", x.req.Method, resp.StatusCode), nil)
	}
	if early == nil && !x.req.Modern {
		if elements, ok, err := jsonrpc.DecodeBatch(data); ok {
			return x.batch(resp, data, elements, err)
		}
	}
	m := early
	if m == nil {
		m, err = jsonrpc.Decode(data)
	}
	if err != nil {
		return nil, x.malformed(resp, data, "the reply is not a JSON-RPC message", err)
	}
	if m.Kind != jsonrpc.Response {
		return nil, x.malformed(resp, data, "the reply is a JSON-RPC "+m.Kind.String()+", not a response", nil)
	}
	if !x.adopt(m, true) {
		return nil, x.malformed(resp, nil, fmt.Sprintf("the response has id %s, the request %v; the server mixes up replies", c.redact.text(m.ID.String()), x.req.ID), nil)
	}
	return m, nil
}

// batch looks for the response in a JSON array (2025-03-26 and older).
func (x *exchange) batch(resp *http.Response, data []byte, elements [][]byte, err error) (*jsonrpc.Message, error) {
	var found *jsonrpc.Message
	for _, element := range elements {
		m, decodeErr := jsonrpc.Decode(element)
		switch {
		case decodeErr != nil:
			err = decodeErr
		case m.Kind != jsonrpc.Response:
			x.conn.handler(Inbound{Message: m, Origin: x.req.ID})
		case found == nil && x.adopt(m, len(elements) == 1):
			found = m
		}
	}
	if found == nil {
		return nil, x.malformed(resp, data, "the reply is a JSON array without a response to the request", err)
	}
	return found, nil
}

// adopt reports whether a response on this request's own reply answers it, and
// gives it our id if it does. Errors may come with any id when they are all
// that the reply holds, or without one; results only without one, since a
// foreign id means that the server confuses its requests.
func (x *exchange) adopt(m *jsonrpc.Message, alone bool) bool {
	if m.ID != x.req.ID && !m.ID.IsZero() && !(alone && m.Error != nil) {
		other, ok := m.ID.Retyped()
		if !ok || other != x.req.ID || !x.conn.transport.LenientIDs {
			return false
		}
	}
	m.ID = x.req.ID
	return true
}

func (x *exchange) malformed(resp *http.Response, data []byte, message string, cause error) error {
	if cause != nil && tooDeep(cause) {
		message = tooDeepText
	}
	if len(data) > 0 {
		message += "; it starts with: " + x.conn.redact.excerpt(data)
	}
	return &Error{Kind: Malformed, ContentType: mediaType(resp.Header), Message: message, Err: x.conn.redact.cover(cause)}
}

// unexpectedType is for replies that are neither JSON nor an event stream.
func (x *exchange) unexpectedType(resp *http.Response) error {
	kind := mediaType(resp.Header)
	data := x.firstBytes(resp, 512)
	if ended := x.ended(); ended != nil {
		return ended
	}
	named := "content type " + x.conn.redact.text(kind)
	switch {
	case len(kind) > 100 || redactor(nil).text(kind) != kind:
		named = "an invalid content type"
	case kind == "" && len(data) == 0:
		return x.malformed(resp, nil, fmt.Sprintf("the server answered %s with HTTP %d and no body; check that the URL is the MCP endpoint", x.req.Method, resp.StatusCode), nil)
	case kind == "":
		named = "no content type"
	}
	return x.malformed(resp, data, "the reply has "+named+", not application/json or text/event-stream; check that the URL is the MCP endpoint", nil)
}

const (
	errorBodyBytes = 1 << 20         // an error's body is not read further
	errorBodyWait  = 2 * time.Second // nor waited for longer
)

// firstBytes reads the start of a body that only serves an error message, and
// closes it. It ends the exchange's context when the body does not come.
func (x *exchange) firstBytes(resp *http.Response, n int64) []byte {
	timer := time.AfterFunc(errorBodyWait, x.cancel)
	defer timer.Stop()
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, n)) // what came is enough
	return data
}

// statusError describes a reply that is no success. The body belongs to this
// request whatever id it carries.
func (x *exchange) statusError(resp *http.Response) error {
	c := x.conn
	data := bytes.TrimPrefix(x.firstBytes(resp, errorBodyBytes), []byte(bom))
	if ended := x.ended(); ended != nil {
		return ended
	}
	e := &Error{
		Kind: Status, Status: resp.StatusCode, ContentType: mediaType(resp.Header),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	if bytes.Contains(data, []byte(`"jsonrpc"`)) { // else any {"error":{…}} of a gateway would pass
		if m, err := jsonrpc.Decode(data); err == nil && m.Kind == jsonrpc.Response {
			e.RPC = m.Error
		}
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		e.WWWAuthenticate = strings.Join(resp.Header.Values("WWW-Authenticate"), ", ")
	}
	if resp.StatusCode == http.StatusNotFound && x.session != "" {
		c.mu.Lock()
		if c.session == x.session {
			c.gone = true
		}
		c.mu.Unlock()
		e.Kind = SessionGone
		e.Message = "the server no longer knows this session; initialize a new one"
		return e
	}
	e.Message = fmt.Sprintf("the server answered HTTP %s; %s", strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))), c.statusHint(resp))
	if e.RPC == nil && len(bytes.TrimSpace(data)) > 0 && !strings.Contains(e.ContentType, "html") && contentCoding(resp.Header) == "" {
		e.Message += "; it says: " + c.redact.excerpt(bytes.TrimSpace(data))
	}
	return e
}

// statusHint says what to do about a status.
func (c *httpConn) statusHint(resp *http.Response) string {
	switch status := resp.StatusCode; {
	case status/100 == 3:
		return c.redirectHint(resp)
	case status == http.StatusUnauthorized:
		return "check the target's credentials"
	case status == http.StatusForbidden:
		return "check what the target's credentials permit"
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return "check that the URL is the MCP endpoint"
	case status == http.StatusTooManyRequests:
		return "send less, or later"
	case status/100 == 5:
		return "the server or a proxy before it failed"
	}
	return "the server refuses the request"
}

// redirectHint says why a redirect was not followed.
func (c *httpConn) redirectHint(resp *http.Response) string {
	location := resp.Header.Get("Location")
	if location == "" {
		return "it has no Location header that says where to"
	}
	from := c.url
	if resp.Request != nil && resp.Request.URL != nil {
		from = resp.Request.URL
	}
	to, err := from.Parse(location)
	switch {
	case err != nil:
		return "its Location header holds no URL but: " + c.redact.text(location)
	case !sameOrigin(from, to):
		return "redirects to " + c.redact.text(to.Scheme+"://"+to.Host) + ", another origin, are not followed; configure the final URL"
	case resp.StatusCode == http.StatusTemporaryRedirect || resp.StatusCode == http.StatusPermanentRedirect:
		return fmt.Sprintf("the server redirects in a loop, or more than %d times; configure the final URL", maxRedirects)
	}
	return "only redirects with the status 307 or 308 are followed; configure the final URL"
}

const (
	drainBytes = 64 << 10
	// drainWait is for how long a call waits for the end of a body it has no
	// more interest in, so that the next call finds the connection free.
	drainWait = 50 * time.Millisecond
	// lingerLimit is how often in a row that may be in vain.
	lingerLimit = 2
	// drainLonger is for how long it is read on behind the call's back.
	drainLonger = time.Second
)

// release reads what is left of a body, so that the connection can be used
// again, and closes it. It waits a moment for the end, but no longer when a
// server keeps streams open behind the response.
func (x *exchange) release(body io.ReadCloser) {
	if body == http.NoBody {
		_ = body.Close()
		return
	}
	c := x.conn
	x.linger = true
	x.detach()
	drained := make(chan struct{})
	c.wg.Go(func() {
		timer := time.AfterFunc(drainLonger, x.cancel)
		_, _ = io.CopyN(io.Discard, body, drainBytes) // an error only costs the connection
		_ = body.Close()
		timer.Stop()
		close(drained)
		x.free()
	})
	if c.lingers.Load() >= lingerLimit {
		return
	}
	timer := time.NewTimer(drainWait)
	defer timer.Stop()
	select {
	case <-drained:
		c.lingers.Store(0)
	case <-x.ctx.Done():
	case <-timer.C:
		c.lingers.Add(1)
	}
}
