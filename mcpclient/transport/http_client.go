package transport

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// newClient returns the client to use, whether its connections are ours, and
// whether nothing that repeats requests for reasons of its own stands between us
// and an *http.Transport.
func (h *HTTP) newClient(scheme string) (client *http.Client, own, plain bool) {
	client = &http.Client{}
	if h.Client != nil {
		*client = *h.Client
	}
	client.CheckRedirect = checkRedirect
	client.Timeout = 0
	if h.Client != nil {
		if client.Transport == nil {
			client.Transport = http.DefaultTransport
		}
		_, plain = client.Transport.(*http.Transport)
		client.Transport = locations{client.Transport}
		return client, false, plain
	}
	// Node and uvicorn drop idle connections after 5 s. A POST written into
	// that moment is lost without anyone knowing whether it was read, so plain
	// HTTP connections are given up before. Load balancers wait a minute.
	idle := 4 * time.Second
	if scheme == "https" {
		idle = 50 * time.Second
	}
	tripper := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idle,
		MaxResponseHeaderBytes: 1 << 20,
		// Compression makes proxies hold back events, and would let a small
		// reply grow past the limits unseen.
		DisableCompression: true,
	}
	if scheme == "https" || h.Wrap != nil {
		tripper.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		tripper.ForceAttemptHTTP2 = true
		tripper.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	} else { // what HTTP/2 needs is a good part of what an idle target holds; a redirect to https does without
		tripper.Protocols = new(http.Protocols)
		tripper.Protocols.SetHTTP1(true)
	}
	client.Transport = locations{tripper}
	if h.Wrap != nil {
		client.Transport = locations{h.Wrap(tripper)}
	}
	return client, true, true
}

// badLocation holds a Location that cannot be used. No server can send a header
// of this name.
const badLocation = "bad location"

// locations hides redirects to what is no URL from http.Client, which would
// forget the reply that holds them.
type locations struct{ http.RoundTripper }

// RoundTrip sends one request.
func (l locations) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	if to := resp.Header.Get("Location"); to != "" {
		if _, err := r.URL.Parse(to); err != nil {
			delete(resp.Header, "Location")
			resp.Header[badLocation] = []string{to}
		}
	}
	return resp, nil
}

// CloseIdleConnections is for http.Client.
func (l locations) CloseIdleConnections() {
	if c, ok := l.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Sizes of readers of event streams. A quiet stream keeps its reader for as
// long as it is open, mostly for nothing.
const (
	busyReader  = 8 << 10
	quietReader = 512
)

// newReader returns a buffered reader, from the pool unless the stream is a
// quiet one; freeReader puts it back.
func (h *HTTP) newReader(body io.Reader, quiet bool) *bufio.Reader {
	if quiet {
		return bufio.NewReaderSize(body, quietReader)
	}
	if r, ok := h.readers.Get().(*bufio.Reader); ok {
		r.Reset(body)
		return r
	}
	return bufio.NewReaderSize(body, busyReader)
}

func (h *HTTP) freeReader(r *bufio.Reader) {
	if r.Size() != busyReader {
		return
	}
	r.Reset(nil) // do not keep the body alive
	h.readers.Put(r)
}
