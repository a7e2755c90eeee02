package server

import (
	"context"

	"connectrpc.com/connect/v2"

	"github.com/mcpbridge/mcpbridge/internal/targets"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// HeaderAffinity is request metadata: calls of one caller with the same value
// share connections of a target with isolation per_key, and no others do. 1 to
// 128 visible ASCII characters.
const HeaderAffinity = "mcp-bridge-affinity"

const maxAffinity = 128

type callerIDKey struct{}

// WithCallerID returns a context that says who makes the call, for interceptors
// that authenticate callers. Targets with isolation per_caller need it, and
// those with per_key keep the keys of different callers apart by it.
func WithCallerID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callerIDKey{}, id)
}

func callerID(ctx context.Context) string {
	id, _ := ctx.Value(callerIDKey{}).(string)
	return id
}

// acquire leases a client of a target for the call's caller.
func acquire(ctx context.Context, target *targets.Target) (*pool.Lease, error) {
	who, err := callerOf(ctx, target)
	if err != nil {
		return nil, err
	}
	return target.Acquire(ctx, who)
}

// callerOf is the call's caller, as far as the target needs to know it.
func callerOf(ctx context.Context, target *targets.Target) (targets.Caller, error) {
	who := targets.Caller{ID: callerID(ctx)}
	if target.Isolation() != targets.PerKey {
		return who, nil
	}
	var err error
	who.Affinity, err = affinity(ctx)
	return who, err
}

// affinity is the key that the caller sent, "" for none.
func affinity(ctx context.Context) (string, error) {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok {
		return "", nil
	}
	switch values := info.RequestHeader().Values(HeaderAffinity); {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", refuseField(reasonInvalidParams, HeaderAffinity, "is sent more than once; send one value")
	case !validAffinity(values[0]):
		return "", refuseField(reasonInvalidParams, HeaderAffinity, "must be 1 to 128 visible ASCII characters, without spaces")
	default:
		return values[0], nil
	}
}

func validAffinity(key string) bool {
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return false
		}
	}
	return key != "" && len(key) <= maxAffinity
}

// isolated says that a target's answers are not for all callers.
func isolated(target *targets.Target) bool { return target.Isolation() != targets.Shared }
