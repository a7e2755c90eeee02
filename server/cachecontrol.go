package server

import (
	"context"
	"strconv"
	"time"

	"connectrpc.com/connect/v2"
)

// freshness is how long an answer may be reused, and by whom (2026-07-28
// server/utilities/caching). The zero value says nothing.
type freshness struct {
	ttl     time.Duration
	private bool
	set     bool // ttl holds
}

// merge narrows f to what holds for both parts of an answer.
func (f *freshness) merge(ttl time.Duration, private bool) {
	if !f.set || ttl < f.ttl {
		f.ttl = ttl
	}
	f.private = f.private || private
	f.set = true
}

// cacheFor sets Cache-Control on the answer to a Connect GET; elsewhere there
// is no cache to talk to. A time below one second says nothing.
func cacheFor(ctx context.Context, f freshness) {
	seconds := int64(f.ttl / time.Second)
	if !f.set || seconds <= 0 {
		return
	}
	scope := "public"
	if f.private {
		scope = "private"
	}
	setCacheControl(ctx, scope+", max-age="+strconv.FormatInt(min(seconds, maxAge), 10))
}

// maxAge is one year, beyond which HTTP caches do not look (RFC 9111 has no
// limit, but some overflow).
const maxAge = 365 * 24 * 60 * 60

// doNotStore keeps the answer to a Connect GET out of every cache.
func doNotStore(ctx context.Context) { setCacheControl(ctx, "no-store") }

// keepPrivate keeps the answer to a Connect GET out of caches that serve several
// callers, unless cacheFor or doNotStore say more.
func keepPrivate(ctx context.Context) { setCacheControl(ctx, "private") }

func setCacheControl(ctx context.Context, value string) {
	if !isGet(ctx) {
		return
	}
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		info.ResponseHeader().Set("Cache-Control", value)
		info.ResponseHeader().Set("Vary", "Authorization, Mcp-Bridge-Affinity")
	}
}
