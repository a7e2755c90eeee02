package rawjson

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote decodes a JSON string that was checked. Each byte of invalid UTF-8 and
// each lone surrogate becomes U+FFFD, and clean false.
func Unquote(quoted []byte) (s string, clean bool) {
	return UnquoteChecked(quoted, false)
}

// UnquoteChecked is [Unquote] for what [Scanner.Checked] returned.
func UnquoteChecked(quoted []byte, valid bool) (s string, clean bool) {
	inner := inside(quoted)
	valid = valid || utf8.Valid(inner)
	if valid && bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	var b strings.Builder
	b.Grow(len(inner))
	var part window
	for clean = true; len(inner) > 0; {
		read, n := decode(&part, inner, valid, &clean)
		b.Write(part[:n])
		inner = inner[read:]
	}
	return b.String(), clean
}

// AppendUnquote is [UnquoteChecked] with dst as its destination.
func AppendUnquote(dst, quoted []byte, valid bool) (out []byte, clean bool) {
	inner := inside(quoted)
	valid = valid || utf8.Valid(inner)
	if valid && bytes.IndexByte(inner, '\\') < 0 {
		return append(dst, inner...), true
	}
	for clean = true; len(inner) > 0; {
		room := dst[len(dst):cap(dst)]
		if len(room) < len(window{}) {
			break
		}
		read, n := decode((*window)(room), inner, valid, &clean)
		inner, dst = inner[read:], dst[:len(dst)+n]
	}
	var part window
	for len(inner) > 0 {
		read, n := decode(&part, inner, valid, &clean)
		inner, dst = inner[read:], append(dst, part[:n]...)
	}
	return dst, clean
}

// UnquoteInPlace decodes a string whose UTF-8 is valid over its own JSON. The
// text begins behind the quote, and nothing before it or behind the string is
// touched.
func UnquoteInPlace(quoted []byte) (text []byte) {
	inner := inside(quoted)
	plain := bytes.IndexByte(inner, '\\')
	if plain < 0 {
		return inner
	}
	var part window
	text, clean := inner[:plain], true
	for rest := inner[plain:]; len(rest) > 0; {
		read, n := decode(&part, rest, true, &clean)
		text, rest = append(text, part[:n]...), rest[read:] // no escape is shorter than what it stands for
	}
	return text
}

// Name is the text of a member's name for comparisons. It aliases quoted unless
// that has escapes, and keeps invalid UTF-8.
func Name(quoted []byte) []byte {
	inner := inside(quoted)
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	name, _ := AppendUnquote(nil, quoted, false)
	return name
}

func inside(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// decode decodes the inside of a string from its start on, until part is full,
// and makes clean false when it had to replace something. valid says that the
// UTF-8 of the string is. It returns how many bytes it read and wrote.
func decode(part *window, src []byte, valid bool, clean *bool) (read, wrote int) {
	const room = 16 // for what one step adds at most
	i, n := 0, 0
	for i < len(src) && n <= partBytes-room {
		if valid && len(src)-i > blockBytes {
			count, end := decodeBlocks(part, n, src[i:], clean)
			i, n = i+count, end
			switch {
			case count > 0:
				continue
			case n > 0 && len(src)-i >= blockBytes+ahead:
				return i, n // there is no room for a block
			}
		}
		switch c := src[i]; {
		case c == '\\' && i+1 < len(src) && escapes[src[i+1]] != 0:
			part[n] = escapes[src[i+1]]
			i, n = i+2, n+1
		case c == '\\':
			size, wide := decodeUnicode(part[n:], src[i:])
			*clean = *clean && size > 0
			i, n = i+max(size, -size), n+wide
		case valid || c < utf8.RuneSelf: // a block may end inside of a character
			part[n] = c
			i, n = i+1, n+1
		default:
			r, size := utf8.DecodeRune(src[i:])
			*clean = *clean && (r != utf8.RuneError || size > 1)
			i, n = i+size, n+utf8.EncodeRune(part[n:], r)
		}
	}
	return i, n
}

// decodeUnicode writes what a \u escape stands for, or two that are one
// character. size is what it read, negative when that is no character.
func decodeUnicode(dst, src []byte) (size, wide int) {
	r, size := unicodeOf(src)
	return size, utf8.EncodeRune(dst, r)
}

func unicodeOf(src []byte) (r rune, size int) {
	if len(src) < 6 {
		return utf8.RuneError, -len(src)
	}
	r, ok := hex4(src[2:])
	if !ok {
		return utf8.RuneError, -6
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(src) >= 12 && src[6] == '\\' && src[7] == 'u' {
		if low, ok := hex4(src[8:]); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return both, 12
			}
		}
	}
	return utf8.RuneError, -6
}
