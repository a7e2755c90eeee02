package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote decodes a JSON string that was checked. Each byte of invalid UTF-8 and
// each lone surrogate becomes U+FFFD, and clean false.
func Unquote(quoted []byte) (s string, clean bool) {
	inner := inside(quoted)
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), true
	}
	var b strings.Builder
	b.Grow(len(inner))
	clean = decode(inner, func(part []byte) { b.Write(part) })
	return b.String(), clean
}

// AppendUnquote is [Unquote] with dst as its destination.
func AppendUnquote(dst, quoted []byte) (out []byte, clean bool) {
	inner := inside(quoted)
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return append(dst, inner...), true
	}
	clean = decode(inner, func(part []byte) { dst = append(dst, part...) })
	return dst, clean
}

// Name is the text of a member's name for comparisons. It aliases quoted unless
// that has escapes, and keeps invalid UTF-8.
func Name(quoted []byte) []byte {
	inner := inside(quoted)
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	name, _ := AppendUnquote(nil, quoted)
	return name
}

func inside(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	return quoted[1 : len(quoted)-1]
}

// decode passes the text of a string on in parts that are valid until write
// returns.
func decode(src []byte, write func(part []byte)) (clean bool) {
	const room = 16 // for what one step adds at most
	var part [2 << 10]byte
	n, i := 0, 0
	clean = true
	for {
		for i+8 <= len(src) {
			if n > len(part)-room {
				write(part[:n])
				n = 0
			}
			w := binary.LittleEndian.Uint64(src[i:])
			binary.LittleEndian.PutUint64(part[n:], w)
			slash := w ^ (ones * '\\')
			if m := ((slash-ones)&^slash | w) & highs; m != 0 {
				plain := bits.TrailingZeros64(m) >> 3
				i, n = i+plain, n+plain
				break
			}
			i, n = i+8, n+8
		}
		if i >= len(src) {
			write(part[:n])
			return clean
		}
		if n > len(part)-room {
			write(part[:n])
			n = 0
		}
		switch c := src[i]; {
		case c == '\\' && i+1 < len(src) && escapes[src[i+1]] != 0:
			part[n] = escapes[src[i+1]]
			i, n = i+2, n+1
		case c == '\\':
			r, size := decodeUnicode(src[i:])
			clean = clean && size > 0
			i, n = i+max(size, -size), n+utf8.EncodeRune(part[n:], r)
		case c < utf8.RuneSelf:
			part[n] = c
			i, n = i+1, n+1
		default:
			r, size := utf8.DecodeRune(src[i:])
			clean = clean && (r != utf8.RuneError || size > 1)
			i, n = i+size, n+utf8.EncodeRune(part[n:], r)
		}
	}
}

// decodeUnicode reads a \u escape, or two that are one character. size is
// negative when what it read is no character.
func decodeUnicode(src []byte) (r rune, size int) {
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
