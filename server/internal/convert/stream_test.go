package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

const asText = pb.JsonFormat_JSON_FORMAT_TEXT

func wantMessage[M any](t *testing.T, want, got M) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProgressKeepsWhatIsThere(t *testing.T) {
	wantMessage(t, &pb.Progress{Progress: 1.5}, Progress(1.5, nil, ""))
	wantMessage(t, &pb.Progress{Total: new(0.0), Message: new("a\uFFFD")}, Progress(0, new(0.0), "a\xff"))
}

func TestLogMessagesKeepTheirData(t *testing.T) {
	message := func(level, logger string, data []byte, f Format) *pb.LogMessage {
		m, err := decoded(t, LogMessage(level, logger, data, f), nil)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	wantMessage(t, &pb.LogMessage{}, LogMessage("loud", "", nil, 0))
	wantMessage(t, &pb.LogMessage{Level: pb.LogLevel_LOG_LEVEL_INFO, Logger: "l\uFFFD", Data: structpb.NewStringValue("x")}, message("info", "l\xff", []byte(`"x"`), 0))
	wantMessage(t, &pb.LogMessage{Level: pb.LogLevel_LOG_LEVEL_ERROR, Data: structpb.NewNullValue()}, message("error", "", []byte(`null`), 0))
	wantMessage(t, &pb.LogMessage{DataJson: new(`{"n":12345678901234567890}`)}, LogMessage("", "", []byte(`{"n":12345678901234567890}`), asText))
	inexact := LogMessage("", "", []byte(`12345678901234567890`), 0)
	if inexact.GetData() == nil || inexact.GetDataJson() != "12345678901234567890" {
		t.Errorf("a large number is %v", inexact)
	}
	wantMessage(t, &pb.LogMessage{}, LogMessage("", "", []byte(`{`), 0))
	for value, name := range pb.LogLevel_name {
		if value != 0 && LogMessage(map[int32]string{
			1: "debug", 2: "info", 3: "notice", 4: "warning", 5: "error", 6: "critical", 7: "alert", 8: "emergency",
		}[value], "", nil, 0).GetLevel() != pb.LogLevel(value) {
			t.Errorf("%s has no MCP level", name)
		}
	}
}

func TestQuestionsKeepTheirParams(t *testing.T) {
	for raw, want := range map[string]*pb.InputRequest{
		"":        {Method: "m"},
		"null":    {Method: "m"},
		`{"a":1}`: {Method: "m", ParamsJson: new(`{"a":1}`)},
		`[1]`:     {Method: "m", ExtraJson: new(`{"params":[1]}`)},
	} {
		got, err := Question("m", []byte(raw), asText)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		wantMessage(t, want, got)
	}
	if _, err := Question("m", []byte(`{`), 0); err == nil {
		t.Error("broken params are no error")
	}
}
