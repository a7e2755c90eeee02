package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
)

// Modes of an elicitation (2026-07-28 client/elicitation).
const (
	modeForm = "form"
	modeURL  = "url"
)

// elicitMode reads the mode of an elicitation; a server that names none means
// a form. "" = the params are malformed.
func elicitMode(params jsontext.Value) string {
	var p struct {
		Mode *string `json:"mode"`
	}
	if params.Kind() != '{' || json.Unmarshal(params, &p, jsonOptions) != nil {
		return ""
	}
	if p.Mode == nil {
		return modeForm
	}
	return *p.Mode
}

// elicitCancel is the result of a question that was dismissed.
const elicitCancel = `{"action":"cancel"}`

// readElicit reads the params of elicitation/create; what is wrong with them is
// a [*jsonrpc.Error].
func readElicit(params jsontext.Value) (*ElicitRequest, error) {
	question := &ElicitRequest{}
	mode := elicitMode(params)
	if mode == "" || json.Unmarshal(params, question, jsonOptions) != nil {
		return nil, &jsonrpc.Error{Code: CodeInvalidParams, Message: "the params of " + methodElicit + " are malformed"}
	}
	question.Mode, question.Raw = mode, params
	if question.Schema.Kind() == 'n' {
		question.Schema = nil
	}
	if mode == modeURL {
		if u, err := url.Parse(question.URL); err != nil || u.Scheme == "" {
			return nil, &jsonrpc.Error{Code: CodeInvalidParams, Message: "the url to visit is not a valid URL"}
		}
	}
	return question, nil
}

// elicit answers elicitation/create. A mode that is declared but that nothing
// here serves is answered as a dialog that was dismissed.
func (c *Client) elicit(ctx context.Context, params jsontext.Value) (jsontext.Value, error) {
	invalid := func(format string, args ...any) error {
		return &jsonrpc.Error{Code: CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
	}
	handler, declared := c.opts.Handlers.Elicit, &c.opts.Capabilities
	urls := handler != nil && c.opts.Handlers.ElicitURLs
	mode := elicitMode(params)
	switch {
	case mode == "":
		return nil, invalid("the params of %s are malformed", methodElicit)
	case mode == modeForm && (handler != nil || declared.ElicitationForm):
	case mode == modeURL && (urls || declared.ElicitationURL):
	default:
		return nil, invalid("this client did not declare elicitation of mode %.20q", mode)
	}
	if handler == nil || mode == modeURL && !urls {
		return jsontext.Value(elicitCancel), nil
	}
	question, err := readElicit(params)
	if err != nil {
		return nil, err
	}
	answer, err := handler(ctx, question)
	if err != nil {
		return nil, err
	}
	return encodeElicit(mode, answer)
}

// encodeElicit writes a handler's answer; content leaves only with an accepted
// form.
func encodeElicit(mode string, answer *ElicitResult) (jsontext.Value, error) {
	switch {
	case answer == nil:
		return nil, errors.New("the elicitation handler returned no result")
	case !slices.Contains([]string{"accept", "decline", "cancel"}, answer.Action):
		return nil, fmt.Errorf("the elicitation handler returned the action %q; use accept, decline or cancel", answer.Action)
	case answer.Action != "accept" || mode != modeForm || len(answer.Content) == 0:
		return jsontext.Value(`{"action":"` + answer.Action + `"}`), nil
	case answer.Content.Kind() != '{' || !answer.Content.IsValid():
		return nil, errors.New("the content that the elicitation handler returned is not a JSON object")
	}
	out := append([]byte(`{"action":"accept","content":`), answer.Content...)
	return append(out, '}'), nil
}

// Defaults returns the form as it is before anybody fills it in: a JSON object
// of the default values in the schema, in its order. A default that does not
// fit its own property is left out. The error is about the schema as a whole.
func (r *ElicitRequest) Defaults() (jsontext.Value, error) { return FillDefaults(r.Schema, nil) }

// FillDefaults adds the default values of a form's schema to the properties
// that content, a JSON object or nil, does not have (2026-07-28
// client/elicitation, Requested Schema). What is there stays as it is, null
// included.
func FillDefaults(schema, content jsontext.Value) (jsontext.Value, error) {
	if len(content) == 0 {
		content = jsontext.Value("{}")
	}
	out := []byte{'{'}
	add := func(key string, value jsontext.Value) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(appendString(out, key), ':'), value...)
	}
	present := map[string]bool{}
	err := eachMember(content, func(key string, value jsontext.Value) error {
		present[key] = true
		add(key, value)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the content of a form must be a JSON object: %w", err)
	}
	if len(schema) > 0 {
		err = eachMember(schema, func(key string, properties jsontext.Value) error {
			if key != "properties" || properties.Kind() != '{' {
				return nil
			}
			return eachMember(properties, func(name string, property jsontext.Value) error {
				var p formField
				readable := property.Kind() == '{' && json.Unmarshal(property, &p, jsonOptions) == nil
				if readable && !present[name] && p.fits() {
					present[name] = true
					add(name, p.Default)
				}
				return nil
			})
		})
	}
	if err != nil {
		return nil, fmt.Errorf("the schema of a form must be a JSON object: %w", err)
	}
	filled := jsontext.Value(append(out, '}'))
	if err := filled.Compact(jsonOptions); err != nil {
		return nil, fmt.Errorf("fill in a form: %w", err)
	}
	return filled, nil
}

// formField is a PrimitiveSchemaDefinition as far as its default is concerned.
type formField struct {
	Type    string         `json:"type"`
	Default jsontext.Value `json:"default"`
	choices
	Items choices `json:"items"`
}

// choices are the values of an enum, with or without titles.
type choices struct {
	Enum  []jsontext.Value `json:"enum"`
	OneOf []choice         `json:"oneOf"`
	AnyOf []choice         `json:"anyOf"`
}

type choice struct {
	Const jsontext.Value `json:"const"`
}

// fits says whether the default is one that the field itself would take.
func (f *formField) fits() bool {
	switch f.Type {
	case "string":
		return f.Default.Kind() == '"' && f.allow(f.Default)
	case "number":
		return f.Default.Kind() == '0'
	case "integer":
		var n float64
		return f.Default.Kind() == '0' && json.Unmarshal(f.Default, &n) == nil && n == float64(int64(n))
	case "boolean":
		return f.Default.Kind() == 't' || f.Default.Kind() == 'f'
	case "array":
		var chosen []jsontext.Value
		return f.Default.Kind() == '[' && json.Unmarshal(f.Default, &chosen, jsonOptions) == nil &&
			!slices.ContainsFunc(chosen, func(v jsontext.Value) bool { return !f.Items.allow(v) })
	}
	return false
}

// allow says whether a value is among the choices; without any, all are.
func (c *choices) allow(value jsontext.Value) bool {
	all := slices.Clone(c.Enum)
	for _, o := range slices.Concat(c.OneOf, c.AnyOf) {
		all = append(all, o.Const)
	}
	text, isText := unquote(value)
	return len(all) == 0 || slices.ContainsFunc(all, func(v jsontext.Value) bool {
		other, ok := unquote(v)
		return ok && isText && other == text
	})
}
