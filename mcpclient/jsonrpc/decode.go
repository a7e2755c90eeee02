package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/rawjson"
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

// DecodeGrowing is [Decode] for data that comes while it is read, see
// [rawjson.Growing]. After an error the whole is to be given to Decode.
func DecodeGrowing(more func() (data []byte, ok bool)) (*Message, error) {
	e := envelope{}
	if err := e.scan(rawjson.Growing(more)); err != nil {
		return nil, err
	}
	if err := e.classify(); err != nil {
		return nil, err
	}
	return &e.msg, nil
}

// DecodeBatch splits a JSON array of messages (2025-03-26 and older) into the
// bytes of its elements, which alias data. ok is false when data is no array.
func DecodeBatch(data []byte) (elements [][]byte, ok bool, err error) {
	if start := bytes.TrimLeft(data, " \t\r\n"); len(start) == 0 || start[0] != '[' {
		return nil, false, nil
	}
	s := rawjson.New(data, rawjson.Index{})
	s.Enter()
	for s.Element(len(elements) == 0) {
		v := s.Value()
		if s.Err() != nil {
			break
		}
		elements = append(elements, v)
	}
	return elements, true, syntaxError(s.End())
}

// envelope is a message under construction.
type envelope struct {
	msg       Message
	idErr     error
	sawMethod bool // a method that is not null
	sawParams bool
	sawAnswer bool // a result, or an error that is not null
}

func (e *envelope) read(data []byte) error { return e.scan(rawjson.New(data, rawjson.Index{})) }

func (e *envelope) scan(s rawjson.Scanner) error {
	s.Record()
	if kind := s.Kind(); kind != '{' && kind != 0 {
		return fmt.Errorf("a JSON-RPC message must be an object, not %s", kind)
	}
	s.Enter()
	resultAt := 0
	for first := true; ; first = false {
		name, ok := s.Member(first)
		if !ok {
			break
		}
		start := s.Offset()
		set, err := e.member(&s, rawjson.Name(name))
		if err != nil {
			return err
		}
		if set {
			resultAt = start
		}
	}
	if err := s.End(); err != nil {
		return syntaxError(err)
	}
	if e.msg.Result != nil {
		e.msg.Known = s.Index(e.msg.Result, resultAt)
	}
	return nil
}

// member reads the value of one member; isResult says that it is the result.
func (e *envelope) member(s *rawjson.Scanner, name []byte) (isResult bool, err error) {
	// Noted before the value is read: a broken value must still tell a call
	// of the server from an answer to ours.
	switch string(name) {
	case "params":
		e.sawParams = true
	case "result":
		e.sawAnswer = true
	}
	v := s.Value()
	if err := s.Err(); err != nil {
		e.sawAnswer = e.sawAnswer || string(name) == "error" // a broken value is not null
		return false, syntaxError(err)
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
			return false, nil
		}
		if v.Kind() != '"' {
			return false, fmt.Errorf("the JSON-RPC method must be a string, not %s", v.Kind())
		}
		e.msg.Method, _ = rawjson.Unquote(v)
	case "params":
		if e.msg.Params = v; null {
			e.msg.Params = nil
		}
	case "result":
		e.msg.Result = v
		return true, nil
	case "error":
		e.msg.Error = nil
		if null {
			return false, nil
		}
		e.sawAnswer = true
		e.msg.Error, err = decodeError(v)
	}
	return false, err
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
	e, codeOK, textOK := &Error{}, false, true
	s := rawjson.New(object, rawjson.Index{})
	s.Enter()
	for first := true; ; first = false {
		name, ok := s.Member(first)
		if !ok {
			break
		}
		v := s.Value()
		if s.Err() != nil {
			break
		}
		switch string(rawjson.Name(name)) {
		case "code":
			e.Code, codeOK = integer(v)
		case "message":
			if e.Message, textOK = "", v.Kind() == '"' || v.Kind() == 'n'; v.Kind() == '"' {
				e.Message, _ = rawjson.Unquote(v)
			}
		case "data":
			if e.Data = v; v.Kind() == 'n' {
				e.Data = nil
			}
		}
	}
	if err := s.End(); err != nil {
		return nil, syntaxError(err)
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

func syntaxError(err error) error {
	if err == nil {
		return nil
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
