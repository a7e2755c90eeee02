package config

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
)

func readDoc(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// samples returns the fenced blocks of one language.
func samples(doc, language string) []string {
	var found []string
	for _, part := range strings.Split(doc, "```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		found = append(found, text)
	}
	return found
}

func docEnv() Env {
	return Env{
		Lookup:   func(name string) (string, bool) { return "x", name == "SEARCH_TOKEN" },
		ReadFile: func(string) ([]byte, error) { return []byte("x"), nil },
	}
}

func TestEverySampleOfTheDocumentationIsValid(t *testing.T) {
	doc := readDoc(t, "configuration.md")
	schema := loadSchema(t)
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	yamls := samples(doc, "yaml")
	if len(yamls) < 6 {
		t.Fatalf("found %d samples", len(yamls))
	}
	for _, sample := range append(yamls, everything) {
		cfg, err := Parse("sample", []byte(sample), testOrDocEnv())
		if err != nil {
			t.Errorf("%s\n%v", sample, err)
			continue
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s\n%v", sample, err)
		}
		if err := resolved.Validate(generic(t, sample)); err != nil {
			t.Errorf("the schema refuses\n%s\n%v", sample, err)
		}
	}
	for _, sample := range samples(doc, "json") {
		if _, err := ParseMCPJSON("sample", []byte(sample), docEnv()); err != nil {
			t.Errorf("%s\n%v", sample, err)
		}
	}
}

// testOrDocEnv knows the variables of the tests and of the documentation.
func testOrDocEnv() Env {
	return Env{
		Lookup: func(name string) (string, bool) {
			if value, ok := testEnv().Lookup(name); ok {
				return value, ok
			}
			return docEnv().Lookup(name)
		},
		ReadFile: docEnv().ReadFile,
	}
}

// generic decodes YAML the way a schema validator sees it.
func generic(t *testing.T, text string) any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func loadSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal([]byte(readDoc(t, "config.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	return &schema
}

func TestTheSchemaRefusesWhatTheParserRefuses(t *testing.T) {
	resolved, err := loadSchema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"listne: {}",
		"log: {level: loud}",
		"targets: {t: {}}",
		"targets: {t: {url: 'http://h', command: [a]}}",
		"targets: {t: {url: 'http://h', timeouts: {tool: 5}}}",
		"targets: {t: {url: 'http://h', timeouts: {tol: 5s}}}",
		"targets: {t: {url: 'http://h', pool: {max_queue: -1}}}",
		"targets: {t: {url: 'http://h', pool: {isolation: per_user}}}",
		"targets: {t: {url: 'http://h', pool: {isolation: per_caller}}}",
		"targets: {t: {url: 'http://h', pool: {max_connections: 0}}}",
		"targets: {t: {url: 'http://h', pool: {max_in_flight_per_connection: -1}}}",
		"targets: {t: {url: 'http://h', pool: {max_interactive: 0}}}",
		"targets: {t: {url: 'http://h', pool: {idle_timeout: 5}}}",
		"targets: {t: {url: 'http://h', pool: {max_lifetime: -1s}}}",
		"targets: {t: {command: [a], restart: {max: -1}}}",
		"targets: {t: {command: [a], restart: {window: 60}}}",
		"targets: {t: {command: [a], urls: ['http://h']}}",
		"targets: {t: {url: 'http://h', urls: ['http://i']}}",
		"targets: {t: {urls: []}}",
		"targets: {t: {urls: 'http://h'}}",
		"targets: {t: {urls: ['http://h', 'http://h']}}",
		"targets: {t: {url: 'http://h', protocol_version: 2020-01-01}}",
		"targets: {t: {url: 'http://h', minimum_protocol_version: auto}}",
		"targets: {t: {url: 'http://h', health: {failures: 0}}}",
		"targets: {t: {url: 'http://h', reconnect: {multiplier: 0.5}}}",
		"targets: {t: {url: 'http://h', reconnect: {multiplier: many}}}",
		"targets: {t: {url: 'http://h', input: {max_rounds: -1}}}",
		"targets: {t: {url: 'http://h', tasks: {max_stuck_polls: 0}}}",
		"targets: {t: {url: 'http://h', server_log_level: warn}}",
		"targets: {t: {url: 'http://h', baggage: {policy: some}}}",
		"targets: {t: {url: 'http://h', baggage: {policy: allow}}}",
		"targets: {t: {url: 'http://h', baggage: {policy: drop, keys: [a]}}}",
		"targets: {t: {url: 'http://h', baggage: {policy: allow, keys: ['a=b']}}}",
		"telemetry: {trust_remote: maybe}",
		"targets: {t: {url: 'http://h', transport: http}}",
		"targets: {t: {command: a b}}",
		"targets: {'a b': {url: 'http://h'}}",
		"listen: {max_request_bytes: 16MB!}",
	} {
		if err := resolved.Validate(generic(t, text)); err == nil {
			t.Errorf("the schema accepts %s", text)
		}
		if _, err := Parse("f", []byte(text), testEnv()); err == nil {
			t.Errorf("the parser accepts %s", text)
		}
	}
}

// The schema is written by hand for its descriptions; this test keeps its
// keys, defaults and choices those of the structs.
func TestTheSchemaMatchesTheStructs(t *testing.T) {
	schema := loadSchema(t)
	compareSchema(t, schema, "", schema, reflect.ValueOf(*Default()))
	child := *NewTarget(TransportStdio)
	child.Restart = Restart{} // depends on the kind of target, like initialize and detect
	compareSchema(t, schema, "target", schema.Defs["target"], reflect.ValueOf(child))
}

func compareSchema(t *testing.T, root *jsonschema.Schema, path string, s *jsonschema.Schema, defaults reflect.Value) {
	t.Helper()
	var names []string
	for name, property := range s.Properties {
		names = append(names, name)
		if property.Description == "" {
			t.Errorf("%s.%s has no description", path, name)
		}
	}
	want := fieldNames(defaults.Type())
	slices.Sort(names)
	slices.Sort(want)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("%s: (-struct +schema)\n%s", path, diff)
		return
	}
	if s.AdditionalProperties == nil || s.AdditionalProperties.Not == nil {
		t.Errorf("%s permits unknown keys", path)
	}
	for i, name := range fieldNames(defaults.Type()) {
		property, value := s.Properties[name], defaults.Field(i)
		if value.Kind() == reflect.Struct {
			compareSchema(t, root, path+"."+name, property, value)
			continue
		}
		compareDefault(t, path+"."+name, property, value)
	}
}

func compareDefault(t *testing.T, path string, property *jsonschema.Schema, value reflect.Value) {
	t.Helper()
	if len(property.AnyOf) > 0 && value.Kind() == reflect.String {
		if choices := choicesOf(value.Interface()); !reflect.DeepEqual(property.AnyOf[0].Enum, choices) {
			t.Errorf("%s: the schema has the choices %v, the parser %v", path, property.AnyOf[0].Enum, choices)
		}
	}
	if property.Default == nil {
		return // lists, maps, empty texts, and what depends on the kind of target
	}
	var got any
	if err := json.Unmarshal(property.Default, &got); err != nil {
		t.Fatal(err)
	}
	var want any
	switch v := value.Interface().(type) {
	case time.Duration:
		want = v.String()
	case Size:
		want = v.String()
	case int:
		want = float64(v)
	case float64:
		want = v
	case bool:
		want = v
	default:
		want = value.String()
	}
	if got != want {
		t.Errorf("%s: the schema has the default %v, the parser %v", path, got, want)
	}
}

func choicesOf(v any) []any {
	switch v.(type) {
	case Transport:
		return anys(transports())
	case ProtocolVersion:
		return anys(protocolVersions())
	case MinimumVersion:
		return anys(minimumVersions())
	case Isolation:
		return anys(isolations())
	case ServerLogLevel:
		return anys(serverLogLevels())
	case BaggagePolicy:
		return anys(baggagePolicies())
	case LogLevel:
		return anys(logLevels())
	case LogFormat:
		return anys(logFormats())
	case LogAccess:
		return anys(logAccesses())
	}
	return nil
}

func anys[T ~string](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// The documented file with every setting must name each of them, and show the
// defaults where it does not say otherwise.
func TestTheDocumentedFileShowsEverySettingAndItsDefault(t *testing.T) {
	full := samples(readDoc(t, "configuration.md"), "yaml")[2]
	cfg, err := Parse("sample", []byte(full), docEnv())
	if err != nil {
		t.Fatal(err)
	}
	child, remote, replicas := cfg.Targets["child"], cfg.Targets["remote"], cfg.Targets["replicas"]
	if child == nil || remote == nil || replicas == nil {
		t.Fatal("the targets child, remote and replicas are not there")
	}
	text := full
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Config](), reflect.TypeFor[Listen](), reflect.TypeFor[Log](), reflect.TypeFor[Shutdown](), reflect.TypeFor[Telemetry](), reflect.TypeFor[Baggage](), reflect.TypeFor[ClientInfo](),
		reflect.TypeFor[Target](), reflect.TypeFor[Timeouts](), reflect.TypeFor[Restart](), reflect.TypeFor[Pool](),
		reflect.TypeFor[Health](), reflect.TypeFor[Reconnect](), reflect.TypeFor[Cache](), reflect.TypeFor[Changes](), reflect.TypeFor[Input](),
		reflect.TypeFor[Tasks](), reflect.TypeFor[Dispatch](), reflect.TypeFor[Root](),
	} {
		for _, name := range fieldNames(typ) {
			if !strings.Contains(text, name+":") {
				t.Errorf("%s.%s is not in the documented file", typ.Name(), name)
			}
		}
	}
	wantChild := NewTarget(TransportStdio)
	wantChild.Command, wantChild.Env, wantChild.Cwd = child.Command, child.Env, child.Cwd
	wantChild.Timeouts.Tools, wantChild.Roots = child.Timeouts.Tools, child.Roots
	wantRemote := NewTarget(TransportAuto)
	wantRemote.URL, wantRemote.Headers = remote.URL, remote.Headers
	wantReplicas := NewTarget(TransportAuto)
	wantReplicas.URLs = replicas.URLs
	want := Default()
	want.Targets = map[string]*Target{"child": wantChild, "remote": wantRemote, "replicas": wantReplicas}
	if diff := cmp.Diff(want, cfg, asFields()); diff != "" {
		t.Errorf("(-default +documented)\n%s", diff)
	}
}
