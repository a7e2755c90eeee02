package config

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// Secret is text that must not reach a log, an error or a dump: fmt, slog,
// encoding/json and YAML encoders all print a placeholder for it. Only
// [Secret.Reveal] returns the text.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

// String implements [fmt.Stringer].
func (Secret) String() string { return redacted }

// Format implements [fmt.Formatter], because verbs such as %d would go round
// String.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements [encoding.TextMarshaler].
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Reveal returns the texts of a map of secrets, nil for an empty map.
func Reveal(secrets map[string]Secret) map[string]string {
	if len(secrets) == 0 {
		return nil
	}
	texts := make(map[string]string, len(secrets))
	for name, s := range secrets {
		texts[name] = s.Reveal()
	}
	return texts
}

// minRedacted is the shortest secret that a [Target.Redactor] looks for:
// shorter ones would tear holes into innocent text.
const minRedacted = 6

// Redactor returns a function that replaces every value of Headers and Env in
// text from elsewhere, such as a server's error or the stderr of a child, by a
// placeholder. Values under 6 bytes are left alone. Of a header such as
// "Bearer TOKEN" the token alone is looked for, too. The function is safe for
// concurrent use and does not see later changes of the target.
func (t *Target) Redactor() func(string) string {
	secrets := map[string]bool{}
	for _, header := range t.Headers {
		secrets[header.Reveal()] = true
		if scheme, credentials, ok := strings.Cut(header.Reveal(), " "); ok && !strings.ContainsAny(scheme, ",;=") {
			secrets[strings.TrimSpace(credentials)] = true
		}
	}
	for _, value := range t.Env {
		secrets[value.Reveal()] = true
	}
	maps.DeleteFunc(secrets, func(s string, _ bool) bool { return len(s) < minRedacted })
	if len(secrets) == 0 {
		return func(text string) string { return text }
	}
	var pairs []string
	for _, s := range slices.SortedFunc(maps.Keys(secrets), longestFirst) {
		pairs = append(pairs, s, redacted)
	}
	return strings.NewReplacer(pairs...).Replace
}

// longestFirst keeps a secret that begins another from hiding it.
func longestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}
