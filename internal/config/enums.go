package config

// Transport is how a target is reached.
type Transport string

// TransportAuto is the default of a target with a URL; a target with a Command
// always ends as TransportStdio.
const (
	TransportAuto           Transport = "auto"
	TransportStreamableHTTP Transport = "streamable_http"
	TransportSSE            Transport = "sse" // HTTP+SSE, deprecated since 2025-03-26
	TransportStdio          Transport = "stdio"
)

// ProtocolVersion is a revision of MCP, or VersionAuto.
type ProtocolVersion string

// VersionAuto lets the bridge ask the server. The others are the revisions it
// speaks, newest first.
const (
	VersionAuto     ProtocolVersion = "auto"
	Version20260728 ProtocolVersion = "2026-07-28"
	Version20251125 ProtocolVersion = "2025-11-25"
	Version20250618 ProtocolVersion = "2025-06-18"
	Version20250326 ProtocolVersion = "2025-03-26"
	Version20241105 ProtocolVersion = "2024-11-05"
)

// MinimumVersion is a revision of MCP, or empty for none.
type MinimumVersion string

// ServerLogLevel is the least severe log message that a server is asked for.
type ServerLogLevel string

// ServerLogNone asks for none. The others are the levels of MCP, least severe
// first.
const (
	ServerLogNone      ServerLogLevel = "none"
	ServerLogDebug     ServerLogLevel = "debug"
	ServerLogInfo      ServerLogLevel = "info"
	ServerLogNotice    ServerLogLevel = "notice"
	ServerLogWarning   ServerLogLevel = "warning"
	ServerLogError     ServerLogLevel = "error"
	ServerLogCritical  ServerLogLevel = "critical"
	ServerLogAlert     ServerLogLevel = "alert"
	ServerLogEmergency ServerLogLevel = "emergency"
)

// Isolation says which callers of a target may share a connection, and with it
// whatever the server keeps for one.
type Isolation string

// IsolationShared lets all of them share. IsolationPerKey gives every affinity
// key connections of its own, IsolationPerCaller every caller, IsolationPerCall
// every call. IsolationPerCaller is refused as long as no listener knows who
// its callers are.
const (
	IsolationShared    Isolation = "shared"
	IsolationPerKey    Isolation = "per_key"
	IsolationPerCaller Isolation = "per_caller"
	IsolationPerCall   Isolation = "per_call"
)

// LogLevel is the least severe level that is logged.
type LogLevel string

// The levels of log/slog.
const (
	LevelDebug LogLevel = "debug"
	LevelInfo  LogLevel = "info"
	LevelWarn  LogLevel = "warn"
	LevelError LogLevel = "error"
)

// LogFormat is the form of a log line.
type LogFormat string

// FormatText is key=value, FormatJSON one JSON object a line.
const (
	FormatText LogFormat = "text"
	FormatJSON LogFormat = "json"
)

// LogAccess says which calls have a line in the log.
type LogAccess string

// AccessOff logs none of them, AccessOn every one. AccessSampled logs every
// call that failed, and of the others a few each second.
const (
	AccessOff     LogAccess = "off"
	AccessOn      LogAccess = "on"
	AccessSampled LogAccess = "sampled"
)

// The values that the enumerated settings accept, in the order in which an
// error lists them. The JSON Schema is tested against them.
func transports() []Transport {
	return []Transport{TransportAuto, TransportStreamableHTTP, TransportSSE, TransportStdio}
}

func protocolVersions() []ProtocolVersion {
	return []ProtocolVersion{VersionAuto, Version20260728, Version20251125, Version20250618, Version20250326, Version20241105}
}

func minimumVersions() []MinimumVersion {
	versions := []MinimumVersion{""}
	for _, v := range protocolVersions()[1:] {
		versions = append(versions, MinimumVersion(v))
	}
	return versions
}

func isolations() []Isolation { return []Isolation{IsolationShared, IsolationPerKey, IsolationPerCall} }

func serverLogLevels() []ServerLogLevel {
	return []ServerLogLevel{
		ServerLogNone, ServerLogDebug, ServerLogInfo, ServerLogNotice, ServerLogWarning,
		ServerLogError, ServerLogCritical, ServerLogAlert, ServerLogEmergency,
	}
}

func logLevels() []LogLevel { return []LogLevel{LevelDebug, LevelInfo, LevelWarn, LevelError} }

func logFormats() []LogFormat { return []LogFormat{FormatText, FormatJSON} }

func logAccesses() []LogAccess { return []LogAccess{AccessOff, AccessOn, AccessSampled} }
