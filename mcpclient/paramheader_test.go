package mcpclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func planOf(t *testing.T, schema string) ([]paramHeader, error) {
	t.Helper()
	return headerPlan(jsontext.Value(fmt.Sprintf(`{"name":"t","inputSchema":%s}`, schema)))
}

func TestAnnotationsReachableThroughPropertiesMakeThePlan(t *testing.T) {
	plan, err := planOf(t, `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"n":{"type":["integer","null"],"x-mcp-header":"Count"},
		"x-mcp-header":{"type":"string"},
		"deep":{"type":"object","properties":{"flag":{"type":"boolean","x-mcp-header":"X-Flag"}}},
		"free":{"type":"object","default":{"x-mcp-header":"not an annotation"},"examples":[{"x-mcp-header":""}]}
	}}`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range plan {
		got = append(got, p.header+"="+strings.Join(p.path, "/"))
	}
	want := "Mcp-Param-Region=region Mcp-Param-Count=n Mcp-Param-X-Flag=deep/flag"
	if strings.Join(got, " ") != want {
		t.Errorf("the plan is %v, want %s", got, want)
	}
}

func TestAnInvalidAnnotationNamesItsReason(t *testing.T) {
	property := func(body string) string { return `{"type":"object","properties":{"p":{` + body + `}}}` }
	for schema, reason := range map[string]string{
		property(`"type":"string","x-mcp-header":""`):                                                        "empty",
		property(`"type":"string","x-mcp-header":7`):                                                         "not a string",
		property(`"type":"string","x-mcp-header":"a b"`):                                                     "not a valid header name",
		property(`"type":"string","x-mcp-header":"a:b"`):                                                     "not a valid header name",
		property(`"type":"string","x-mcp-header":"über"`):                                                    "not a valid header name",
		property(`"type":"string","x-mcp-header":"a\r\nb"`):                                                  "not a valid header name",
		property(`"type":"number","x-mcp-header":"A"`):                                                       "not a string, integer or boolean",
		property(`"type":"object","x-mcp-header":"A"`):                                                       "not a string, integer or boolean",
		property(`"type":"array","x-mcp-header":"A"`):                                                        "not a string, integer or boolean",
		property(`"type":"null","x-mcp-header":"A"`):                                                         "not a string, integer or boolean",
		property(`"x-mcp-header":"A"`):                                                                       "not a string, integer or boolean",
		property(`"type":["string","integer"],"x-mcp-header":"A"`):                                           "not a string, integer or boolean",
		`{"type":"object","x-mcp-header":"A"}`:                                                               "reachable through properties alone",
		property(`"type":"array","items":{"type":"string","x-mcp-header":"A"}`):                              "reachable through properties alone",
		property(`"anyOf":[{"type":"string","x-mcp-header":"A"}]`):                                           "reachable through properties alone",
		`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`:                                               "reachable through properties alone",
		`{"if":{"properties":{"p":{"type":"string","x-mcp-header":"A"}}}}`:                                   "reachable through properties alone",
		`{"properties":{"p":{"type":"string","x-mcp-header":"A"},"q":{"type":"string","x-mcp-header":"a"}}}`: "used twice",
	} {
		if _, err := planOf(t, schema); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v, want an error with %q", schema, err, reason)
		}
	}
}

func TestParameterValuesBecomeHeaderText(t *testing.T) {
	arguments := jsontext.Value(`{"s":"Hello, 世界","i":42,"f":42.0,"e":4.2e1,"b":false,"n":null,"o":{"x":"in"},"empty":"","a":[1]}`)
	for path, want := range map[string]string{
		"s": "Hello, 世界", "i": "42", "f": "42", "e": "42", "b": "false", "o/x": "in", "empty": "",
		"n": "-", "o": "-", "a": "-", "absent": "-", "s/x": "-", "o/y/z": "-",
	} {
		got, ok := headerValue(lookup(arguments, strings.Split(path, "/")))
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%s became %q, want %q", path, got, want)
		}
	}
}
