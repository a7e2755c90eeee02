package jsonrpc

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendRequest appends a request to dst. params are the pieces of one complete
// JSON value, none = no params. The result holds no line break.
func AppendRequest(dst []byte, id ID, method string, params ...[]byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = id.AppendJSON(dst)
	dst = append(dst, `,"method":`...)
	return appendCall(dst, method, params)
}

// AppendNotification appends a notification to dst, under the rules of
// [AppendRequest].
func AppendNotification(dst []byte, method string, params ...[]byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	return appendCall(dst, method, params)
}

// AppendResult appends a successful response to dst. result is one complete
// JSON value, nil = an empty object.
func AppendResult(dst []byte, id ID, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = id.AppendJSON(dst)
	dst = append(dst, `,"result":`...)
	if len(result) == 0 {
		result = []byte("{}")
	}
	dst = appendLine(dst, result)
	return append(dst, '}')
}

// AppendError appends a failed response to dst; a zero id becomes null.
func AppendError(dst []byte, id ID, e *Error) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = id.AppendJSON(dst)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, e.Code, 10)
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, e.Message)
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = appendLine(dst, e.Data)
	}
	return append(dst, "}}"...)
}

func appendCall(dst []byte, method string, params [][]byte) []byte {
	dst = appendString(dst, method)
	for i, piece := range params {
		if i == 0 && len(piece) > 0 {
			dst = append(dst, `,"params":`...)
		}
		dst = appendLine(dst, piece)
	}
	return append(dst, '}')
}

// appendLine appends JSON with its line breaks turned into spaces: outside of
// strings they mean the same, and inside of strings JSON forbids them.
func appendLine(dst, json []byte) []byte {
	start := len(dst)
	dst = append(dst, json...)
	blank(dst[start:], '\n')
	blank(dst[start:], '\r')
	return dst
}

// blank turns each c into a space.
func blank(json []byte, c byte) {
	for {
		i := bytes.IndexByte(json, c)
		if i < 0 {
			return
		}
		json[i] = ' '
		json = json[i+1:]
	}
}

// appendString appends s as a JSON string; invalid UTF-8 becomes U+FFFD.
func appendString(dst []byte, s string) []byte {
	out, _ := jsontext.AppendQuote(dst, s) // the only error is invalid UTF-8, which is replaced
	return out
}
