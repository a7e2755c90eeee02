package bridgeotel

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
)

func TestErrorsOfTheLibrariesAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, out := plainLog()
		libraries := NewLibraryLog(logger)
		for range 7 { // at 0, 20, 40, 60, 80, 100 and 120 s
			libraries.Handle(errors.New("out of ink"))
			time.Sleep(20 * time.Second) // of the bubble's time
		}
		const line = `level=WARN msg="OpenTelemetry reports an error" error="out of ink" left_out=`
		if diff := cmp.Diff(line+"0\n"+line+"2\n"+line+"2\n", out.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

func TestWhatACallerSentIsNotLogged(t *testing.T) {
	for _, text := range []string{
		"hunter2", "a=hunter2\"", "a=%zzhunter2", "hunter2 x=1", "a=b;hunter2 x=1", "a=b;c=hunter2\"", strings.Repeat("hunter2=1,", 2000),
	} {
		_, err := baggage.Parse(text)
		if err == nil {
			t.Errorf("%.40q is valid", text)
			continue
		}
		logger, out := plainLog()
		NewLibraryLog(logger).Handle(err)
		if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), "baggage or tracestate of a caller is not valid") {
			t.Errorf("%.40q is logged as %s", text, out)
		}
	}
}

func TestLongErrorsOfTheLibrariesAreCut(t *testing.T) {
	logger, out := plainLog()
	NewLibraryLog(logger).Handle(errors.New(strings.Repeat("é", 4000)))
	if n := out.Len(); n > maxLogText+200 || !strings.Contains(out.String(), "é… (cut)") {
		t.Errorf("%d bytes of log: %.100s", n, out)
	}
}

func TestValuesThatTheLibrariesRefuseAreNotLogged(t *testing.T) {
	_, numberErr := strconv.Atoi("hunter2")
	_, urlErr := url.Parse(fmt.Sprintf("http://user:%s", "hunter2"))
	_, escapeErr := url.PathUnescape("%hunter2")
	logger, out := plainLog()
	global := NewLibraryLog(logger).Logger()
	global.Error(numberErr, "parse duration", "environment variable", "OTEL_X", "value", "hunter2")
	global.Error(urlErr, "parse url", "input", "hunter2")
	global.Error(fmt.Errorf("here: %w", escapeErr), "escape header value", "value", "hunter2")
	global.Error(errors.New("invalid header key"), "parse headers", "key", "hunter2")
	global.Error(errors.New("no such file"), "read tls client key", "file", "hunter2")
	global.V(1).Info("a warning", "value", "hunter2", "name", "mcp.x")
	global.WithValues("input", "hunter2").WithName("n").V(4).Info("a detail")
	const start = `level=WARN msg="OpenTelemetry reports a problem" problem="`
	want := start + `parse duration" environment_variable=OTEL_X error="invalid syntax"
` + start + `parse url" error="not a valid URL or escape"
` + start + `escape header value" error="not a valid URL or escape"
` + start + `parse headers" error="invalid header key"
` + start + `read tls client key" error="no such file"
` + start + `a warning" name=mcp.x
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestFailuresTellNoPathOfACollectorAndAreBounded(t *testing.T) {
	for text, want := range map[string]string{
		"failed to send to http://c:4318/s3cret/v1/traces: 404 Not Found (body: no)": "failed to send to http://c:4318: 404 Not Found (body: no)",
		`Post "https://user:s3cret@c/s3cret?k=s3cret": dial tcp: refused`:            `Post "https://c": dial tcp: refused`,
		"see https://c": "see https://c",
		`rpc error: code = Unavailable desc = "x"`: `rpc error: code = Unavailable desc = "x"`,
	} {
		if got := failureText(errors.New(text)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	logger, out := plainLog()
	log := newMetricsExporter(nil, logger).failures
	log.report(t.Context(), 0, errors.New(strings.Repeat("x", 1<<20)))
	if n := out.Len(); n > maxLogText+200 {
		t.Errorf("%d bytes of log", n)
	}
}
