package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/structpb"
)

// MaxRequestDepth is how deep a JSON document of a caller may be nested.
const MaxRequestDepth = 512

// writer appends structpb messages as compact JSON. Names are sorted, so that equal messages give equal text.
type writer struct {
	out  []byte
	path []string // names and indexes from the document to the value being written
}

// document writes s; a mistake in it is reported against field.
func document(s *structpb.Struct, field string) ([]byte, error) {
	var w writer
	if err := w.object(s); err != nil {
		err.Field = field
		return nil, err
	}
	return w.out, nil
}

func (w *writer) object(s *structpb.Struct) *FieldError {
	if len(w.path) >= MaxRequestDepth {
		return w.mistake(ReasonTooDeep, fmt.Sprintf("is nested deeper than %d levels", MaxRequestDepth))
	}
	fields := s.GetFields()
	w.out = append(w.out, '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.path = append(w.path, name)
		if err := w.string(name); err != nil {
			return err
		}
		w.out = append(w.out, ':')
		if err := w.value(fields[name]); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	w.out = append(w.out, '}')
	return nil
}

func (w *writer) list(l *structpb.ListValue) *FieldError {
	if len(w.path) >= MaxRequestDepth {
		return w.mistake(ReasonTooDeep, fmt.Sprintf("is nested deeper than %d levels", MaxRequestDepth))
	}
	w.out = append(w.out, '[')
	for i, v := range l.GetValues() {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.path = append(w.path, "")
		if err := w.value(v); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) value(v *structpb.Value) *FieldError {
	switch k := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		w.out = append(w.out, "null"...)
	case *structpb.Value_BoolValue:
		if k.BoolValue {
			w.out = append(w.out, "true"...)
		} else {
			w.out = append(w.out, "false"...)
		}
	case *structpb.Value_NumberValue:
		if math.IsNaN(k.NumberValue) || math.IsInf(k.NumberValue, 0) {
			return w.mistake(ReasonNotFinite, "is NaN or infinite, which JSON cannot express")
		}
		w.out = appendNumber(w.out, k.NumberValue)
	case *structpb.Value_StringValue:
		return w.string(k.StringValue)
	case *structpb.Value_StructValue:
		return w.object(k.StructValue)
	case *structpb.Value_ListValue:
		return w.list(k.ListValue)
	default:
		return w.mistake(ReasonNotSet, "is a google.protobuf.Value without a kind; set one, null_value for null")
	}
	return nil
}

func (w *writer) string(s string) *FieldError {
	out, err := jsontext.AppendQuote(w.out, s)
	if err != nil {
		return w.mistake(ReasonInvalidJSON, "holds a string that is not valid UTF-8")
	}
	w.out = out
	return nil
}

// mistake describes what is wrong with the value being written, and where it is.
func (w *writer) mistake(reason Reason, what string) *FieldError {
	const shown = 8 // the whole path of a deep value would drown the rest
	var where strings.Builder
	for i, name := range w.path {
		if i == shown {
			where.WriteString("/…")
			break
		}
		if name == "" {
			name = "*" // somewhere in a list
		}
		where.WriteString("/" + strings.ToValidUTF8(name, "\uFFFD"))
	}
	subject := "the document"
	if where.Len() > 0 {
		subject = "the value at " + where.String()
	}
	return &FieldError{Reason: reason, Description: subject + " " + what}
}
