package mcpclient

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestALaterMetaMemberReplacesAnEarlierOne(t *testing.T) {
	var m Meta
	if err := m.setObject(jsontext.Value(`{"a":1,"b":null,"c":{"x":[1,2]},"a":2}`)); err != nil {
		t.Fatal(err)
	}
	m.SetString("c", "\"quoted\" and \u2028\n")
	m.Set("d", jsontext.Value("true"))
	m.Delete("absent")
	if got := m.Keys(); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("keys are %q: null members go, others keep their order", got)
	}
	if got := m.GetString("c"); got != "\"quoted\" and \u2028\n" {
		t.Errorf("the string came back as %q", got)
	}
	if got := m.GetString("a"); got != "" {
		t.Errorf("a number is no string, got %q", got)
	}
	out := "{" + string(m.appendMembers(nil)) + "}"
	if !jsontext.Value(out).IsValid() || slices.Contains([]byte(out), '\n') {
		t.Errorf("the object is not one line of JSON: %s", out)
	}
	m.Delete("c")
	if _, ok := m.Get("c"); ok {
		t.Error("a deleted member is still there")
	}
}

func TestMetaOfACallerMustBeAnObject(t *testing.T) {
	for _, bad := range []string{`[1]`, `"x"`, `{"a":`, `{"a" 1}`, `nul`} {
		var m Meta
		if err := m.setObject(jsontext.Value(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestJSONValuesAreHandedOutWithoutWhatStandsAround(t *testing.T) {
	doc := jsontext.Value("{ \"a\" :\n [ 1 , {\"b\": -0.0e1} ] , \"c\"\t: 9007199254740993 }")
	got := map[string]string{}
	err := eachMember(doc, func(key string, value jsontext.Value) error {
		got[key] = string(value)
		return nil
	})
	if err != nil || got["a"] != "[ 1 , {\"b\": -0.0e1} ]" || got["c"] != "9007199254740993" {
		t.Errorf("got %q, %v", got, err)
	}
	var items []string
	err = eachElement([]byte(`[1 , "two",[3]]`), func(v jsontext.Value) error {
		items = append(items, string(v))
		return nil
	})
	if err != nil || !slices.Equal(items, []string{"1", `"two"`, "[3]"}) {
		t.Errorf("got %q, %v", items, err)
	}
}

func FuzzEachMember(f *testing.F) {
	f.Add(`{"a":1,"b":{"c":[null,true,"x"]}}`)
	f.Add(`{"a":1`)
	f.Fuzz(func(t *testing.T, doc string) {
		err := eachMember(jsontext.Value(doc), func(_ string, value jsontext.Value) error {
			if !value.IsValid(lenient...) {
				t.Errorf("%q handed out %q, which is no JSON", doc, value)
			}
			return nil
		})
		if err == nil && !jsontext.Value(doc).IsValid(lenient...) {
			// a document that ends after its object is the transport's to refuse
			if jsontext.Value(doc).Kind() != '{' {
				t.Errorf("%q was taken for an object", doc)
			}
		}
	})
}
