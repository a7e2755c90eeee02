package convert

import (
	"strings"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
)

// Progress makes the event of MCP `notifications/progress`; total is nil, and message empty, when the server sent
// none.
func Progress(progress float64, total *float64, message string) *pb.Progress {
	m := &pb.Progress{Progress: progress, Total: total}
	if message != "" {
		m.Message = new(strings.ToValidUTF8(message, "\uFFFD"))
	}
	return m
}

// LogMessage makes the event of MCP `notifications/message`. data that is no JSON is left out.
func LogMessage(level, logger string, data []byte, f Format) *pb.LogMessage {
	m := &pb.LogMessage{Level: logLevelOf(level), Logger: strings.ToValidUTF8(logger, "\uFFFD")}
	if len(data) == 0 {
		return m
	}
	if value, text, err := Value(data, f); err == nil {
		m.Data, m.DataJson = value, text
	}
	return m
}

func logLevelOf(s string) pb.LogLevel {
	switch s {
	case "debug":
		return pb.LogLevel_LOG_LEVEL_DEBUG
	case "info":
		return pb.LogLevel_LOG_LEVEL_INFO
	case "notice":
		return pb.LogLevel_LOG_LEVEL_NOTICE
	case "warning":
		return pb.LogLevel_LOG_LEVEL_WARNING
	case "error":
		return pb.LogLevel_LOG_LEVEL_ERROR
	case "critical":
		return pb.LogLevel_LOG_LEVEL_CRITICAL
	case "alert":
		return pb.LogLevel_LOG_LEVEL_ALERT
	case "emergency":
		return pb.LogLevel_LOG_LEVEL_EMERGENCY
	}
	return pb.LogLevel_LOG_LEVEL_UNSPECIFIED
}

// Question makes one question of a server, without its id. params that are no object go to extra.
func Question(method string, params []byte, f Format) (*pb.InputRequest, error) {
	raw := append([]byte(`{"params":`), params...)
	if len(params) == 0 {
		raw = append(raw, "null"...)
	}
	m, err := convertObject(append(raw, '}'), f, "question", (*reader).inputRequest)
	if err != nil {
		return nil, err
	}
	m.Method = strings.ToValidUTF8(method, "\uFFFD")
	return m, nil
}
