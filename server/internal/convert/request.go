package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Reason says in one word what is wrong with a field, as google.rpc.BadRequest.FieldViolation.reason does.
type Reason string

// The reasons of a [FieldError].
const (
	ReasonBothSet     Reason = "BOTH_SET"           // both the decoded form and the text are set
	ReasonNotSet      Reason = "NOT_SET"            // something required is missing
	ReasonInvalidJSON Reason = "INVALID_JSON"       // the text is not strict JSON
	ReasonNotObject   Reason = "NOT_AN_OBJECT"      // the text is JSON, but not an object
	ReasonTooDeep     Reason = "TOO_DEEP"           // nested deeper than MaxRequestDepth
	ReasonNotFinite   Reason = "NUMBER_NOT_FINITE"  // NaN or infinity
	ReasonIDMismatch  Reason = "ID_MISMATCH"        // an answer under a key that is not its id
	ReasonRefusal     Reason = "ERROR_NOT_POSSIBLE" // an error where MCP has no place for one
)

// FieldError says what is wrong with one field of a request. All of it may be shown to the caller.
type FieldError struct {
	// Field is the path of the field as in google.rpc.BadRequest.FieldViolation.field, in proto names.
	Field string
	// Reason is for programs.
	Reason Reason
	// Description says what is wrong and what to do about it, without repeating Field.
	Description string
}

// Error names the field and what is wrong with it.
func (e *FieldError) Error() string { return e.Field + ": " + e.Description }

// Arguments makes the JSON object that either s or text holds; nil when neither is set. The text is passed on token
// for token, without insignificant whitespace if there is a line break in it, since MCP over stdio is one message a
// line. field is the name of s; the text's is field + "_json". The error is a [*FieldError].
func Arguments(s *structpb.Struct, text *string, field string) ([]byte, error) {
	switch {
	case s != nil && text != nil:
		return nil, &FieldError{field + "_json", ReasonBothSet, fmt.Sprintf("%[1]s and %[1]s_json are both set; set one of them", field)}
	case text != nil:
		return objectText(*text, field+"_json")
	case s != nil:
		return document(s, field)
	}
	return nil, nil
}

// Meta makes the MCP `_meta` object of a request; nil when s is nil. The error is a [*FieldError] for field.
func Meta(s *structpb.Struct, field string) ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	return document(s, field)
}

// ClientCapabilities makes the MCP `ClientCapabilities` object; nil when c is nil. The error is a [*FieldError].
func ClientCapabilities(c *pb.ClientCapabilities) ([]byte, error) {
	if c == nil {
		return nil, nil
	}
	var members []byte
	if e := c.GetElicitation(); e != nil {
		members = appendMember(members, []byte(`"elicitation"`), flags("form", e.GetForm(), "url", e.GetUrl()))
	}
	if s := c.GetSampling(); s != nil {
		members = appendMember(members, []byte(`"sampling"`), flags("tools", s.GetTools(), "context", s.GetContext()))
	}
	if c.GetRoots() != nil {
		members = appendMember(members, []byte(`"roots"`), []byte("{}"))
	}
	if len(c.GetExtensions()) > 0 {
		var w writer
		w.out = append(w.out, '{')
		for i, id := range slices.Sorted(maps.Keys(c.GetExtensions())) {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			field := fmt.Sprintf("client_capabilities.extensions[%q]", id)
			if err := w.string(id); err != nil {
				err.Field = field
				return nil, err
			}
			w.out = append(w.out, ':')
			if err := w.object(c.GetExtensions()[id]); err != nil {
				err.Field = field
				return nil, err
			}
		}
		members = appendMember(members, []byte(`"extensions"`), append(w.out, '}'))
	}
	if members == nil {
		return []byte("{}"), nil
	}
	return append(members, '}'), nil
}

// flags makes an object with an empty object under each name that is true.
func flags(name1 string, on1 bool, name2 string, on2 bool) []byte {
	switch {
	case on1 && on2:
		return fmt.Appendf(nil, `{%q:{},%q:{}}`, name1, name2)
	case on1:
		return fmt.Appendf(nil, `{%q:{}}`, name1)
	case on2:
		return fmt.Appendf(nil, `{%q:{}}`, name2)
	}
	return []byte("{}")
}

// InputResponses makes the MCP `inputResponses` object; nil when there are no answers. field is the name of the map.
// The error is a [*FieldError].
func InputResponses(answers map[string]*pb.InputResponse, field string) ([]byte, error) {
	if len(answers) == 0 {
		return nil, nil
	}
	var out []byte
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		path := fmt.Sprintf("%s[%q]", field, id)
		result, err := inputResponse(id, answers[id], path)
		if err != nil {
			return nil, err
		}
		name, err := jsontext.AppendQuote(nil, id)
		if err != nil {
			return nil, &FieldError{path, ReasonInvalidJSON, "the key is not valid UTF-8"}
		}
		out = appendMember(out, name, result)
	}
	return append(out, '}'), nil
}

func inputResponse(id string, a *pb.InputResponse, path string) ([]byte, error) {
	if a.GetId() != "" && a.GetId() != id {
		return nil, &FieldError{path + ".id", ReasonIDMismatch, "differs from the key of the map; leave it empty or make it equal"}
	}
	if a.GetError() != nil {
		return nil, &FieldError{path + ".error", ReasonRefusal, "MCP cannot carry an error as an answer here; answer an elicitation with the result {\"action\":\"decline\"}, or leave the call"}
	}
	if a.GetResult() == nil && (a == nil || a.ResultJson == nil) {
		return nil, &FieldError{path, ReasonNotSet, "holds no answer; set result or result_json"}
	}
	return Arguments(a.GetResult(), a.ResultJson, path+".result")
}

// objectText checks that text is one strict JSON object and makes it fit on one line.
func objectText(text, field string) ([]byte, error) {
	raw := jsontext.Value(text)
	if brackets := bytes.Count(raw, []byte("{")) + bytes.Count(raw, []byte("[")); brackets > MaxRequestDepth && depth(raw) > MaxRequestDepth {
		return nil, &FieldError{field, ReasonTooDeep, fmt.Sprintf("is nested deeper than %d levels", MaxRequestDepth)}
	}
	if !raw.IsValid() {
		return nil, &FieldError{field, ReasonInvalidJSON, mistake(raw)}
	}
	if raw.Kind() != '{' {
		return nil, &FieldError{field, ReasonNotObject, "is JSON, but not an object; give an object such as {\"name\": \"value\"}"}
	}
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 { // in valid JSON they are between tokens
		return compact(raw), nil
	}
	return raw, nil
}

// mistake says what is wrong with text that is not one JSON value.
func mistake(text []byte) string {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text))
	if _, err := dec.ReadValue(); err != nil {
		return syntaxMistake(text, err)
	}
	return fmt.Sprintf("continues after the end of the JSON object, at byte %d; give one object", dec.InputOffset())
}

// syntaxMistake describes an error of jsontext in our own words.
func syntaxMistake(text []byte, err error) string {
	if len(bytes.TrimSpace(text)) == 0 {
		return "is empty; give a JSON object, {} for an empty one, or leave the field unset"
	}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		name := ""
		if ok {
			name = syntax.JSONPointer.LastToken()
		}
		return fmt.Sprintf("has the member %.60q twice in one object", name)
	case errors.Is(err, jsontext.ErrNonStringName):
		return fmt.Sprintf("is not valid JSON: a member name that is no string at byte %d", syntax.ByteOffset)
	case !ok || errors.Is(err, io.ErrUnexpectedEOF):
		return "is not valid JSON: it ends too early"
	}
	return fmt.Sprintf("is not valid JSON at byte %d", syntax.ByteOffset)
}

// depth is how deep JSON is nested; text that is no JSON gives any answer.
func depth(json []byte) (deepest int) {
	level, inString := 0, false
	for i := 0; i < len(json); i++ {
		switch c := json[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}', c == ']':
			level--
		}
	}
	return deepest
}

// compact removes insignificant whitespace from valid JSON, in place.
func compact(json []byte) []byte {
	out, inString := json[:0], false
	for i := 0; i < len(json); i++ {
		c := json[i]
		switch {
		case inString && c == '\\':
			out = append(out, c)
			i++
			c = json[i]
		case c == '"':
			inString = !inString
		case !inString && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		out = append(out, c)
	}
	return out
}
