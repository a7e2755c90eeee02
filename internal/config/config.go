package config

import "time"

// Config is the whole configuration of one bridge process. A Config from
// [Default], [Load] or [Parse] has every default filled in; its zero value is
// not usable. It is plain data: copy it only with care for the maps inside.
type Config struct {
	Listen     Listen     `yaml:"listen"`
	Log        Log        `yaml:"log"`
	Shutdown   Shutdown   `yaml:"shutdown"`
	Telemetry  Telemetry  `yaml:"telemetry"`
	ClientInfo ClientInfo `yaml:"client_info"`

	// Targets are the MCP servers behind the bridge, by name.
	Targets map[string]*Target `yaml:"targets"`
}

// Listen says where callers connect.
type Listen struct {
	// Address is HOST:PORT for gRPC, gRPC-Web and Connect over HTTP/1.1 and
	// cleartext HTTP/2. An empty host means every interface. Port 0 picks one.
	Address string `yaml:"address"`

	// GRPC is the listener for gRPC alone over cleartext HTTP/2, which costs less
	// there.
	GRPC GRPC `yaml:"grpc"`

	// MaxRequestBytes bounds one request message of a caller. Never zero.
	MaxRequestBytes Size `yaml:"max_request_bytes"`

	// Insecure permits an address that other machines can reach although the
	// listener has neither TLS nor authentication.
	Insecure bool `yaml:"insecure"`

	// Admin is for operators, apart from the callers.
	Admin Admin `yaml:"admin"`
}

// GRPC is the listener for gRPC alone.
type GRPC struct {
	// Address is HOST:PORT. Empty means that there is no such listener. Port 0
	// picks one.
	Address string `yaml:"address"`
}

// Admin is the listener of health checks, metrics and profiles.
type Admin struct {
	// Address is HOST:PORT for HTTP/1.1. Empty means that there is no such
	// listener. Port 0 picks one.
	Address string `yaml:"address"`

	// Pprof serves profiles of the running process.
	Pprof bool `yaml:"pprof"`

	// Insecure permits an address that other machines can reach although the
	// listener has neither TLS nor authentication.
	Insecure bool `yaml:"insecure"`
}

// Log says what the process logs to stderr.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`

	// Access says which calls have a line.
	Access LogAccess `yaml:"access"`
}

// Shutdown says how the process ends.
type Shutdown struct {
	// Timeout bounds the wait for calls in flight after SIGTERM. Zero waits
	// for none of them.
	Timeout time.Duration `yaml:"timeout"`
}

// ClientInfo is how the bridge names itself to MCP servers. An empty Version
// means the version of the binary; the other fields may be empty except Name.
type ClientInfo struct {
	Name        string `yaml:"name"`
	Title       string `yaml:"title"`
	Version     string `yaml:"version"`
	Description string `yaml:"description"`
	WebsiteURL  string `yaml:"website_url"`
}

// Target is one MCP server: a child process (Command), something that listens
// (URL) or several replicas of it (URLs). Exactly one of the three is set.
type Target struct {
	// Command is the program and its arguments; no shell is involved.
	Command []string `yaml:"command"`

	// Env is added to the small environment that a child gets.
	Env map[string]Secret `yaml:"env"`

	// Cwd is the working directory of the child. Empty means the bridge's own.
	Cwd string `yaml:"cwd"`

	// URL is the MCP endpoint: http and https, or unix:///PATH and
	// tcp://HOST:PORT for servers that speak the framing of stdio on a socket.
	URL string `yaml:"url"`

	// URLs are the replicas of one HTTP server. They differ in host and port only.
	URLs []string `yaml:"urls"`

	// Headers are sent with every HTTP request to URL or URLs.
	Headers map[string]Secret `yaml:"headers"`

	// Transport is TransportStdio for every target with a Command.
	Transport Transport `yaml:"transport"`

	// ProtocolVersion pins the MCP revision, both requested and required.
	ProtocolVersion ProtocolVersion `yaml:"protocol_version"`

	// MinimumProtocolVersion is the oldest revision to accept; empty means any.
	MinimumProtocolVersion MinimumVersion `yaml:"minimum_protocol_version"`

	Timeouts  Timeouts  `yaml:"timeouts"`
	Restart   Restart   `yaml:"restart"`
	Pool      Pool      `yaml:"pool"`
	Health    Health    `yaml:"health"`
	Reconnect Reconnect `yaml:"reconnect"`
	Cache     Cache     `yaml:"cache"`
	Changes   Changes   `yaml:"changes"`
	Input     Input     `yaml:"input"`
	Tasks     Tasks     `yaml:"tasks"`
	Dispatch  Dispatch  `yaml:"dispatch"`

	// Baggage is what the server gets of its callers' baggage.
	Baggage Baggage `yaml:"baggage"`

	// ServerLogLevel is what the server is asked to log; the bridge writes it
	// to its own log. ServerLogNone asks for nothing and drops what comes.
	ServerLogLevel ServerLogLevel `yaml:"server_log_level"`

	// Lazy connects on the first call instead of at start.
	Lazy bool `yaml:"lazy"`

	// Roots are the directories that the server may ask for with roots/list.
	Roots []Root `yaml:"roots"`

	// MaxReplyBytes bounds one message of the server. Never zero.
	MaxReplyBytes Size `yaml:"max_reply_bytes"`

	// MaxListBytes bounds one list over all of its pages. Never zero.
	MaxListBytes Size `yaml:"max_list_bytes"`
}

// Timeouts bound single operations of a target. Zero means no limit. A
// caller's own deadline always holds beside them.
type Timeouts struct {
	Tool       time.Duration `yaml:"tool"`
	Resource   time.Duration `yaml:"resource"`
	Prompt     time.Duration `yaml:"prompt"`
	Completion time.Duration `yaml:"completion"`

	// Initialize bounds connecting as a whole, Detect the question for the
	// protocol era inside it.
	Initialize time.Duration `yaml:"initialize"`
	Detect     time.Duration `yaml:"detect"`

	// Max bounds one operation over all of its requests: pages, retries, rounds
	// of input, polls of a task.
	Max time.Duration `yaml:"max"`

	// Tools replaces Tool for single tools, by name.
	Tools map[string]time.Duration `yaml:"tools"`
}

// Root is one directory offered to a server. URI is a file:// URI.
type Root struct {
	URI  string `yaml:"uri"`
	Name string `yaml:"name"`
}

// Default returns the configuration of an empty file. It has no targets.
func Default() *Config {
	return &Config{
		Listen:     Listen{Address: "127.0.0.1:8080", MaxRequestBytes: 16 << 20},
		Log:        Log{Level: LevelInfo, Format: FormatText, Access: AccessSampled},
		Shutdown:   Shutdown{Timeout: 20 * time.Second},
		Telemetry:  Telemetry{TrustRemote: true},
		ClientInfo: ClientInfo{Name: "bridge"},
		Targets:    map[string]*Target{},
	}
}

// NewTarget returns a target with the defaults of its transport and of
// IsolationShared, and without Command, URL and URLs. A child process is given
// longer to start than an HTTP server, because package runners download it
// first.
func NewTarget(transport Transport) *Target {
	t := &Target{
		Transport:       transport,
		ProtocolVersion: VersionAuto,
		Timeouts: Timeouts{
			Tool:       60 * time.Second,
			Resource:   60 * time.Second,
			Prompt:     60 * time.Second,
			Completion: 60 * time.Second,
			Initialize: 30 * time.Second,
			Detect:     5 * time.Second,
		},
		Pool: Pool{
			Isolation: IsolationShared, MaxConnections: IsolationShared.maxConnections(),
			MaxInFlight: 1024, MaxQueue: 1024, MaxInteractive: 16, IdleTimeout: 5 * time.Minute,
		},
		Health:         Health{Enabled: true, Interval: 30 * time.Second, Timeout: 10 * time.Second, Failures: 2},
		Reconnect:      Reconnect{Interval: 5 * time.Second, MaxInterval: 60 * time.Second, Multiplier: 2},
		Cache:          Cache{Tools: true, Resources: true, Prompts: true},
		Changes:        Changes{Tools: true, Resources: true, Prompts: true},
		Input:          Input{MaxRounds: 3},
		Tasks:          Tasks{Enabled: true, MaxStuckPolls: 60, PollInterval: time.Second},
		Dispatch:       Dispatch{MaxInFlight: 1024},
		Baggage:        Baggage{Policy: BaggageForward},
		ServerLogLevel: ServerLogNone,
		MaxReplyBytes:  64 << 20,
		MaxListBytes:   64 << 20,
	}
	if transport == TransportStdio {
		t.Timeouts.Initialize = 60 * time.Second
		t.Timeouts.Detect = 15 * time.Second
		t.Restart = Restart{Max: 5, Window: 60 * time.Second, StopTimeout: 10 * time.Second}
	}
	return t
}
