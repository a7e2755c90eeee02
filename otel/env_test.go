package bridgeotel

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvironmentDecidesWhatIsExported(t *testing.T) {
	for _, tt := range []struct {
		name     string
		env      []string
		export   bool
		protocol string
	}{
		{name: "nothing set"},
		{name: "only a service name", env: []string{"OTEL_SERVICE_NAME", "x"}},
		{"exporter", []string{"OTEL_TRACES_EXPORTER", "otlp"}, true, "http/protobuf"},
		{"exporter in upper case", []string{"OTEL_TRACES_EXPORTER", " OTLP "}, true, "http/protobuf"},
		{"endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, true, "http/protobuf"},
		{"traces endpoint", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://c/v1/traces"}, true, "http/protobuf"},
		{"endpoint on the gRPC port", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"}, true, "grpc"},
		{"protocol wins over the port", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, true, "http/protobuf"},
		{"traces protocol wins", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}, true, "grpc"},
		{"a Unix socket over gRPC", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "unix:///run/otel.sock", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, true, "grpc"},
		{name: "none despite an endpoint", env: []string{"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}},
		{name: "disabled", env: []string{"OTEL_SDK_DISABLED", "TRUE", "OTEL_TRACES_EXPORTER", "otlp"}},
		{"not disabled", []string{"OTEL_SDK_DISABLED", "false", "OTEL_TRACES_EXPORTER", "otlp"}, true, "http/protobuf"},
		{"sampler", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_TRACES_SAMPLER", "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG", "0.25"}, true, "http/protobuf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := readEnv(environment(tt.env...))
			if err != nil {
				t.Fatal(err)
			}
			if s.export != tt.export || s.protocol != tt.protocol {
				t.Errorf("export %t by %q, want %t by %q", s.export, s.protocol, tt.export, tt.protocol)
			}
			if diff := cmp.Diff([]string{"traceparent", "tracestate", "baggage"}, s.fields); diff != "" {
				t.Errorf("propagated keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPropagatorsAreAListWithoutRepetition(t *testing.T) {
	for list, want := range map[string][]string{
		"":                                   {"traceparent", "tracestate", "baggage"},
		"tracecontext":                       {"traceparent", "tracestate"},
		" Baggage , tracecontext, baggage, ": {"baggage", "traceparent", "tracestate"},
		"none":                               nil,
	} {
		_, fields, err := readPropagators(list)
		if err != nil {
			t.Errorf("%q: %v", list, err)
		}
		if diff := cmp.Diff(want, fields); diff != "" {
			t.Errorf("%q (-want +got):\n%s", list, diff)
		}
	}
}

func TestWrongVariablesAreNamedWithWhatTheyMayBe(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want []string
	}{
		{"exporter", []string{"OTEL_TRACES_EXPORTER", "zipkin"}, []string{"OTEL_TRACES_EXPORTER", `"zipkin"`, "otlp or none"}},
		{"protocol", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", `"http/json"`, "grpc or http/protobuf"}},
		{"propagator", []string{"OTEL_PROPAGATORS", "tracecontext,b3"}, []string{"OTEL_PROPAGATORS", `"b3"`, "tracecontext, baggage or none"}},
		{"none beside others", []string{"OTEL_PROPAGATORS", "none,baggage"}, []string{"OTEL_PROPAGATORS", "use none alone"}},
		{"disabled", []string{"OTEL_SDK_DISABLED", "yes"}, []string{"OTEL_SDK_DISABLED", `"yes"`}},
		{"propagator of a disabled SDK", []string{"OTEL_SDK_DISABLED", "true", "OTEL_PROPAGATORS", "b3"}, []string{"OTEL_PROPAGATORS"}},
		{"endpoint without scheme", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317"}, []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"}},
		{"Unix socket over HTTP", []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "unix:///x"}, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}},
		{"sampler", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_TRACES_SAMPLER", "sometimes"}, []string{"OTEL_TRACES_SAMPLER", `"sometimes"`, "always_on"}},
		{"sampler argument", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_TRACES_SAMPLER", "traceidratio", "OTEL_TRACES_SAMPLER_ARG", "NaN"}, []string{"OTEL_TRACES_SAMPLER_ARG", `"NaN"`, "0 to 1"}},
		{"two at once", []string{"OTEL_PROPAGATORS", "b3", "OTEL_TRACES_EXPORTER", "zipkin"}, []string{"OTEL_PROPAGATORS", "OTEL_TRACES_EXPORTER"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Setup(t.Context(), Options{Getenv: environment(tt.env...)})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestAnEndpointsPasswordIsNotRepeated(t *testing.T) {
	_, err := Setup(t.Context(), Options{Getenv: environment("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://user:hunter2@c")})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}
