package balance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// certificate returns one that is valid for a host name or an IP address only.
func certificate(t *testing.T, host string) (tls.Certificate, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if ip := net.ParseIP(host); ip != nil {
		form.IPAddresses = []net.IP{ip}
	} else {
		form.DNSNames = []string{host}
	}
	raw, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, parsed
}

// sight is what a server saw of a request.
type sight struct{ Host, ServerName, Proto string }

func TestHTTPSReplicasSeeTheirOwnNames(t *testing.T) {
	roots := x509.NewCertPool()
	var (
		mu   sync.Mutex
		seen = map[sight]int{}
		list []string
		want = map[sight]int{}
	)
	for _, host := range []string{"localhost", "127.0.0.1"} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			seen[sight{r.Host, r.TLS.ServerName, r.Proto}]++
			mu.Unlock()
			answer(w)
		}))
		own, parsed := certificate(t, host)
		roots.AddCert(parsed)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
		list = append(list, "https://"+host+":"+port+"/mcp")
		name := host
		if net.ParseIP(host) != nil {
			name = "" // RFC 6066: no addresses
		}
		want[sight{host + ":" + port, name, "HTTP/2.0"}] = 5
	}
	tg := over(t, list, Options{}, func(base *http.Transport) { base.TLSClientConfig.RootCAs = roots })
	conn := tg.dial(t)
	for range 10 {
		if _, err := conn.Call(t.Context(), modern("tools/call")); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests seen (-want +got):\n%s", diff)
	}
	if tg.base.HTTP2 == nil || tg.base.HTTP2.SendPingTimeout == 0 {
		t.Error("the transport's HTTP/2 pings are not set")
	}
	for _, r := range tg.lb.tripper.replicas {
		if !r.probe(t.Context()) {
			t.Errorf("the probe takes %s for one that is down", r.url.Host)
		}
	}
}

func TestAReplicaWithABadCertificateIsPassedOver(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	bad, good := httptest.NewUnstartedServer(handler), httptest.NewTLSServer(handler)
	foreign, _ := certificate(t, "127.0.0.1")
	bad.TLS = &tls.Config{Certificates: []tls.Certificate{foreign}, MinVersion: tls.VersionTLS12}
	bad.Config.ErrorLog = quiet
	bad.StartTLS()
	defer bad.Close()
	defer good.Close()
	roots := x509.NewCertPool()
	roots.AddCert(good.Certificate())
	tg := over(t, []string{bad.URL, good.URL}, Options{}, func(base *http.Transport) { base.TLSClientConfig.RootCAs = roots })
	conn := tg.dial(t)
	for range 4 {
		if _, err := conn.Call(t.Context(), modern("tools/call")); err != nil {
			t.Fatal(err)
		}
	}
	if tg.lb.tripper.replicas[0].probe(t.Context()) {
		t.Error("the probe takes a replica with a bad certificate for one that works")
	}
}

func TestAConfiguredHostHeaderIsKept(t *testing.T) {
	var mu sync.Mutex
	hosts := map[string]int{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hosts[r.Host]++
		mu.Unlock()
		answer(w)
	})
	a, b := httptest.NewServer(handler), httptest.NewServer(handler)
	defer a.Close()
	defer b.Close()
	for name, tt := range map[string]struct {
		header http.Header
		want   map[string]int
	}{
		"configured": {http.Header{"Host": {"mcp.example"}}, map[string]int{"mcp.example": 4}},
		"not":        {nil, map[string]int{a.Listener.Addr().String(): 2, b.Listener.Addr().String(): 2}},
	} {
		clear(hosts)
		tg := over(t, []string{a.URL, b.URL}, Options{})
		tg.Header = tt.header
		conn := tg.dial(t)
		for range 4 {
			if _, err := conn.Call(t.Context(), modern("tools/call")); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tt.want, hosts); diff != "" {
			t.Errorf("%s: Host headers (-want +got):\n%s", name, diff)
		}
	}
}

func TestRedirectsOfAReplicaAreFollowedOnItWithCredentials(t *testing.T) {
	for name, location := range map[string]func(own string) string{
		"relative":                func(string) string { return "/moved" },
		"absolute":                func(own string) string { return own + "/moved" },
		"without a scheme":        func(own string) string { return strings.TrimPrefix(own, "http:") + "/moved" },
		"twice, then to the path": func(own string) string { return own + "/again" },
	} {
		t.Run(name, func(t *testing.T) {
			var list []string
			var got [2]int
			for i := range got {
				var server *httptest.Server
				server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/mcp":
						w.Header().Set("Location", location(server.URL))
						w.WriteHeader(http.StatusTemporaryRedirect)
						return
					case "/again":
						http.Redirect(w, r, server.URL+"/moved", http.StatusPermanentRedirect)
						return
					}
					got[i]++ // calls come one after the other
					if r.Header.Get("Authorization") != "Bearer x" || r.Host != server.Listener.Addr().String() || r.Method != http.MethodPost {
						t.Errorf("%s with Host %q, Authorization %q", r.Method, r.Host, r.Header.Get("Authorization"))
					}
					answer(w)
				}))
				defer server.Close()
				list = append(list, server.URL+"/mcp")
			}
			tg := over(t, list, Options{})
			tg.Header = http.Header{"Authorization": {"Bearer x"}}
			conn := tg.dial(t)
			for range 10 {
				if _, err := conn.Call(t.Context(), modern("tools/call")); err != nil {
					t.Fatal(err)
				}
			}
			if got != [2]int{5, 5} {
				t.Errorf("the replicas got %v calls, want 5 each", got)
			}
		})
	}
}

func TestRedirectsElsewhereAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other origin was asked") }))
	defer other.Close()
	var loops [2]*httptest.Server
	for name, tt := range map[string]struct{ location, want string }{
		"another origin": {other.URL + "/mcp", "redirects to " + other.URL + ", another origin"},
		"a loop":         {"/mcp", "the server redirects in a loop"},
		"no URL":         {"http://[", "holds no URL but: http://["},
	} {
		for i := range loops {
			loops[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", tt.location)
				w.WriteHeader(http.StatusTemporaryRedirect)
			}))
			defer loops[i].Close()
		}
		conn := over(t, []string{loops[0].URL + "/mcp", loops[1].URL + "/mcp"}, Options{}).dial(t)
		for range 2 {
			_, err := conn.Call(t.Context(), modern("tools/call"))
			if e := wantKind(t, err, transport.Status); !strings.Contains(e.Message, tt.want) {
				t.Errorf("%s: message %q, want %q in it", name, e.Message, tt.want)
			}
		}
	}
}

func TestLeadsTo(t *testing.T) {
	for _, tt := range []struct {
		to, replica string
		want        bool
		host        string // for the scheme of to
	}{
		{"http://a/x", "http://a/mcp", true, "a"},
		{"http://A:80/x", "http://a/mcp", true, "a"},
		{"https://a/x", "http://a/mcp", true, "a"},
		{"https://a:443/x", "http://a:80/mcp", true, "a"},
		{"https://a:8443/x", "http://a/mcp", false, ""},
		{"https://a/x", "http://a:8080/mcp", false, ""},
		{"http://a/x", "https://a/mcp", false, ""},
		{"http://b/x", "http://a/mcp", false, ""},
		{"https://[::1]/x", "http://[::1]:80/mcp", true, "[::1]"},
	} {
		to, _ := url.Parse(tt.to)
		replica, _ := url.Parse(tt.replica)
		got := leadsTo(to, replica)
		if got != tt.want || got && hostFor(replica, to.Scheme) != tt.host {
			t.Errorf("%s from %s: %t, host %q; want %t, %q", tt.to, tt.replica, got, hostFor(replica, to.Scheme), tt.want, tt.host)
		}
	}
}
