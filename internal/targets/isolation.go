package targets

import (
	"errors"
	"strconv"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

// Isolation says which callers share the connections of a target: pool.isolation
// of the configuration.
type Isolation = config.Isolation

// The values of [Isolation].
const (
	Shared    = config.IsolationShared
	PerKey    = config.IsolationPerKey
	PerCaller = config.IsolationPerCaller
	PerCall   = config.IsolationPerCall
)

// Caller is who a call is for. The zero value is somebody unknown.
type Caller struct {
	ID       string // "" = not authenticated
	Affinity string // the key that the caller sent; "" = none
}

// ErrAffinityRequired says that the target keeps the callers' keys apart and
// that the call had none.
var ErrAffinityRequired = errors.New("the target needs an affinity key")

// ErrCallerRequired says that the target keeps callers apart and that nobody
// said who this one is.
var ErrCallerRequired = errors.New("the target needs an authenticated caller")

// keyOf says for whom a connection has to be that serves a caller.
func keyOf(isolation Isolation, who Caller) (pool.Key, error) {
	switch isolation {
	case PerKey:
		if who.Affinity == "" {
			return pool.Key{}, ErrAffinityRequired
		}
		// the length keeps one caller from choosing a key that is another's
		return pool.Key{Isolation: strconv.Itoa(len(who.ID)) + ":" + who.ID + who.Affinity}, nil
	case PerCaller:
		if who.ID == "" {
			return pool.Key{}, ErrCallerRequired
		}
		return pool.Key{Isolation: who.ID}, nil
	case Shared, PerCall:
	}
	return pool.Key{}, nil
}

func modeOf(isolation Isolation) pool.Mode {
	switch isolation {
	case PerKey, PerCaller:
		return pool.ModePerKey
	case PerCall:
		return pool.ModePerCall
	case Shared:
	}
	return pool.ModeShared
}
