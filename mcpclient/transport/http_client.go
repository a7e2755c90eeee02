package transport

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// newClient returns the client to use and whether its connections are ours.
func (h *HTTP) newClient(scheme string) (*http.Client, bool) {
	client := &http.Client{}
	if h.Client != nil {
		*client = *h.Client
	}
	client.CheckRedirect = checkRedirect
	client.Timeout = 0
	if h.Client != nil {
		return client, false
	}
	// Node and uvicorn drop idle connections after 5 s. A POST written into
	// that moment is lost without anyone knowing whether it was read, so plain
	// HTTP connections are given up before. Load balancers wait a minute.
	idle := 4 * time.Second
	if scheme == "https" {
		idle = 50 * time.Second
	}
	client.Transport = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idle,
		MaxResponseHeaderBytes: 1 << 20,
		// Compression makes proxies hold back events, and would let a small
		// reply grow past the limits unseen.
		DisableCompression: true,
	}
	return client, true
}

// newReader returns a buffered reader from the pool; freeReader puts it back.
func (h *HTTP) newReader(body io.Reader) *bufio.Reader {
	if r, ok := h.readers.Get().(*bufio.Reader); ok {
		r.Reset(body)
		return r
	}
	return bufio.NewReaderSize(body, 8<<10)
}

func (h *HTTP) freeReader(r *bufio.Reader) {
	r.Reset(nil) // do not keep the body alive
	h.readers.Put(r)
}
