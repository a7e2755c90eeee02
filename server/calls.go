package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/jsonrpc"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
	"github.com/mcpbridge/mcpbridge/server/internal/convert"
)

// caller is what all services share: the way to a target and back.
type caller struct {
	targets *targets.Set
	log     *slog.Logger
	budget  time.Duration // for one target within a list over all

	keepAlive time.Duration // of silence on a stream
}

// lookup tells an unknown name from other errors: known asks the server's
// catalogue, and reason is what an absent name is called.
type lookup struct {
	reason reason
	known  func(*mcpclient.Client, context.Context, string) (bool, error)
}

// knowsBudget bounds the look into the catalogue after an error, along with
// half of the time the caller has left; when that does not suffice the error
// stays as it is. The answer in hand is worth more than its best wording.
const knowsBudget = time.Second

// find returns a target and tells the caller which one it is.
func (c *caller) find(ctx context.Context, name string) (*targets.Target, error) {
	target, err := c.targets.Get(name)
	if err == nil {
		setTarget(ctx, target.Name())
	}
	return target, err
}

// upstream is one request to a target.
type upstream struct {
	look lookup
	// visits: the caller has declared that it visits URLs, so that a demand for
	// that is a question to it.
	visits bool
	// answers: the server knows that the caller answers questions.
	answers bool
	// lease replaces the ordinary lease of a client; nil = acquire.
	lease func(context.Context, *targets.Target) (*pool.Lease, error)
	send  func(context.Context, *mcpclient.Client) (*mcpclient.Result, error)
}

// locate finds the target of a request and tells s and the caller about it; the
// error is the RPC's.
func (c *caller) locate(ctx context.Context, target string, s *scope) (*targets.Target, error) {
	s.noteName(ctx)
	s.target = target
	found, err := c.find(ctx, target)
	if err != nil {
		return nil, s.fail(ctx, err)
	}
	s.target = found.Name()
	if s.isolated = isolated(found); s.isolated {
		keepPrivate(ctx)
	}
	return found, nil
}

// run sends one request to a target. s gets to know the target and the era;
// the error is the RPC's.
func (c *caller) run(ctx context.Context, target string, s *scope, u upstream) (*mcpclient.Result, error) {
	found, err := c.locate(ctx, target, s)
	if err != nil {
		return nil, err
	}
	result, f := c.try(ctx, found, s, u)
	if f != nil {
		return nil, s.build(f)
	}
	return result, nil
}

// try sends one request to a target that was located. s gets to know the era.
func (c *caller) try(ctx context.Context, found *targets.Target, s *scope, u upstream) (*mcpclient.Result, *failure) {
	take := u.lease
	if take == nil {
		take = acquire
	}
	lease, err := take(ctx, found)
	if err != nil {
		return nil, s.classify(ctx, err)
	}
	defer lease.Release()
	client := lease.Client()
	result, err := u.send(ctx, client)
	if result != nil {
		s.era = result.Era
	} else {
		s.era = eraOfServer(client)
	}
	if err == nil {
		if result.IsError && result.Task == "" && c.absent(ctx, client, *s, u.look) {
			return nil, u.unknown(*s, nil, nil)
		}
		s.noteOutcome(ctx, result)
		return result, nil
	}
	if u.visits {
		if asked := visitsOf(err, *s); len(asked) > 0 {
			result := asked.result(s.era)
			s.noteOutcome(ctx, result)
			return result, nil
		}
	}
	if e, ok := errors.AsType[*mcpclient.Error](err); ok && e.Sent && e.Kind != mcpclient.KindTask && rpcErrorOf(err, *s) == nil {
		lease.Discard() // the server may still be at it
	}
	f := s.classify(ctx, err)
	if e := rpcErrorOf(err, *s); mayBeUnknown(e, f.reason) && c.absent(ctx, client, *s, u.look) {
		f = u.unknown(*s, e, err)
	}
	return nil, f
}

// unknown is the failure of a name that the server's catalogue lacks. A legacy
// server may have one for each set of capabilities.
func (u *upstream) unknown(s scope, rpc *jsonrpc.Error, cause error) *failure {
	f := s.notFound(u.look.reason, rpc, cause)
	if u.look.reason == reasonToolNotFound && s.era == mcpclient.EraLegacy && !u.answers {
		f.message += ". The server may offer more to callers that can answer questions: use CallToolInteractive, and say in client_capabilities what you answer"
	}
	return f
}

// rpcErrorOf returns what the server answered to the call itself, nil if it is
// not that which failed.
func rpcErrorOf(err error, s scope) *jsonrpc.Error {
	if e, ok := errors.AsType[*mcpclient.Error](err); ok && e.Kind == mcpclient.KindRPC && e.Task == "" && e.Method == s.method {
		return e.RPC
	}
	return nil
}

// eraOfServer is the era of a client's newest connection.
func eraOfServer(client *mcpclient.Client) mcpclient.Era {
	if server := client.Status().Server; server != nil {
		return server.Era
	}
	return mcpclient.EraUnknown
}

// mayBeUnknown reports whether the server's error may be about a name it does
// not have. Servers use many codes for that, but some say that it is not, or
// that it surely is.
func mayBeUnknown(e *jsonrpc.Error, r reason) bool {
	existing := []reason{reasonCapabilityRequired, reasonInputRequired, reasonProtocolVersion, reasonResourceNotFound}
	return e != nil && !slices.Contains(existing, r)
}

// absent reports whether the server's catalogue surely lacks the name.
func (c *caller) absent(ctx context.Context, client *mcpclient.Client, s scope, look lookup) bool {
	if look.known == nil {
		return false
	}
	budget := knowsBudget
	if deadline, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(deadline)/2)
	}
	if budget <= 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	known, err := look.known(client, ctx, s.name)
	if err != nil {
		c.log.DebugContext(ctx, "an error could not be told from an unknown name", "target", s.target, "method", s.method, "error", err)
		return false
	}
	return !known
}

// continuation is what every request that a server may answer with questions
// has in common.
type continuation interface {
	GetMeta() *structpb.Struct
	GetClientCapabilities() *pb.ClientCapabilities
	GetInputResponses() map[string]*pb.InputResponse
}

// tasksExtension is the extension that a caller lists in its capabilities to
// get tasks as they are, instead of their ends.
const tasksExtension = "io.modelcontextprotocol/tasks"

// callOptions converts the common part of a request.
func callOptions(req continuation, state *string) (*mcpclient.CallOptions, error) {
	meta, err := convert.Meta(req.GetMeta(), "meta")
	if err != nil {
		return nil, err
	}
	capabilities, err := convert.ClientCapabilities(req.GetClientCapabilities())
	if err != nil {
		return nil, err
	}
	answers, err := convert.InputResponses(req.GetInputResponses(), "input_responses")
	if err != nil {
		return nil, err
	}
	_, takesTasks := req.GetClientCapabilities().GetExtensions()[tasksExtension]
	return &mcpclient.CallOptions{
		Checked: true, // by convert
		Meta:    meta, Capabilities: capabilities, InputResponses: answers, RequestState: state,
		ReturnInput: true, ReturnTask: takesTasks,
	}, nil
}

// continues reports whether the request goes on with an earlier one, so that
// its answer is for this caller alone.
func continues(o *mcpclient.CallOptions) bool {
	return len(o.InputResponses) > 0 || o.RequestState != nil
}
