package transport

import (
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// redactor replaces secrets in foreign text; nil = there are none.
type redactor func(string) string

// longestSecret is how long a secret may be and still be found where text is
// cut.
const longestSecret = 8 << 10

// clip returns the start of b, at most limit bytes of it and a mark of the cut.
// Secrets are replaced before anything is cut: half a secret would not be
// found.
func (r redactor) clip(b []byte, limit int) string {
	window := limit + 2*longestSecret
	whole := len(b) <= window
	text := string(b[:min(len(b), window)])
	if r != nil {
		if text = r(text); !whole { // it may end with the first part of a secret
			text = text[:max(0, len(text)-longestSecret)]
		}
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if whole && len(text) <= limit {
		return text
	}
	cut := max(0, min(limit-len("…"), len(text)))
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// excerptBytes bounds what an error message shows of a reply.
const excerptBytes = 200

// excerpt returns the start of b in printable form, at most excerptBytes long.
func (r redactor) excerpt(b []byte) string {
	text := r.clip(b, 2*excerptBytes) // unprintable runes may shrink
	var s strings.Builder
	for _, c := range text {
		switch {
		case c == '\n' || c == '\r' || c == '\t':
			c = ' '
		case c == utf8.RuneError || !unicode.IsPrint(c):
			c = '.'
		}
		if s.Len()+utf8.RuneLen(c) > excerptBytes-len("…") {
			s.WriteString("…")
			break
		}
		s.WriteRune(c)
	}
	return s.String()
}

// text is a short foreign text, like a header or an id, for an error message.
func (r redactor) text(s string) string { return r.excerpt([]byte(s)) }

// show is foreign text for a log record; the work is done only if the record
// is written.
func (r redactor) show(b []byte) slog.LogValuer { return shown{r, b} }

type shown struct {
	redact redactor
	data   []byte
}

// LogValue returns an excerpt.
func (s shown) LogValue() slog.Value { return slog.StringValue(s.redact.excerpt(s.data)) }

// cover returns err with a text in which secrets are replaced: the errors of
// parsers and of net/http repeat what a server has sent.
func (r redactor) cover(err error) error {
	if r == nil || err == nil {
		return err
	}
	return &covered{r, err}
}

type covered struct {
	redact redactor
	err    error
}

// Error returns the redacted text.
func (c *covered) Error() string { return c.redact(c.err.Error()) }

// Unwrap returns the error itself.
func (c *covered) Unwrap() error { return c.err }
