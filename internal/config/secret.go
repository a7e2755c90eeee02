package config

import (
	"fmt"
	"io"
	"log/slog"
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
