package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// reason is the reason of google.rpc.ErrorInfo: what a program branches on.
type reason string

// Every reason a caller can see.
const (
	reasonTargetNotFound        reason = "TARGET_NOT_FOUND"
	reasonServiceNotFound       reason = "SERVICE_NOT_FOUND" // grpc.health.v1 alone
	reasonTargetRequired        reason = "TARGET_REQUIRED"
	reasonTargetUnavailable     reason = "TARGET_UNAVAILABLE"
	reasonOutcomeUnknown        reason = "OUTCOME_UNKNOWN"
	reasonConnectionLost        reason = "CONNECTION_LOST"
	reasonOverloaded            reason = "OVERLOADED"
	reasonUpstreamRateLimited   reason = "UPSTREAM_RATE_LIMITED"
	reasonRateLimited           reason = "RATE_LIMITED"
	reasonTooLarge              reason = "TOO_LARGE"
	reasonTimeout               reason = "TIMEOUT"
	reasonCanceled              reason = "CANCELED"
	reasonMethodNotSupported    reason = "METHOD_NOT_SUPPORTED"
	reasonToolNotFound          reason = "TOOL_NOT_FOUND"
	reasonPromptNotFound        reason = "PROMPT_NOT_FOUND"
	reasonResourceNotFound      reason = "RESOURCE_NOT_FOUND"
	reasonTaskNotFound          reason = "TASK_NOT_FOUND"
	reasonInvalidParams         reason = "INVALID_PARAMS"
	reasonJSONInvalid           reason = "JSON_INVALID"
	reasonPageTokenInvalid      reason = "PAGE_TOKEN_INVALID"
	reasonAffinityRequired      reason = "AFFINITY_REQUIRED"
	reasonCapabilityRequired    reason = "CAPABILITY_REQUIRED"
	reasonInputRequired         reason = "INPUT_REQUIRED"
	reasonProtocolVersion       reason = "PROTOCOL_VERSION"
	reasonUpstreamProtocol      reason = "UPSTREAM_PROTOCOL"
	reasonUpstreamInternal      reason = "UPSTREAM_INTERNAL"
	reasonUpstreamAuth          reason = "UPSTREAM_AUTH"
	reasonUpstreamHTTP          reason = "UPSTREAM_HTTP"
	reasonCallerUnauthenticated reason = "CALLER_UNAUTHENTICATED"
	reasonPolicyDenied          reason = "POLICY_DENIED"
	reasonMCPError              reason = "MCP_ERROR"
	reasonInternal              reason = "INTERNAL"
)

// code is the RPC code of a reason. Three reasons have several codes:
// UPSTREAM_AUTH and UPSTREAM_HTTP, which [scope.classify] tells apart, and
// INVALID_PARAMS, which is UNIMPLEMENTED where the protocols require that: for
// an unknown compression, and for none or several messages in a unary call.
func (r reason) code() connect.Code {
	switch r {
	case reasonTargetNotFound, reasonServiceNotFound, reasonToolNotFound, reasonPromptNotFound, reasonResourceNotFound, reasonTaskNotFound:
		return connect.CodeNotFound
	case reasonTargetRequired, reasonInvalidParams, reasonJSONInvalid, reasonPageTokenInvalid, reasonAffinityRequired:
		return connect.CodeInvalidArgument
	case reasonTargetUnavailable, reasonConnectionLost, reasonUpstreamAuth, reasonUpstreamHTTP:
		return connect.CodeUnavailable
	case reasonOutcomeUnknown, reasonMCPError:
		return connect.CodeUnknown
	case reasonOverloaded, reasonUpstreamRateLimited, reasonRateLimited, reasonTooLarge:
		return connect.CodeResourceExhausted
	case reasonTimeout:
		return connect.CodeDeadlineExceeded
	case reasonCanceled:
		return connect.CodeCanceled
	case reasonMethodNotSupported:
		return connect.CodeUnimplemented
	case reasonCapabilityRequired, reasonInputRequired, reasonProtocolVersion:
		return connect.CodeFailedPrecondition
	case reasonCallerUnauthenticated:
		return connect.CodeUnauthenticated
	case reasonPolicyDenied:
		return connect.CodePermissionDenied
	case reasonUpstreamProtocol, reasonUpstreamInternal, reasonInternal:
		return connect.CodeInternal
	}
	return connect.CodeInternal
}

// failure is one failed call, classified: everything its RPC error says.
type failure struct {
	reason  reason
	code    connect.Code // 0 = that of reason
	message string
	retry   time.Duration  // RetryInfo; 0 = none, since a retry is not known to be safe
	rpc     *jsonrpc.Error // JsonRpcError; nil = none
	fields  []violation    // BadRequest
	cause   error          // for logs, never sent
}

// violation is one invalid field of a request; reason may be empty.
type violation struct{ field, description, reason string }

// Error makes a failure an error, so that any layer can refuse a call with
// one; the message is safe to show.
func (f *failure) Error() string { return string(f.reason) + ": " + f.message }

// Unwrap returns the private cause.
func (f *failure) Unwrap() error { return f.cause }

// refuse is a failure that this side decided on.
func refuse(r reason, message string) *failure { return &failure{reason: r, message: message} }

// refuseField is a failure of one field of the request.
func refuseField(r reason, field, description string) *failure {
	return &failure{reason: r, message: field + ": " + description, fields: []violation{{field: field, description: description}}}
}

// fieldFailure is a field that could not be turned into MCP.
func (s scope) fieldFailure(e *convert.FieldError) *failure {
	r := reasonInvalidParams
	switch e.Reason {
	case convert.ReasonInvalidJSON, convert.ReasonNotObject, convert.ReasonTooDeep, convert.ReasonNotFinite:
		r = reasonJSONInvalid
	case convert.ReasonBothSet, convert.ReasonNotSet, convert.ReasonIDMismatch, convert.ReasonRefusal:
	}
	f := refuseField(r, s.path+e.Field, e.Description)
	f.fields[0].reason = string(e.Reason)
	f.cause = e
	return f
}

// defaultRetry is the RetryInfo of a failure that may be retried and does not
// say when.
const defaultRetry = time.Second

// Causes of a context that this side cancelled.
var (
	errDraining = errors.New("the bridge is shutting down")
	errForced   = errors.New("the bridge cut off the calls that it did not wait for")
)

// scope is what a call was about. Zero fields are left out of its errors.
type scope struct {
	target string
	method string // MCP method
	name   string // tool or prompt name, URI or task id
	path   string // what the names of the request's fields begin with
	era    mcpclient.Era
	// isolated: the target keeps callers apart, so that an answer is for this one.
	isolated bool
	// callerCredential: the credential sent to the server was the caller's own.
	callerCredential bool
}

// fail turns any error of a call into the RPC's error. An RPC error authored
// on this side passes unchanged.
func (s scope) fail(ctx context.Context, err error) *connect.Error {
	s.noteName(ctx)
	if rpc, ok := errors.AsType[*connect.Error](err); ok && !rpc.IsRemote() {
		return rpc
	}
	return s.build(s.classify(ctx, err))
}

// classify decides what an error means to the caller (the table of the
// project's error contract).
func (s scope) classify(ctx context.Context, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if field, ok := errors.AsType[*convert.FieldError](err); ok {
		return s.fieldFailure(field)
	}
	if errors.Is(err, targets.ErrRequired) {
		return refuseField(reasonTargetRequired, s.path+"target", "several targets are configured, so the request must name one; HealthService.ListTargets lists them")
	}
	if unknown, ok := errors.AsType[*targets.NotFoundError](err); ok {
		return refuse(reasonTargetNotFound, fmt.Sprintf("there is no target %s; HealthService.ListTargets lists those that are configured", quote(unknown.Name)))
	}
	switch {
	case errors.Is(err, targets.ErrAffinityRequired):
		return refuseField(reasonAffinityRequired, HeaderAffinity, "the target keeps calls apart by this request metadata, and the call has none; send 1 to 128 visible ASCII characters, the same for calls that belong together")
	case errors.Is(err, targets.ErrCallerRequired):
		return refuse(reasonCallerUnauthenticated, s.about("the target keeps callers apart, and nothing says who this one is; authenticate, or have the operator set pool.isolation of the target to another value"))
	case errors.Is(err, targets.ErrClosed):
		return draining()
	}
	if e, ok := errors.AsType[*mcpclient.Error](err); ok {
		f := s.classifyClient(ctx, e)
		f.cause = err
		return f
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return s.late(err)
	case errors.Is(err, context.Canceled):
		return s.canceled(ctx, err, false)
	}
	f := faulty()
	f.cause = err
	return f
}

// canceled tells a caller that went away from a bridge that shuts down. sent
// is true once the server may have begun to act.
func (s scope) canceled(ctx context.Context, err error, sent bool) *failure {
	switch cause := context.Cause(ctx); {
	case !errors.Is(cause, errForced) && !errors.Is(cause, errDraining):
	case sent && !s.safe():
		return &failure{reason: reasonOutcomeUnknown, message: s.about("the bridge shut down while the call was running; whether it was carried out is not known"), cause: err}
	default:
		return draining()
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) { // grpc-go cancels at the deadline
		return s.late(err)
	}
	return &failure{reason: reasonCanceled, message: s.about("the caller canceled the call"), cause: err}
}

// late is a call whose caller does not wait any longer.
func (s scope) late(err error) *failure {
	return &failure{reason: reasonTimeout, message: s.about("the caller's deadline passed before the answer came"), cause: err}
}

// faulty is a fault of this side, of which the caller is told no more.
func faulty() *failure {
	return refuse(reasonInternal, "internal error of the bridge; its log has the details")
}

// draining is the end of a call or stream that a shutdown cut short.
func draining() *failure {
	return &failure{reason: reasonTargetUnavailable, message: "the bridge is shutting down; try again, another replica may answer", retry: defaultRetry, cause: errDraining}
}

// safe reports whether running the method twice does no harm.
func (s scope) safe() bool { return s.method != methodCallTool }

func (s scope) classifyClient(ctx context.Context, e *mcpclient.Error) *failure {
	retry := e.RetryAfter
	switch {
	case retry == mcpclient.NeverAgain:
		retry = 0
	case retry <= 0:
		retry = defaultRetry
	}
	message := s.about(e.Message)
	switch e.Kind {
	case mcpclient.KindTask:
		return refuse(reasonMCPError, message)
	case mcpclient.KindRPC:
		switch {
		case e.RPC == nil:
		case e.RPC.Code == mcpclient.CodeInvalidParams && s.method == methodGetTask: // it takes nothing else that could be wrong
			return s.notFound(reasonTaskNotFound, e.RPC, nil)
		case e.RPC.Code == mcpclient.CodeInvalidParams && s.method == methodCallTool && strings.HasPrefix(e.Method, "tasks/"):
			f := s.classifyRPC(e.RPC)
			f.reason = reasonTaskNotFound // the one that the call became
			return f
		default:
			return s.classifyRPC(e.RPC)
		}
	case mcpclient.KindInvalid:
		if e.Sent { // what was not usable is an answer of the caller
			f := refuseField(reasonInvalidParams, fieldAnswer, e.Message)
			f.message = message
			return f
		}
		return refuse(reasonInvalidParams, message)
	case mcpclient.KindInput:
		return refuse(reasonInputRequired, message+"; answer it, or do not declare in client_capabilities what you do not answer")
	case mcpclient.KindTimeout:
		return refuse(reasonTimeout, message)
	case mcpclient.KindCanceled:
		return s.canceled(ctx, e, e.Sent)
	case mcpclient.KindUnavailable, mcpclient.KindClosed, mcpclient.KindLost:
		return s.disconnected(e, retry)
	case mcpclient.KindProtocol:
		return refuse(reasonUpstreamProtocol, message)
	case mcpclient.KindTooLarge:
		setting := "max_reply_bytes"
		if strings.HasSuffix(e.Method, "/list") && e.RPC == nil && strings.Contains(e.Message, "over all pages") {
			setting = "max_list_bytes"
		}
		return refuse(reasonTooLarge, message+fmt.Sprintf("; the limit is targets.%s.%s", placeholder(s.target), setting))
	case mcpclient.KindHTTP:
		f := &failure{reason: reasonUpstreamHTTP, message: message, rpc: e.RPC}
		if e.Status >= 400 && e.Status < 500 {
			f.code = connect.CodeInternal
		} else if e.SafeToRetry || s.safe() {
			f.retry = retry
		}
		return f
	case mcpclient.KindUnauthorized:
		return s.unauthorized(e)
	case mcpclient.KindRateLimited:
		return &failure{reason: reasonUpstreamRateLimited, message: message, retry: retry, rpc: e.RPC}
	case mcpclient.KindOverloaded:
		return &failure{reason: reasonOverloaded, message: message, retry: retry}
	case mcpclient.KindUnsupported:
		return refuse(reasonMethodNotSupported, message)
	case mcpclient.KindVersion:
		return &failure{reason: reasonProtocolVersion, message: message, rpc: e.RPC}
	case mcpclient.KindInternal:
	}
	return faulty()
}

// disconnected is a call without a connection, or whose connection ended. What
// it promises hangs on whether anything was sent, never on the kind or on the
// text of the error alone.
func (s scope) disconnected(e *mcpclient.Error, retry time.Duration) *failure {
	const doubt = "; whether the server acted is unknown"
	const hint = "its stderr may say why"
	said := s.about(strings.NewReplacer(doubt, "", hint, "HealthService.GetTarget shows its last lines on stderr").Replace(e.Message))
	switch {
	case (!e.Sent || e.SafeToRetry) && e.Kind != mcpclient.KindLost:
		return &failure{reason: reasonTargetUnavailable, message: said, retry: retry}
	case e.SafeToRetry || s.safe():
		return &failure{reason: reasonConnectionLost, message: said, retry: retry}
	}
	return refuse(reasonOutcomeUnknown, said+"; whether the tool ran is not known, so check before calling again")
}

// unauthorized blames whoever owns the credential that was refused.
func (s scope) unauthorized(e *mcpclient.Error) *failure {
	f := &failure{reason: reasonUpstreamAuth, rpc: e.RPC}
	switch {
	case !s.callerCredential:
		f.message = s.about(fmt.Sprintf("the server refused the bridge's own credential (HTTP %d); set targets.%s.headers in the bridge's configuration", e.Status, placeholder(s.target)))
	case e.Status == http.StatusForbidden:
		f.code = connect.CodePermissionDenied
		f.message = s.about("the server accepted your credential but does not allow this call (HTTP 403); ask its operator for access")
	default:
		f.code = connect.CodeUnauthenticated
		f.message = s.about(fmt.Sprintf("the server refused your credential (HTTP %d); send a valid one", e.Status))
	}
	return f
}

// classifyRPC maps the server's own error (2026-07-28 basic/index, Error
// Codes; 2025-11-25 for the codes it dropped).
func (s scope) classifyRPC(e *jsonrpc.Error) *failure {
	f := &failure{reason: reasonMCPError, rpc: e}
	said := s.about(fmt.Sprintf("the server answered with error %d: %s", e.Code, quoteLong(e.Message)))
	f.message = said
	switch e.Code {
	case mcpclient.CodeMethodNotFound:
		f.reason = reasonMethodNotSupported
	case mcpclient.CodeResourceNotFound:
		f.reason = reasonResourceNotFound
	case mcpclient.CodeInvalidParams:
		f.reason = reasonInvalidParams
		// 2026-07-28 server/resources, Error Handling: the code for a missing resource.
		if s.method == methodReadResource && s.era == mcpclient.EraModern {
			f.reason = reasonResourceNotFound
		}
	case mcpclient.CodeCapabilityRequired:
		f.reason = reasonCapabilityRequired
		f.message = said + "; it needs " + requiredCapabilities(e.Data) + " in client_capabilities, from a caller that can answer such questions"
	case mcpclient.CodeURLElicitation:
		f.reason = reasonInputRequired
		f.message = said + "; a user must first visit a URL, which a caller gets that sets client_capabilities.elicitation.url"
	case mcpclient.CodeUnsupportedVersion:
		f.reason = reasonProtocolVersion
		f.message = said + fmt.Sprintf("; set targets.%s.protocol_version to a revision that the server speaks%s", placeholder(s.target), supportedVersions(e.Data))
	case mcpclient.CodeHeaderMismatch, mcpclient.CodeParse, mcpclient.CodeInvalidRequest:
		f.reason = reasonUpstreamProtocol
	case mcpclient.CodeInternal:
		f.reason = reasonUpstreamInternal
	}
	return f
}
