package mcptest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// try sends one bare request and returns the client's error.
func try(t *testing.T, hc *http.Client, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := hc.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return err
}

func TestADownServerRefusesUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		url, hc := StartMemoryHTTP(t, s)
		c := newClient(t, url)
		c.http = hc
		c.modern("1", "tools/list", "")
		s.SetDown(true)
		if err := try(t, hc, url); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("down = %v, want a refused connection", err)
		}
		client, server := net.Pipe()
		go func() { _ = s.ServeStream(t.Context(), server) }()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("stdio while down = %v, want EOF", err)
		}
		s.SetDown(false)
		if status, _ := c.modern("2", "tools/list", ""); status != 200 {
			t.Errorf("back = %d", status)
		}
	})
	s := &Server{}
	url := StartHTTP(t, s)
	c := newClient(t, url)
	c.modern("1", "tools/list", "")
	s.SetDown(true)
	if err := try(t, c.http, url); err == nil {
		t.Error("a down server answered")
	}
	s.SetDown(false)
	if status, _ := c.modern("2", "tools/list", ""); status != 200 {
		t.Errorf("back = %d", status)
	}
}

func TestDisconnectBreaksBusyExchanges(t *testing.T) {
	s := &Server{Handle: map[string]Handler{"tools/list": Silence()}}
	url := StartHTTP(t, s)
	c := newClient(t, url)
	broken := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`))
		if err != nil {
			broken <- err
			return
		}
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		req.Header.Set("MCP-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", "tools/list")
		resp, err := c.http.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		broken <- err
	}()
	if _, err := s.WaitFor(t.Context(), "tools/list", 1); err != nil {
		t.Fatal(err)
	}
	s.Disconnect()
	if err := <-broken; err == nil {
		t.Error("the exchange survived")
	}
}
