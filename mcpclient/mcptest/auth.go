package mcptest

import (
	"net/http"
	"net/url"
	"time"
)

// Methods of log entries for exchanges that never reached the endpoint.
const (
	MethodUnauthorized = "$unauthorized" // answered 401 or Auth.Status
	MethodToken        = "$token"        // a token was issued
	MethodRedirected   = "$redirected"   // answered with a redirect
)

// AuthOptions make the HTTP endpoint ask for credentials. The zero value asks
// for none.
type AuthOptions struct {
	// Times is how many exchanges are refused, whatever they carry, before any
	// is let in; negative = all.
	Times int
	// Token is what "Authorization: Bearer" must hold; "" = anything.
	Token string
	// Issue makes POST /token issue token-1, token-2…, of which only the newest
	// is let in, until RevokeToken.
	Issue bool
	// TokenDelay is how long issuing a token takes.
	TokenDelay time.Duration
	// Status of a refusal; 0 = 401. Challenge is its WWW-Authenticate; "" = none.
	Status    int
	Challenge string
}

// RevokeToken makes the newest issued token invalid.
func (s *Server) RevokeToken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = s.tokens
}

// authorize answers what must not reach the endpoint; true means that it did.
func (x *exchange) authorize() bool {
	s, o := x.s, x.s.Auth
	if o.Issue && x.req.Method == http.MethodPost && x.req.URL.Path == "/token" {
		x.issue()
		return true
	}
	s.mu.Lock()
	refused := o.Times < 0 || s.refused < o.Times
	if refused {
		s.refused++
	}
	token := o.Token
	if o.Issue {
		token = "token-" + itoa(s.tokens)
		refused = refused || s.tokens == s.revoked
	}
	s.mu.Unlock()
	if !refused && (token == "" || x.req.Header.Get("Authorization") == "Bearer "+token) {
		return false
	}
	x.log(Entry{Method: MethodUnauthorized})
	if o.Challenge != "" {
		x.w.Header().Set("WWW-Authenticate", o.Challenge)
	}
	x.w.WriteHeader(statusOr(o.Status, http.StatusUnauthorized))
	return true
}

func (x *exchange) issue() {
	x.log(Entry{Method: MethodToken})
	timer := time.NewTimer(x.s.Auth.TokenDelay)
	defer timer.Stop()
	ctx, stop := x.context(x.s.ctx)
	defer stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	x.s.mu.Lock()
	x.s.tokens++
	n := x.s.tokens
	x.s.mu.Unlock()
	x.reply(&Reply{ContentType: "application/json", Body: `{"access_token":"token-` + itoa(n) + `","token_type":"Bearer","expires_in":3600}`})
}

// RedirectOptions send HTTP exchanges elsewhere. The zero value does not.
type RedirectOptions struct {
	// Code is the status; 0 = 307.
	Code int
	// Target is the Location. Exchanges that have its path, and its host if it
	// names one, are served; all others are redirected. "" = none is.
	Target string
}

// redirect answers exchanges that are at the wrong place.
func (x *exchange) redirect() bool {
	o := x.s.Redirect
	if o.Target == "" {
		return false
	}
	to, err := url.Parse(o.Target)
	if err != nil || to.Path == x.req.URL.Path && (to.Host == "" || to.Host == x.req.Host) {
		return false
	}
	x.log(Entry{Method: MethodRedirected})
	x.w.Header().Set("Location", o.Target)
	x.w.WriteHeader(statusOr(o.Code, http.StatusTemporaryRedirect))
	return true
}
