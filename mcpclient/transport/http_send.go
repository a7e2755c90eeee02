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
	resp, err := x.do(http.MethodPost, x.header(typeJSON), r.Body) // bare: some servers refuse parameters
	if err == nil {
		x.reach(stageAnswered) // whatever fails from here on, the server had the message
	}
	return resp, err
}

// get asks for an event stream, from lastID on if it is not empty.
func (x *exchange) get(lastID string) (*http.Response, error) {
	h := x.header("")
	h["Accept"] = []string{typeStream}
	if lastID != "" {
		h[headerLastEvent] = []string{lastID}
	}
	return x.do(http.MethodGet, h, nil)
}

// header returns the headers of the exchange: users' first, then the
// protocol's. contentType is that of its body, "" = it has none.
func (x *exchange) header(contentType string) http.Header {
	r := x.req
	h := maps.Clone(x.conn.base)
	addHeader(h, r.Header)
	values := new([5]string) // one allocation for all
	at := 0
	set := func(name, value string) {
		values[at] = value
		h[name] = values[at : at+1 : at+1]
		at++
	}
	if contentType != "" {
		set("Content-Type", contentType)
	}
	if r.Version != "" {
		set(headerVersion, r.Version)
	}
	if r.Modern && r.Method != "" {
		set(headerMethod, r.Method)
		if r.Name != "" || r.HasName {
			set(headerName, EncodeHeaderValue(r.Name))
		}
	}
	if x.session != "" {
		set(headerSession, x.session)
	}
	return h
}

// trace returns what tells how far the message has come.
func (x *exchange) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		// Also before each repetition and each redirect. What stands before an
		// *http.Transport may have reasons of its own to repeat a request.
		GetConn: func(string) {
			if x.conn.sender.plain || x.stage.Load() == stageUnknown {
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
}

// do sends one HTTP request. net/http repeats it by itself only if nothing of
// it was written, or an HTTP/2 server said that it did not look at it.
func (x *exchange) do(method string, h http.Header, body []byte) (*http.Response, error) {
	c := x.conn
	ctx, host := httptrace.WithClientTrace(x.ctx, x.trace()), c.url.Host
	var out *Outgoing
	if c.transport.Wrap != nil {
		out = x.outgoing(method)
		ctx = context.WithValue(ctx, outgoingKey{}, out)
	}
	req := c.blank.WithContext(ctx)
	req.Method, req.URL, req.Header = method, c.url, h
	req.Close = x.req.Rare && c.sender.own && c.url.Scheme == "http"
	if len(body) > 0 {
		req.ContentLength = int64(len(body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		req.Body, _ = req.GetBody() // it cannot fail
	}
	resp, err := c.sender.send(req)
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
	if stage == stageConnecting || stage == stageConnected || stage == stageUnknown && c.sender.plain {
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
	resp, err := x.do(http.MethodDelete, x.header(""), nil)
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
