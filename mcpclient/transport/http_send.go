package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"syscall"
)

// post sends the exchange's message.
func (x *exchange) post() (*http.Response, error) {
	r := x.req
	if bytes.IndexByte(r.Body, '\n') >= 0 {
		return nil, errLineBreak()
	}
	h := x.header()
	h["Content-Type"] = []string{typeJSON} // bare: some servers refuse parameters
	resp, err := x.do(http.MethodPost, h, r.Body)
	if err == nil {
		x.reach(stageAnswered) // whatever fails from here on, the server had the message
	}
	return resp, err
}

// get asks for an event stream, from lastID on if it is not empty.
func (x *exchange) get(lastID string) (*http.Response, error) {
	h := x.header()
	h["Accept"] = []string{typeStream}
	if lastID != "" {
		h[headerLastEvent] = []string{lastID}
	}
	return x.do(http.MethodGet, h, nil)
}

// header returns the headers of the exchange: users' first, then the
// protocol's.
func (x *exchange) header() http.Header {
	r := x.req
	h := make(http.Header, len(x.conn.base)+len(r.Header)+8)
	maps.Copy(h, x.conn.base)
	accept := []string{acceptPost}
	if users := h["Accept"]; len(users) > 0 {
		accept[0] += ", " + strings.Join(users, ", ")
	}
	h["Accept"] = accept
	addHeader(h, r.Header)
	if r.Version != "" {
		h[headerVersion] = []string{r.Version}
	}
	if r.Modern && r.Method != "" {
		h[headerMethod] = []string{r.Method}
		if r.Name != "" || r.HasName {
			h[headerName] = []string{EncodeHeaderValue(r.Name)}
		}
	}
	if x.session != "" {
		h[headerSession] = []string{x.session}
	}
	return h
}

// do sends one HTTP request. net/http repeats it by itself only if nothing of
// it was written, or an HTTP/2 server said that it did not look at it.
func (x *exchange) do(method string, h http.Header, body []byte) (*http.Response, error) {
	c := x.conn
	trace := &httptrace.ClientTrace{
		// Also before each repetition and each redirect. What stands before an
		// *http.Transport may have reasons of its own to repeat a request.
		GetConn: func(string) {
			if c.transport.plain || x.stage.Load() == stageUnknown {
				x.reach(stageConnecting)
			}
		},
		GotConn: func(httptrace.GotConnInfo) {
			if x.stage.Load() == stageConnecting {
				x.reach(stageConnected)
			}
		},
		WroteHeaders: func() { x.reach(stageWritten) },
	}
	ctx, host := httptrace.WithClientTrace(x.ctx, trace), c.url.Host
	var out *Outgoing
	if c.transport.Wrap != nil {
		out = x.outgoing(method)
		ctx = context.WithValue(ctx, outgoingKey{}, out)
	}
	// An empty reader counts as no body.
	req, err := http.NewRequestWithContext(ctx, method, "", bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Kind: Invalid, Message: "the HTTP request cannot be built", Err: err}
	}
	req.URL, req.Host, req.Header = c.url, c.host, h
	req.Close = x.req.Rare && c.transport.own && c.url.Scheme == "http"
	resp, err := c.client.Do(req)
	if err == nil {
		return resp, nil
	}
	stage := x.stage.Load()
	if ended := x.ended(); ended != nil {
		if cause := x.parent.Err(); cause != nil && stage == stageConnecting {
			return nil, unsent(x.req, cause)
		}
		return nil, ended
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the URL may hold secrets
	}
	if e, ok := errors.AsType[*Error](err); ok && out != nil {
		told := *e
		told.Err = c.redact.cover(e.Err)
		return nil, &told
	}
	if out != nil && out.Host != "" {
		host = out.Host
	}
	// A plain transport that has not even asked for a connection refuses the
	// request; of others nothing is known then.
	if stage == stageConnecting || stage == stageConnected || stage == stageUnknown && c.transport.plain {
		return nil, &Error{Kind: NotSent, Message: connectMessage(host, err), Err: c.redact.cover(err)}
	}
	return nil, errLost("the connection to "+host+" ended before a response came", c.redact.cover(err))
}

// connectMessage says why no connection came about.
func connectMessage(host string, err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return "the host name of " + host + " does not exist; check the URL"
		}
		return "the host name of " + host + " cannot be resolved now; check the name server"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return host + " refuses connections; check that the server is running and that the port is right"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the TLS certificate of " + host + " is not valid or not trusted; check the host name and the root certificates"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || strings.Contains(err.Error(), "HTTP response to HTTPS client") {
		return host + " does not speak TLS; use an http:// URL or the TLS port"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "no connection to " + host + " came about in time; check the address and the firewall"
	}
	return "no connection to " + host + " came about; check the address and the network"
}

// maxRedirects bounds how often one request is redirected.
const maxRedirects = 5

// checkRedirect follows 307 and 308, which keep method and body, within one
// origin or from http to https of the same host on default ports. Everything
// else is returned as it is: other redirects would turn the POST into a GET or
// carry credentials to another origin.
func checkRedirect(next *http.Request, via []*http.Request) error {
	if next.Response == nil || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	switch next.Response.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if sameOrigin(via[len(via)-1].URL, next.URL) {
			return nil
		}
	}
	return http.ErrUseLastResponse
}

func sameOrigin(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return port(from) == port(to)
	}
	return from.Scheme == "http" && port(from) == "80" && to.Scheme == "https" && port(to) == "443"
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// deleteSession ends the session; servers may not support it.
func (c *httpConn) deleteSession(ctx context.Context, session, version string) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	x := &exchange{conn: c, parent: ctx, ctx: ctx, cancel: cancel, req: &Request{Version: version}, session: session}
	resp, err := x.do(http.MethodDelete, x.header(), nil)
	if err != nil {
		c.log.DebugContext(ctx, "the MCP session was not deleted", "host", c.url.Host, "error", err)
		return
	}
	_ = resp.Body.Close()
	if s := resp.StatusCode; s/100 != 2 && s != http.StatusNotFound && s != http.StatusMethodNotAllowed {
		c.log.DebugContext(ctx, "the MCP session was not deleted", "host", c.url.Host, "status", s)
	}
}

func errLost(message string, cause error) error {
	if errors.Is(cause, io.EOF) {
		cause = nil // which the message says better
	}
	return &Error{Kind: Lost, Message: message, Err: cause}
}

func errLineBreak() error {
	return &Error{Kind: Invalid, Message: "the message holds a line break; a JSON-RPC message must be one line"}
}

func errSessionGone(rpc error) error {
	return &Error{Kind: SessionGone, Status: http.StatusNotFound, Err: rpc,
		Message: "the server no longer knows this session; initialize a new one"}
}

func errTooLargeText(limit int64) string {
	return fmt.Sprintf("the reply exceeds the limit of %d bytes; raise the target's reply limit", limit)
}

func (c *httpConn) errTooLarge() error {
	return &Error{Kind: TooLarge, Limit: c.limit, Message: errTooLargeText(c.limit)}
}
