package config

import (
	"fmt"
	"strings"
)

// Telemetry says what the bridge makes of its callers' traces. Whether and
// where spans go is told by the OTEL_* variables.
type Telemetry struct {
	// TrustRemote continues the caller's trace and obeys its sampling decision.
	// Otherwise each call begins a trace of its own, linked to the caller's.
	TrustRemote bool `yaml:"trust_remote"`
}

// BaggagePolicy says which of a caller's baggage reaches a target.
type BaggagePolicy string

// BaggageForward lets all of it through, BaggageDrop none, BaggageAllow the
// members of certain keys.
const (
	BaggageForward BaggagePolicy = "forward"
	BaggageDrop    BaggagePolicy = "drop"
	BaggageAllow   BaggagePolicy = "allow"
)

// Baggage is the W3C baggage that reaches a target, in `_meta` and in HTTP
// headers.
type Baggage struct {
	Policy BaggagePolicy `yaml:"policy"`

	// Keys are those of BaggageAllow; nobody else has any.
	Keys []string `yaml:"keys"`
}

func baggagePolicies() []BaggagePolicy {
	return []BaggagePolicy{BaggageForward, BaggageDrop, BaggageAllow}
}

func (r *report) baggage(key string, b *Baggage) {
	oneOf(r, key+".policy", b.Policy, baggagePolicies())
	switch {
	case b.Policy == BaggageAllow && len(b.Keys) == 0:
		r.add(key+".keys", "must name the baggage keys that policy: allow lets through, such as [tenant]; policy: drop lets none through")
	case b.Policy != BaggageAllow && len(b.Keys) > 0:
		r.add(key+".keys", "have no effect with this policy; set policy: allow, or remove them")
	}
	for i, name := range b.Keys {
		if name == "" || strings.ContainsFunc(name, invalidInToken) {
			r.add(fmt.Sprintf("%s.keys[%d]", key, i), "is no baggage key; a key has letters, digits and ! # $ %% & ' * + - . ^ _ ` | ~")
		}
	}
}

// invalidInToken is what RFC 7230 keeps out of a token, which a baggage key is.
func invalidInToken(c rune) bool {
	alphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
