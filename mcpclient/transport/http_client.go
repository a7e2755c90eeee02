package transport

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// sender sends HTTP requests. It follows redirects by the rules of this package.
type sender struct {
	tripper http.RoundTripper
	jar     http.CookieJar // of a given client; nil = none
	own     bool           // its connections are ours
	plain   bool           // nothing that repeats requests for reasons of its own stands between us and an *http.Transport
}

func (h *HTTP) newSender(scheme string) *sender {
	if given := h.Client; given != nil {
		s := &sender{tripper: given.Transport, jar: given.Jar}
		if s.tripper == nil {
			s.tripper = http.DefaultTransport
		}
		_, s.plain = s.tripper.(*http.Transport)
		return s
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
	s := &sender{tripper: tripper, own: true, plain: true}
	if h.Wrap != nil {
		s.tripper = h.Wrap(tripper)
	}
	return s
}

const (
	maxRedirects  = 5       // of one request
	drainRedirect = 2 << 10 // bytes of a redirect's body
)

// send sends a request and follows its redirects.
func (s *sender) send(r *http.Request) (*http.Response, error) {
	header := r.Header
	for redirects := 0; ; redirects++ {
		if s.jar != nil {
			r.Header = header.Clone()
			for _, cookie := range s.jar.Cookies(r.URL) {
				r.AddCookie(cookie)
			}
		}
		resp, err := s.roundTrip(r)
		if err != nil || redirects == maxRedirects {
			return resp, err
		}
		next, err := redirected(r, resp)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return resp, nil
		}
		r = next
	}
}

// roundTrip sends a request without following redirects.
func (s *sender) roundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.tripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp == nil {
		return nil, errors.New("the round tripper returned neither a response nor an error")
	}
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if s.jar != nil {
		if cookies := resp.Cookies(); len(cookies) > 0 {
			s.jar.SetCookies(r.URL, cookies)
		}
	}
	return resp, nil
}

// redirected returns the request that follows a response; nil when there is
// none. 307 and 308, which keep method and body, are followed within one origin
// or from http to https of the same host on default ports. Other redirects would
// turn the POST into a GET or carry credentials to another origin.
func redirected(r *http.Request, resp *http.Response) (*http.Request, error) {
	location := resp.Header.Get("Location")
	if location == "" || resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil, nil
	}
	ref, err := url.Parse(location)
	if err != nil {
		return nil, nil //nolint:nilerr // redirectHint tells of it
	}
	to := r.URL.ResolveReference(ref)
	if !sameOrigin(r.URL, to) {
		return nil, nil
	}
	next := r.WithContext(r.Context())
	if next.URL = to; ref.IsAbs() || r.Host == r.URL.Host { // a relative one stays with the host that was asked for
		next.Host = to.Host
	}
	if r.GetBody != nil {
		if next.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	if resp.ContentLength <= drainRedirect {
		_, _ = io.CopyN(io.Discard, resp.Body, drainRedirect) // so that the connection can be used again
	}
	_ = resp.Body.Close()
	return next, nil
}

func (s *sender) closeIdle() {
	if c, ok := s.tripper.(interface{ CloseIdleConnections() }); ok {
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
