package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// ID is the id of a request: a string or an integer. The zero value means that
// there is none. IDs are equal under == only if both type and value are equal:
// 1 and "1" differ, and 1.0 is no ID at all.
type ID struct {
	kind idKind
	num  int64
	text string // the decoded string, or the token of an integer beyond int64
}

type idKind uint8

const (
	idNone idKind = iota
	idInt
	idBigInt
	idString
)

// IntID returns the integer n as an ID.
func IntID(n int64) ID { return ID{kind: idInt, num: n} }

// StringID returns the string s as an ID; invalid UTF-8 becomes U+FFFD.
func StringID(s string) ID {
	return ID{kind: idString, text: string(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD")))}
}

// ParseID reads one JSON token, a string or an integer, without white space
// around it. Null, fractions, exponents and broken strings are errors.
func ParseID(raw []byte) (ID, error) {
	if len(raw) == 0 {
		return ID{}, errors.New("JSON-RPC id is missing")
	}
	switch c := raw[0]; {
	case c == '"':
		s, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return ID{}, fmt.Errorf("JSON-RPC id is not a valid string: %w", err)
		}
		return ID{kind: idString, text: string(s)}, nil
	case isInteger(raw):
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return IntID(n), nil
		}
		return ID{kind: idBigInt, text: string(raw)}, nil
	}
	return ID{}, errors.New("JSON-RPC id must be a string or an integer")
}

// isInteger reports whether raw is a JSON number without fraction and exponent.
func isInteger(raw []byte) bool {
	digits := bytes.TrimPrefix(raw, []byte("-"))
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// Retyped returns the ID with the same text and the other type: the string "7"
// for 7, and 7 for "7". It reports false where there is none.
func (id ID) Retyped() (ID, bool) {
	switch id.kind {
	case idInt, idBigInt:
		return ID{kind: idString, text: id.String()}, true
	case idString:
		if !isInteger([]byte(id.text)) {
			return ID{}, false
		}
		other, err := ParseID([]byte(id.text))
		return other, err == nil && other.String() == id.text // "-0" is not 0
	case idNone:
	}
	return ID{}, false
}

// IsZero reports whether there is no ID.
func (id ID) IsZero() bool { return id.kind == idNone }

// String returns the ID for display: 7 or abc, "none" for the zero value. It
// is not unique: 7 and "7" look the same.
func (id ID) String() string {
	switch id.kind {
	case idNone:
		return "none"
	case idInt:
		return strconv.FormatInt(id.num, 10)
	case idBigInt, idString:
	}
	return id.text
}

// AppendJSON appends the ID as a JSON token, null for the zero value.
func (id ID) AppendJSON(dst []byte) []byte {
	switch id.kind {
	case idNone:
		return append(dst, "null"...)
	case idInt:
		return strconv.AppendInt(dst, id.num, 10)
	case idBigInt:
		return append(dst, id.text...)
	case idString:
	}
	return appendString(dst, id.text)
}
