package mcpclient

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mcpbridge/mcpbridge/mcpclient/transport"
)

// jsonOptions reads what servers send; see lenient.
var jsonOptions = json.JoinOptions(lenient...)

// discovery is the answer to one server/discover (2026-07-28 server/discover).
type discovery struct {
	// SupportedVersions is as the server listed them; nil when it did not.
	SupportedVersions []string
	version           string // the best of them that we speak in the modern era, or ""
	server            *Server
}

// discover asks on the current connection.
func (n *negotiation) discover(ctx context.Context, version string) (discovery, error) {
	return n.discoverOn(ctx, n.conn, version)
}

func (n *negotiation) discoverOn(ctx context.Context, conn transport.Conn, version string) (discovery, error) {
	s := &session{conn: conn, era: EraModern, version: version, lifecycle: n.c.lifecycle(version)}
	ctx, cancel := n.budget(ctx)
	defer cancel()
	result, err := watched(ctx, n.c, Operation{Method: methodDiscover, Probe: true}, itself,
		func() (*Result, error) { return n.c.roundTrip(ctx, s, &Call{Method: methodDiscover}) })
	if err != nil {
		return discovery{}, err
	}
	var reply struct {
		SupportedVersions []string       `json:"supportedVersions"`
		Capabilities      jsontext.Value `json:"capabilities"`
		Instructions      string         `json:"instructions"`
		Meta              struct {
			ServerInfo jsontext.Value `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(result.Raw, &reply, jsonOptions); err != nil {
		// whatever answered, it is no DiscoverResult: as good as none at all
		n.c.log.DebugContext(ctx, "the answer to server/discover is not a DiscoverResult", "error", err)
		return discovery{}, nil
	}
	found := discovery{SupportedVersions: reply.SupportedVersions}
	// what was asked for is preferred, so that a pin can be found again
	if slices.Contains(reply.SupportedVersions, version) {
		found.version = version
	} else {
		found.version = bestMutual(modernVersions, reply.SupportedVersions)
	}
	found.server = newServer(EraModern, found.version, reply.Meta.ServerInfo, reply.Capabilities, reply.Instructions)
	return found, nil
}

// modern is the session that a discovery allows.
func (n *negotiation) modern(found discovery) *session {
	return &session{
		conn: n.conn, era: EraModern, version: found.version, server: found.server,
		since: time.Now(), lifecycle: n.c.lifecycle(found.version),
	}
}

// initialize opens a legacy session (2025-11-25 basic/lifecycle). A pinned
// version must be answered with itself; else any legacy version we speak will
// do.
func (n *negotiation) initialize(ctx context.Context, version string) (*session, error) {
	if minimum := n.c.opts.Version.Minimum; version < minimum {
		return nil, versionError(minimum, nil, nil)
	}
	ctx, cancel := n.budget(ctx)
	defer cancel()
	s := &session{conn: n.conn, era: EraLegacy, version: version}
	call := &Call{Method: methodInitialize}
	call.params = append(call.params, `"protocolVersion":`...)
	call.params = appendString(call.params, version)
	call.params = append(call.params, `,"capabilities":`...)
	call.params = append(call.params, n.c.capabilities.legacy...)
	call.params = append(call.params, `,"clientInfo":`...)
	call.params = append(call.params, n.c.info...)
	result, err := watched(ctx, n.c, Operation{Method: methodInitialize}, itself,
		func() (*Result, error) { return n.c.roundTrip(ctx, s, call) })
	if err != nil {
		return nil, err
	}
	var reply struct {
		ProtocolVersion string         `json:"protocolVersion"`
		ServerInfo      jsontext.Value `json:"serverInfo"`
		Capabilities    jsontext.Value `json:"capabilities"`
		Instructions    string         `json:"instructions"`
	}
	if err := json.Unmarshal(result.Raw, &reply, jsonOptions); err != nil {
		return nil, &Error{Kind: KindProtocol, Method: methodInitialize, Message: "the answer to initialize is not an InitializeResult", Sent: true, Err: err}
	}
	if pin := n.c.opts.Version.Pin; pin != "" && reply.ProtocolVersion != pin {
		return nil, versionError(pin, []string{reply.ProtocolVersion}, nil)
	}
	if EraOf(reply.ProtocolVersion) != EraLegacy {
		return nil, &Error{Kind: KindVersion, Method: methodInitialize, Sent: true, Message: fmt.Sprintf(
			"the server answered initialize with protocol version %.40q, which this client does not speak in a session", reply.ProtocolVersion)}
	}
	s = &session{
		conn: n.conn, era: EraLegacy, version: reply.ProtocolVersion, since: time.Now(),
		server: newServer(EraLegacy, reply.ProtocolVersion, reply.ServerInfo, reply.Capabilities, reply.Instructions),
	}
	if minimum := n.c.opts.Version.Minimum; s.version < minimum {
		return nil, versionError(minimum, []string{s.version}, nil)
	}
	if err := n.c.notify(ctx, s, methodInitialized, nil); err != nil {
		return nil, err
	}
	if level := n.c.opts.LogLevel; level != "" && s.server.logging {
		call := &Call{Method: methodSetLevel, params: appendString([]byte(`"level":`), string(level))}
		if _, err := n.c.roundTrip(ctx, s, call); err != nil {
			n.c.log.WarnContext(ctx, "the server did not accept the log level", "level", level, "error", err)
		}
	}
	return s, nil
}

const methodSetLevel = "logging/setLevel"

// budget gives a part of the negotiation its own time, if so configured.
func (n *negotiation) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := n.c.opts.Version.Timeout
	if !n.c.opts.Version.SeparateBudgets || limit < 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, &ownTimeout{limit: limit, setting: "timeouts.initialize"})
}

// newServer reads which features the capabilities object declares; anything
// but null counts as declared.
func newServer(era Era, version string, info, capabilities jsontext.Value, instructions string) *Server {
	s := &Server{Era: era, ProtocolVersion: version, Info: info, Capabilities: capabilities, Instructions: instructions}
	if capabilities.Kind() != '{' {
		return s
	}
	_ = eachMember(capabilities, func(key string, value jsontext.Value) error {
		if value.Kind() == 'n' {
			return nil
		}
		switch key {
		case "tools":
			s.tools, s.toolsChange = true, declares(value, "listChanged")
		case "resources":
			s.resources, s.resourcesChange, s.subscribe = true, declares(value, "listChanged"), declares(value, "subscribe")
		case "prompts":
			s.prompts, s.promptsChange = true, declares(value, "listChanged")
		case "completions":
			s.completions = true
		case "logging":
			s.logging = true
		case "extensions":
			s.tasks = declares(value, TasksExtension)
		case "tasks":
			s.readLegacyTasks(value)
		}
		return nil
	})
	return s
}

// declares reports whether an object has a member that is neither null nor
// false.
func declares(object jsontext.Value, name string) (yes bool) {
	if object.Kind() != '{' {
		return false
	}
	_ = eachMember(object, func(key string, value jsontext.Value) error {
		if key == name {
			yes = value.Kind() != 'n' && value.Kind() != 'f'
		}
		return nil
	})
	return yes
}

// metaLifecycle is the part of `_meta` that is the same for every request of a
// modern connection, already encoded (2026-07-28 basic/index, Per-request
// protocol fields).
type metaLifecycle struct {
	version      []byte
	info         []byte // nil = not told
	capabilities []byte // when the caller declares none of its own
}

func (c *Client) lifecycle(version string) metaLifecycle {
	l := metaLifecycle{version: appendString(nil, version), info: c.info, capabilities: c.capabilities.modern}
	if c.opts.HideInfo {
		l.info = nil
	}
	return l
}

// add writes the lifecycle keys, which win over everything before them.
func (l *metaLifecycle) add(meta *Meta, options *CallOptions, tasks bool) {
	if l.version == nil {
		// the handshake carried them; on a request they would make a server of
		// both eras take it for a modern one
		meta.Delete(MetaProtocolVersion)
		meta.Delete(MetaClientInfo)
		meta.Delete(MetaClientCapabilities)
		return
	}
	meta.Set(MetaProtocolVersion, l.version)
	meta.Delete(MetaClientInfo)
	if l.info != nil {
		meta.Set(MetaClientInfo, l.info)
	}
	capabilities := jsontext.Value(l.capabilities)
	if options != nil && len(options.Capabilities) > 0 {
		capabilities = options.Capabilities
	}
	if tasks {
		capabilities = withExtension(capabilities, TasksExtension)
	}
	meta.Set(MetaClientCapabilities, capabilities)
}

// supports says whether the server declared the feature that a method belongs
// to; methods of no feature always are.
func (s *Server) supports(method string) bool {
	switch method {
	case methodListTools, methodCallTool:
		return s.tools
	case methodListResources, methodListTemplates, methodReadResource:
		return s.resources
	case methodListPrompts, methodGetPrompt:
		return s.prompts
	case methodComplete:
		return s.completions
	}
	return true
}
