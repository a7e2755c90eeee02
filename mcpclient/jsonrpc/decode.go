package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads one message, which may have white space around it. The message
// aliases data, which must not change while it is in use.
//
// When data is broken but shows which of our calls it was meant to answer, the
// error comes with a message of kind [Invalid] that carries this ID, so that
// the call can be failed; without that the message is nil. Calls of the
// server, recognised by a method without result and error, never do so.
func Decode(data []byte) (*Message, error) {
	e := envelope{}
	err := e.read(data)
	if err == nil {
		err = e.classify()
	}
	if err == nil {
		return &e.msg, nil
	}
	forUs := !e.sawMethod && !e.sawParams || e.sawAnswer
	if e.msg.ID.IsZero() || !forUs {
		return nil, err
	}
	return &Message{Kind: Invalid, ID: e.msg.ID}, err
}

// DecodeBatch splits a JSON array of messages (2025-03-26 and older) into the
// bytes of its elements, which alias data. ok is false when data is no array.
func DecodeBatch(data []byte) (elements [][]byte, ok bool, err error) {
	r := newReader(data)
	if r.dec.PeekKind() != '[' {
		return nil, false, nil
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, true, syntaxError(err)
	}
	for r.dec.PeekKind() != ']' {
		v, err := r.dec.ReadValue()
		if err != nil {
			return elements, true, syntaxError(err)
		}
		elements = append(elements, v)
	}
	return elements, true, r.end()
}

// envelope is a message under construction.
type envelope struct {
	msg       Message
	idErr     error
	sawMethod bool // a method that is not null
	sawParams bool
	sawAnswer bool // a result, or an error that is not null
}

func (e *envelope) read(data []byte) error {
	r := newReader(data)
	if kind := r.dec.PeekKind(); kind != '{' {
		if _, err := r.dec.ReadToken(); err != nil {
			return syntaxError(err)
		}
		return fmt.Errorf("a JSON-RPC message must be an object, not %s", kind)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return syntaxError(err)
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		if err := e.member(r.dec, memberName(name)); err != nil {
			return err
		}
	}
	return r.end()
}

// memberName returns the text of a quoted name; the names that matter are
// compared without a copy unless a peer escapes them.
func memberName(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	name, _ := jsontext.AppendUnquote(nil, quoted) // a broken name is an unknown name
	return name
}

func (e *envelope) member(dec *jsontext.Decoder, name []byte) error {
	// Noted before the value is read: a broken value must still tell a call
	// of the server from an answer to ours.
	switch string(name) {
	case "params":
		e.sawParams = true
	case "result":
		e.sawAnswer = true
	}
	v, err := dec.ReadValue()
	if err != nil {
		e.sawAnswer = e.sawAnswer || string(name) == "error" // a broken value is not null
		return syntaxError(err)
	}
	null := v.Kind() == 'n'
	switch string(name) {
	case "id":
		e.msg.ID, e.idErr = ID{}, nil
		if !null {
			e.msg.ID, e.idErr = ParseID(v)
		}
	case "method":
		e.msg.Method, e.sawMethod = "", !null
		if null {
			return nil
		}
		if v.Kind() != '"' {
			return fmt.Errorf("the JSON-RPC method must be a string, not %s", v.Kind())
		}
		e.msg.Method = text(v)
	case "params":
		if e.msg.Params = v; null {
			e.msg.Params = nil
		}
	case "result":
		e.msg.Result = v
	case "error":
		e.msg.Error = nil
		if null {
			return nil
		}
		e.sawAnswer = true
		e.msg.Error, err = decodeError(v)
	}
	return err
}

// classify decides what kind of message was read.
func (e *envelope) classify() error {
	m := &e.msg
	if e.idErr != nil {
		return e.idErr
	}
	if m.Error != nil && m.Result.Kind() == 'n' {
		m.Result = nil // a null result beside an error means none
	}
	switch answer := m.Result != nil || m.Error != nil; {
	case m.Result != nil && m.Error != nil:
		return errors.New("a JSON-RPC message has both a result and an error")
	case e.sawMethod && answer:
		return errors.New("a JSON-RPC message has both a method and a result or error")
	case answer:
		m.Kind = Response
	case !e.sawMethod:
		return errors.New("a JSON-RPC message has neither method, result nor error")
	case m.ID.IsZero():
		m.Kind = Notification
	default:
		m.Kind = Request
	}
	return nil
}

// decodeError reads an error object.
func decodeError(object jsontext.Value) (*Error, error) {
	if object.Kind() != '{' {
		return nil, fmt.Errorf("the JSON-RPC error must be an object, not %s", object.Kind())
	}
	r := newReader(object)
	e, codeOK, textOK := &Error{}, false, true
	if _, err := r.dec.ReadToken(); err != nil {
		return nil, syntaxError(err)
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.dec.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}
		key := string(memberName(name))
		v, err := r.dec.ReadValue()
		if err != nil {
			return nil, syntaxError(err)
		}
		switch key {
		case "code":
			e.Code, codeOK = integer(v)
		case "message":
			if e.Message, textOK = "", v.Kind() == '"' || v.Kind() == 'n'; v.Kind() == '"' {
				e.Message = text(v)
			}
		case "data":
			if e.Data = v; v.Kind() == 'n' {
				e.Data = nil
			}
		}
	}
	if e.Data == nil && !(codeOK && textOK) {
		e.Data = object
	}
	return e, nil
}

// integer returns the value of a JSON number that is an integer, however it is
// written.
func integer(v jsontext.Value) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if n := int64(f); err == nil && v.Kind() == '0' && float64(n) == f && n > -1<<53 && n < 1<<53 {
		return n, true
	}
	return 0, false
}

// text decodes a JSON string; invalid UTF-8 becomes U+FFFD.
func text(v jsontext.Value) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(bytes.ToValidUTF8(v[1:len(v)-1], []byte("\uFFFD")))
	}
	b, _ := jsontext.AppendUnquote(nil, v) // the only error is invalid UTF-8, which is replaced
	return string(b)
}

// reader reads one JSON document whose values alias it.
type reader struct {
	dec *jsontext.Decoder
}

func newReader(data []byte) reader {
	return reader{jsontext.NewDecoder(bytes.NewBuffer(data),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
}

// end reads the closing bracket and makes sure that nothing follows.
func (r reader) end() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return syntaxError(err)
	}
	_, err := r.dec.ReadToken()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errors.New("data follows the JSON-RPC message")
	}
	return syntaxError(err)
}

func syntaxError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("invalid JSON: %w", err)
}

// PeekID finds the ID of a response of which only the start and the end are
// known, since it was too large to keep. It reports false for anything that
// looks like a call of the server, or when no ID is to be seen.
func PeekID(head, tail []byte) (ID, bool) {
	e := envelope{}
	_ = e.read(head) // the cut is an error by nature
	if e.sawMethod || e.sawParams || e.idErr != nil {
		return ID{}, false
	}
	if !e.msg.ID.IsZero() {
		return e.msg.ID, true
	}
	// Members behind a large result: from the last "id" on, the end must read
	// as the rest of an object, which it does only at the top level.
	at := bytes.LastIndex(tail, []byte(`"id"`))
	if !e.sawAnswer || at < 1 || tail[at-1] == '\\' {
		return ID{}, false
	}
	rest := envelope{}
	if err := rest.read(append([]byte("{"), tail[at:]...)); err != nil || rest.idErr != nil || rest.sawMethod || rest.sawParams {
		return ID{}, false
	}
	return rest.msg.ID, !rest.msg.ID.IsZero()
}
