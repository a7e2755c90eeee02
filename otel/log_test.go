package bridgeotel

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLogHandlerKeepsTheContractOfHandlers(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t,
		func(*testing.T) slog.Handler {
			out.Reset()
			return LogHandler(slog.NewJSONHandler(&out, nil))
		},
		func(t *testing.T) map[string]any { return parseLine(t, &out) },
	)
}

func TestLogLinesInsideATraceCarryItsIDsAtTheTop(t *testing.T) {
	ctx, _ := remoteContext(t)
	var out bytes.Buffer
	logger := slog.New(LogHandler(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: dropTime})))
	ids := map[string]any{"trace_id": "01020300000000000000000000000000", "span_id": "0405060000000000"}
	for _, tt := range []struct {
		name string
		log  func()
		want map[string]any
	}{
		{"plain", func() { logger.InfoContext(ctx, "m", "a", 1) }, map[string]any{"a": 1.0}},
		{
			"with attributes and groups",
			func() { logger.With("a", 1).WithGroup("g").With("b", 2).WithGroup("h").InfoContext(ctx, "m", "c", 3) },
			map[string]any{"a": 1.0, "g": map[string]any{"b": 2.0, "h": map[string]any{"c": 3.0}}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out.Reset()
			tt.log()
			want := map[string]any{"level": "INFO", "msg": "m"}
			for _, part := range []map[string]any{ids, tt.want} {
				maps.Copy(want, part)
			}
			if diff := cmp.Diff(want, parseLine(t, &out)); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogLinesOutsideATraceAreUnchanged(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(LogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: dropTime})))
	logger.InfoContext(t.Context(), "m", "a", 1)
	if got := out.String(); got != "level=INFO msg=m a=1\n" {
		t.Errorf("got %q", got)
	}
	if logger.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("debug is enabled though the wrapped handler refuses it")
	}
}

func TestARecordSharedByHandlersIsNotChanged(t *testing.T) {
	ctx, _ := remoteContext(t)
	record := slog.NewRecord(time.Unix(0, 0), slog.LevelInfo, "m", 0)
	for range 8 {
		record.AddAttrs(slog.Int("a", 1))
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := LogHandler(slog.NewTextHandler(out, nil)).Handle(ctx, record); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() || strings.Count(second.String(), "trace_id=") != 1 {
		t.Errorf("lines differ:\n%s%s", first.String(), second.String())
	}
	var plain bytes.Buffer
	if err := slog.NewTextHandler(&plain, nil).Handle(context.Background(), record); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "trace_id") {
		t.Errorf("the shared record became %s", plain.String())
	}
}

func dropTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func parseLine(t *testing.T, out *bytes.Buffer) map[string]any {
	t.Helper()
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return line
}
