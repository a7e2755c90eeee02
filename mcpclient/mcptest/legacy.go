package mcptest

import (
	"context"
	"net/http"
	"slices"
)

// enterLegacy applies the order that 2025-11-25 basic/lifecycle demands.
func (c *conn) enterLegacy(r *Request) error {
	c.mu.Lock()
	version, initialized := c.version, c.initialized
	if r.Method == "initialize" && c.era == Dual {
		c.era = Legacy
	}
	c.mu.Unlock()
	r.Version = version
	switch r.Method {
	case "initialize":
		if version != "" {
			c.s.violate("initialize was sent again on an initialized connection")
			return &Error{Code: -32600, Message: "Server already initialized"}
		}
		asked := r.Text("protocolVersion")
		if !slices.Contains(legacyVersions, asked) {
			c.s.violate("initialize asks for version %q, which no handshake has", asked)
		}
		if name, _ := unquote(member(r.Param("clientInfo"), "name")); name == "" {
			c.s.violate("initialize has no clientInfo with a name")
		}
		if caps := r.Param("capabilities"); len(caps) == 0 || caps[0] != '{' {
			c.s.violate("initialize has no capabilities object")
		}
		if got := r.Header.Get("MCP-Protocol-Version"); got != "" && got != asked {
			c.s.violate("initialize: MCP-Protocol-Version %s is not the requested version %s", got, asked)
		}
		if r.Header.Get("Mcp-Session-Id") != "" {
			c.s.violate("initialize carries a session id")
		}
	case "ping", "server/discover":
	default:
		switch {
		case version == "":
			c.s.violate("%s was sent before initialize was answered", r.Method)
			return &Error{Code: -32600, Message: "Server not initialized"}
		case !initialized:
			c.s.violate("%s was sent before notifications/initialized", r.Method)
		}
	}
	return nil
}

// initialize is the correct answer, with the session id on HTTP.
func initialize(_ context.Context, r *Request) (any, error) {
	s := r.server
	supported := s.versions(Legacy)
	version := r.Text("protocolVersion")
	if !slices.Contains(supported, version) {
		if len(supported) == 0 {
			return nil, &Error{Code: -32602, Message: "Unsupported protocol version"}
		}
		version = supported[0]
	}
	result := map[string]any{
		"protocolVersion": version, "capabilities": s.capabilities(Legacy), "serverInfo": Raw(s.info()).json(),
	}
	if s.Instructions != "" {
		result["instructions"] = s.Instructions
	}
	return result, nil
}

// accept takes note of a successful initialize answer before it is sent.
func (c *conn) accept(r *Request, result []byte) {
	version, _ := unquote(member(result, "protocolVersion"))
	if version == "" {
		version = r.Text("protocolVersion") // a script left it out; the session exists all the same
	}
	c.mu.Lock()
	c.version = version
	c.mu.Unlock()
	if !c.http {
		return
	}
	if c.id == "" { // without session ids there is only one
		c.s.mu.Lock()
		old := slices.Clone(c.s.conns)
		c.s.mu.Unlock()
		for _, o := range old {
			if o.http && o.id == "" {
				c.s.drop(o)
			}
		}
	} else {
		r.out.setHeader("Mcp-Session-Id", c.id)
	}
	c.s.register(c)
}

// session finds the legacy HTTP session of an exchange; reply is the answer
// when there is none. A request that opens one gets a new session.
func (s *Server) session(header http.Header, m *message) (c *conn, reply *Reply) {
	id := header.Get("Mcp-Session-Id")
	opens := m != nil && m.isRequest() && (m.method == "initialize" || m.method == "server/discover" && (s.Discover != nil || s.Handle["server/discover"] != nil || s.Session.None))
	s.mu.Lock()
	for _, o := range s.conns {
		if o.http && o.id == id {
			c = o
		}
	}
	gone := s.gone[id]
	s.mu.Unlock()
	switch {
	case m != nil && m.method == "initialize" && (id == "" || c != nil):
		c = newConn(s, true, Legacy)
		c.id = s.newSessionID()
		return c, nil
	case c != nil:
		return c, nil
	case id == "" && opens:
		return newConn(s, true, Legacy), nil
	case id != "":
		if !gone {
			s.violate("the session id %q was never assigned", id)
		}
		if s.Session.Unknown != nil {
			return nil, s.Session.Unknown
		}
		return nil, &Reply{Status: http.StatusNotFound}
	default:
		if m == nil || m.method != "server/discover" {
			s.violate("%s without a session id", method(m))
		}
		return nil, &Reply{
			Status: http.StatusBadRequest, ContentType: "application/json",
			Body: `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`,
		}
	}
}

func method(m *message) string {
	if m == nil {
		return "the exchange"
	}
	if m.method == "" {
		return "a response"
	}
	return m.method
}

func (s *Server) newSessionID() string {
	if s.Session.None {
		return ""
	}
	s.mu.Lock()
	s.nextSess++
	n := s.nextSess
	s.mu.Unlock()
	if s.Session.ID != nil {
		return s.Session.ID()
	}
	return "session-" + itoa(n)
}

// checkVersionHeader demands the negotiated version on everything after
// initialize; 2024-11-05 and 2025-03-26 did not have the header.
func (c *conn) checkVersionHeader(header http.Header, what string) bool {
	c.mu.Lock()
	version := c.version
	c.mu.Unlock()
	got := header.Get("MCP-Protocol-Version")
	if got == version || version == "" || c.s.Lax.Version || got == "" && version < "2025-06-18" {
		return true
	}
	c.s.violate("%s: MCP-Protocol-Version is %q, negotiated was %s", what, got, version)
	return false
}

// expired counts a request and reports whether the session just ended.
func (c *conn) expired() bool {
	c.mu.Lock()
	c.requests++
	over := c.s.Session.ExpireAfter > 0 && c.requests > c.s.Session.ExpireAfter && c.version != ""
	c.mu.Unlock()
	if over {
		c.s.drop(c)
	}
	return over
}
