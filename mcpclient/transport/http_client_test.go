package transport

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// seen is what a server was asked for, request by request.
type seen struct {
	mu   sync.Mutex
	what []string
}

func (s *seen) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.what = append(s.what, what)
}

func (s *seen) want(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.what, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the server was asked for\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func TestARelativeRedirectStaysWithTheHostThatWasAskedFor(t *testing.T) {
	var got seen
	var server *httptest.Server
	server = serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.add(r.Host + r.URL.Path)
		switch r.URL.Path {
		case "/a":
			http.Redirect(w, r, "/b", http.StatusTemporaryRedirect)
		case "/b":
			http.Redirect(w, r, server.URL+"/c", http.StatusPermanentRedirect)
		default:
			answer(w, r)
		}
	})
	conn := dial(t, &HTTP{URL: server.URL + "/a", Header: http.Header{"Host": {"tools.example"}}}, nil)
	m, err := conn.Call(t.Context(), modern(1, "x"))
	wantResult(t, m, err, 1, "{}")
	got.want(t, "tools.example/a", "tools.example/b", strings.TrimPrefix(server.URL, "http://")+"/c")
}

func TestTheUserOfTheURLIsSentUnlessAHeaderSaysOtherwise(t *testing.T) {
	var got seen
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.add(r.Header.Get("Authorization"))
		answer(w, r)
	})
	withUser := strings.Replace(server.URL, "http://", "http://ann:s%20t@", 1)
	for i, h := range []*HTTP{
		{URL: withUser},
		{URL: withUser, Header: http.Header{"Authorization": {"Bearer b"}}},
		{URL: server.URL},
	} {
		m, err := dial(t, h, nil).Call(t.Context(), modern(int64(i), "x"))
		wantResult(t, m, err, int64(i), "{}")
	}
	r := modern(7, "x")
	r.Header = http.Header{"Authorization": {"Bearer mine"}}
	m, err := dial(t, &HTTP{URL: withUser}, nil).Call(t.Context(), r)
	wantResult(t, m, err, 7, "{}")
	got.want(t, "Basic YW5uOnMgdA==", "Bearer b", "", "Bearer mine")
}

func TestCookiesOfAGivenClientAreKeptAndSent(t *testing.T) {
	var got seen
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got.add(r.URL.Path + " " + r.Header.Get("Cookie"))
		if r.URL.Path == "/a" {
			http.SetCookie(w, &http.Cookie{Name: "node", Value: "7", Path: "/"})
			http.Redirect(w, r, "/b", http.StatusTemporaryRedirect)
			return
		}
		answer(w, r)
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	jar.SetCookies(u, []*http.Cookie{{Name: "who", Value: "ann"}})
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	conn := dial(t, &HTTP{URL: server.URL + "/a", Client: client, Header: http.Header{"Cookie": {"own=1"}}}, nil)
	for id := range int64(2) {
		m, err := conn.Call(t.Context(), modern(id, "x"))
		wantResult(t, m, err, id, "{}")
	}
	got.want(t, "/a own=1; who=ann", "/b own=1; who=ann; node=7", "/a own=1; who=ann; node=7", "/b own=1; who=ann; node=7")
}

// nothing is a round tripper that breaks its contract.
type nothing struct{ resp *http.Response }

func (n nothing) RoundTrip(*http.Request) (*http.Response, error) { return n.resp, nil }

func TestARoundTripperThatBreaksItsContractIsAnError(t *testing.T) {
	conn := dial(t, &HTTP{URL: "http://host.invalid/", Client: &http.Client{Transport: nothing{}}}, nil)
	_, err := conn.Call(t.Context(), modern(1, "x"))
	wantError(t, err, Lost)
	conn = dial(t, &HTTP{URL: "http://host.invalid/", Client: &http.Client{Transport: nothing{&http.Response{StatusCode: http.StatusOK}}}}, nil)
	_, err = conn.Call(t.Context(), modern(1, "x"))
	wantError(t, err, Malformed) // there is no body
}

func TestALargeBodyOfARedirectIsNotWaitedFor(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a" {
			answer(w, r)
			return
		}
		w.Header().Set("Location", "/b")
		w.Header().Set("Content-Length", "100000")
		w.WriteHeader(http.StatusTemporaryRedirect)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done() // when the caller has gone elsewhere
	})
	m, err := dial(t, &HTTP{URL: server.URL + "/a"}, nil).Call(t.Context(), modern(1, "x"))
	wantResult(t, m, err, 1, "{}")
}

// announcing is a round tripper whose replies are longer than they say.
type announcing struct {
	body string
	size int64
}

func (a announcing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {typeJSON}}, ContentLength: a.size, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func TestAReplyThatIsLongerThanItSaysIsTooLarge(t *testing.T) {
	const limit = 700 << 10
	for size := limit - 110_000; size < limit; size += 37 * 97 {
		body := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", size) + `"` + strings.Repeat(" ", limit) + `}`
		conn := dial(t, &HTTP{URL: "http://host.invalid/", MaxReplyBytes: limit, Client: &http.Client{Transport: announcing{body, 300 << 10}}}, nil)
		_, err := conn.Call(t.Context(), modern(1, "x"))
		wantError(t, err, TooLarge)
	}
}
