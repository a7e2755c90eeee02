package bridgeotel

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"
)

// Variables that the Go SDK leaves to the program, or reads but only reports
// to a process-wide handler when they are wrong.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	envPropagators    = "OTEL_PROPAGATORS"
	envSampler        = "OTEL_TRACES_SAMPLER"
	envSamplerArg     = "OTEL_TRACES_SAMPLER_ARG"
	envQueueSize      = "OTEL_BSP_MAX_QUEUE_SIZE"
)

const (
	protocolGRPC         = "grpc"
	protocolHTTPProtobuf = "http/protobuf"

	portGRPC    = "4317" // registered for OTLP over gRPC
	defaultGRPC = "localhost:4317"
	defaultHTTP = "localhost:4318"

	defaultQueueSize = 2048 // of the specification
)

// settings is what the environment asks for.
type settings struct {
	export     bool
	quiet      string // which variable says that nothing is exported; "" = none does
	protocol   string // one of the two constants, when export is set
	endpoint   string // "" = the protocol's default on localhost
	queue      int    // spans that may wait for their export
	propagator propagation.TextMapPropagator
	fields     []string // keys that the propagator writes
}

// readEnv reads and checks the variables; the error names each wrong one.
func readEnv(getenv func(string) string) (settings, error) {
	get := func(name string) string { return strings.TrimSpace(getenv(name)) }
	var s settings
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	s.propagator, s.fields, err = readPropagators(get(envPropagators))
	check(err)

	switch disabled := get(envDisabled); strings.ToLower(disabled) {
	case "true":
		s.quiet = envDisabled + " is true"
		return s, errors.Join(errs...)
	case "", "false":
	default:
		check(fmt.Errorf("%s: %q is neither true nor false", envDisabled, disabled))
	}

	endpointName, endpoint := envTracesEndpoint, get(envTracesEndpoint)
	if endpoint == "" {
		endpointName, endpoint = envEndpoint, get(envEndpoint)
	}
	s.endpoint = endpoint
	switch exporter := get(envExporter); strings.ToLower(exporter) {
	case "":
		s.export = endpoint != ""
	case "otlp":
		s.export = true
	case "none":
		s.quiet = envExporter + " is none"
	default:
		check(fmt.Errorf("%s: %q is not supported; use otlp or none", envExporter, exporter))
	}
	if s.export {
		s.protocol, err = readProtocol(get, endpoint)
		check(err)
		check(checkEndpoint(endpointName, endpoint, s.protocol))
		check(checkSampler(get(envSampler), get(envSamplerArg)))
		s.queue, err = readQueueSize(get(envQueueSize))
		check(err)
	}
	return s, errors.Join(errs...)
}

// readPropagators turns a comma-separated list into one propagator.
func readPropagators(list string) (propagation.TextMapPropagator, []string, error) {
	if list == "" {
		list = "tracecontext,baggage"
	}
	var all []propagation.TextMapPropagator
	var fields, seen []string
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" || slices.Contains(seen, name) {
			continue
		}
		seen = append(seen, name)
		switch name {
		case "tracecontext":
			all = append(all, propagation.TraceContext{})
			fields = append(fields, propagation.TraceContext{}.Fields()...)
		case "baggage":
			all = append(all, propagation.Baggage{})
			fields = append(fields, propagation.Baggage{}.Fields()...)
		case "none":
		default:
			errs = append(errs, fmt.Errorf("%s: %q is not supported; use tracecontext, baggage or none", envPropagators, name))
		}
	}
	if slices.Contains(seen, "none") && len(seen) > 1 {
		errs = append(errs, fmt.Errorf("%s: %q has none beside others; use none alone or leave it out", envPropagators, list))
	}
	return propagation.NewCompositeTextMapPropagator(all...), fields, errors.Join(errs...)
}

// readProtocol chooses the OTLP transport: as set, else gRPC for an endpoint on
// the port registered for it, else the specification's default.
func readProtocol(get func(string) string, endpoint string) (string, error) {
	for _, name := range []string{envTracesProtocol, envProtocol} {
		switch value := get(name); strings.ToLower(value) {
		case "":
		case protocolGRPC, protocolHTTPProtobuf:
			return strings.ToLower(value), nil
		default:
			return "", fmt.Errorf("%s: %q is not supported; use %s or %s", name, value, protocolGRPC, protocolHTTPProtobuf)
		}
	}
	if u, err := url.Parse(endpoint); err == nil && u.Port() == portGRPC {
		return protocolGRPC, nil
	}
	return protocolHTTPProtobuf, nil
}

// checkEndpoint refuses what the exporters would silently replace by a default
// or dial in vain.
func checkEndpoint(name, endpoint, protocol string) error {
	if endpoint == "" || protocol == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err == nil {
		web := (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		if web || protocol == protocolGRPC && u.Scheme == "unix" {
			return nil
		}
	}
	// The value is not repeated: a URL may hold a password.
	return fmt.Errorf("%s is not a complete URL; write it with scheme and host, such as http://localhost:4318", name)
}

// readQueueSize reads what the SDK would replace by the default when it is wrong.
func readQueueSize(text string) (int, error) {
	if text == "" {
		return defaultQueueSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s: %q is not a whole number above zero", envQueueSize, text)
	}
	return n, nil
}

// collector names where spans go, without what may be secret in a URL.
func (s *settings) collector() string {
	if s.endpoint == "" {
		if s.protocol == protocolGRPC {
			return defaultGRPC
		}
		return defaultHTTP
	}
	u, err := url.Parse(s.endpoint)
	if err != nil {
		return "" // readEnv has refused it
	}
	if u.Host == "" {
		return u.Path // of a Unix socket
	}
	return u.Host
}

// checkSampler checks what the SDK reads by itself.
func checkSampler(sampler, arg string) error {
	switch strings.ToLower(sampler) {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
		return nil
	case "traceidratio", "parentbased_traceidratio":
		if arg == "" {
			return nil
		}
		if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return fmt.Errorf("%s: %q is not a number from 0 to 1", envSamplerArg, arg)
		}
		return nil
	}
	return fmt.Errorf("%s: %q is not supported; use always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or parentbased_traceidratio", envSampler, sampler)
}
