package bridgeotel

import (
	"cmp"
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
	maxQueueSize     = 1_000_000
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

	endpoint := cmp.Or(get(envTracesEndpoint), get(envEndpoint))
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
		s.protocol, err = readProtocol(get, envTracesProtocol, endpoint)
		check(err)
		check(checkOTLP(get, "TRACES_", s.protocol))
		check(checkSampler(get(envSampler), get(envSamplerArg)))
		check(checkBatches(getenv))
		s.queue = queueSize(getenv(envQueueSize))
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
// the port registered for it, else the specification's default. signal is the
// variable of one signal, which wins over that of all.
func readProtocol(get func(string) string, signal, endpoint string) (string, error) {
	for _, name := range []string{signal, envProtocol} {
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

// checkBatches checks what the SDK would take as it is: it ends with a panic, out
// of memory or in a busy loop.
func checkBatches(get func(string) string) error {
	return errors.Join(
		checkNumber(get, envQueueSize, maxQueueSize),
		checkNumber(get, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", maxQueueSize),
		checkNumber(get, "OTEL_BSP_SCHEDULE_DELAY", maxMillis),
		checkNumber(get, "OTEL_BSP_EXPORT_TIMEOUT", maxMillis),
	)
}

// queueSize is the one that checkBatches has checked.
func queueSize(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return defaultQueueSize
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
