package bridgeotel

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

const (
	methodListen      = "subscriptions/listen"
	methodListTools   = "tools/list"
	methodListPrompts = "prompts/list"

	// relistInterval is how often at most a catalogue is asked for because a name
	// was not in it.
	relistInterval = time.Minute
)

// TargetMetrics measures what one target's clients do. The names that callers
// choose become attributes only if the server's own lists have them.
type TargetMetrics struct {
	m    *Metrics
	name attribute.KeyValue

	tools, prompts atomic.Pointer[mcpclient.List] // the newest lists; nil = none was seen
	relisted       atomic.Int64                   // when a list was last asked for, in Unix nanoseconds

	mu       sync.RWMutex // guards the rest
	outcomes map[outcome][]metric.RecordOption
}

// outcome is all that distinguishes the attributes of two operations.
type outcome struct {
	method, name                 string
	version, transport, endpoint string
	errorType, code              string
}

// Target begins to measure a target; name is the configured one.
func (m *Metrics) Target(name string) *TargetMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.targets[name] = struct{}{}
	return &TargetMetrics{m: m, name: keyTarget.String(name), outcomes: map[outcome][]metric.RecordOption{}}
}

// knows reports whether a target of this name was ever configured.
func (m *Metrics) knows(target string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, ok := m.targets[target]
	return ok
}

// Interceptor records mcp.client.operation.duration for each attempt of each
// request and notification. It belongs inside the tracing interceptor, so that
// exemplars name its span. Subscriptions are left out: how long one lasts says
// nothing about the server.
func (t *TargetMetrics) Interceptor() mcpclient.Interceptor {
	if !t.m.Enabled() {
		return passThrough
	}
	return t.intercept
}

func (t *TargetMetrics) intercept(ctx context.Context, call *mcpclient.Call, next mcpclient.Next) (*mcpclient.Result, error) {
	if call.Method == methodListen {
		return next(ctx, call)
	}
	start := time.Now()
	result, err := next(ctx, call)
	took := time.Since(start)
	key := outcome{
		method: call.Method, version: call.ProtocolVersion, transport: call.Transport, endpoint: call.Endpoint,
		name: t.listed(call, result),
	}
	if f, failed := failureOf(result, err); failed {
		key.errorType, key.code = f.kind, boundedCode(f.code)
		if key.code != "" {
			key.errorType = key.code
		}
	}
	t.m.operation.Record(ctx, took.Seconds(), t.options(key)...)
	return result, err
}

// OnList is for [mcpclient.Options].OnList: it learns the names of the target's
// tools and prompts. It is nil when nothing is measured.
func (t *TargetMetrics) OnList() func(string, *mcpclient.List) {
	if !t.m.Enabled() {
		return nil
	}
	return t.learn
}

func (t *TargetMetrics) learn(method string, list *mcpclient.List) {
	switch method {
	case methodListTools:
		t.tools.Store(list)
	case methodListPrompts:
		t.prompts.Store(list)
	}
}

// listed is the name of the tool or prompt of a call if the server lists it,
// else _OTHER. When the server served a name that is not in the list, or there
// is none, the list is asked for.
func (t *TargetMetrics) listed(call *mcpclient.Call, result *mcpclient.Result) string {
	var list *mcpclient.List
	switch call.Method {
	case methodCallTool:
		list = t.tools.Load()
	case methodGetPrompt:
		list = t.prompts.Load()
	default:
		return ""
	}
	if list != nil && list.Has(call.Name) {
		return call.Name
	}
	if result != nil && !result.IsError && t.mayRelist() {
		call.Relist()
	}
	return errorOther
}

func (t *TargetMetrics) mayRelist() bool {
	now, last := time.Now().UnixNano(), t.relisted.Load()
	return (last == 0 || now-last >= int64(relistInterval)) && t.relisted.CompareAndSwap(last, now)
}

// options are the attributes of an outcome, built once.
func (t *TargetMetrics) options(key outcome) []metric.RecordOption {
	t.mu.RLock()
	options, ok := t.outcomes[key]
	t.mu.RUnlock()
	if ok {
		return options
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	options = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(t.attributes(key)...))}
	if len(t.outcomes) < maxSeries {
		t.outcomes[key] = options
	}
	return options
}

// attributes are those of the MCP semantic conventions, and the target.
func (t *TargetMetrics) attributes(key outcome) []attribute.KeyValue {
	attrs := []attribute.KeyValue{t.name, keyMethod.String(key.method)}
	switch key.method {
	case methodCallTool:
		attrs = append(attrs, keyOperation.String(operationExecuteTool), keyTool.String(clip(key.name)))
	case methodGetPrompt:
		attrs = append(attrs, keyPrompt.String(clip(key.name)))
	}
	if key.version != "" {
		attrs = append(attrs, keyProtocolVersion.String(key.version))
	}
	if key.errorType != "" {
		attrs = append(attrs, keyErrorType.String(key.errorType))
	}
	if key.code != "" {
		attrs = append(attrs, keyRPCStatus.String(key.code))
	}
	return networkAttributes(attrs, key.transport, key.endpoint)
}

// boundedCode is a JSON-RPC error code if it is one of JSON-RPC or MCP, and else
// _OTHER: servers may make up any number.
func boundedCode(code string) string {
	switch code {
	case "", "-32700", "-32600", "-32601", "-32602", "-32603", // JSON-RPC 2.0
		"-32000", "-32001", "-32002", "-32020", "-32021", "-32022", "-32042": // MCP and its SDKs
		return code
	}
	return errorOther
}

// OnSessionEnd is for [mcpclient.Options].OnSessionEnd: it records
// mcp.client.session.duration. It is nil when nothing is measured.
func (t *TargetMetrics) OnSessionEnd() func(mcpclient.SessionEnd) {
	if !t.m.Enabled() {
		return nil
	}
	return t.sessionEnded
}

func (t *TargetMetrics) sessionEnded(end mcpclient.SessionEnd) {
	if end.Era != mcpclient.EraLegacy { // servers of 2026-07-28 have no sessions
		return
	}
	attrs := []attribute.KeyValue{t.name, keyProtocolVersion.String(end.ProtocolVersion)}
	if f, failed := failureOf(nil, end.Err); failed {
		kind := f.kind
		if f.code != "" {
			kind = boundedCode(f.code)
		}
		attrs = append(attrs, keyErrorType.String(kind))
	}
	attrs = networkAttributes(attrs, end.Transport, end.Endpoint)
	t.m.session.Record(context.Background(), end.Duration.Seconds(), metric.WithAttributeSet(attribute.NewSet(attrs...)))
}
