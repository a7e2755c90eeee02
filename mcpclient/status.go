package mcpclient

import (
	"runtime/debug"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// State is where a [Client] is in its life.
type State int

const (
	// StateIdle: not started, or lazy and waiting for a call to connect, or to
	// connect again.
	StateIdle State = iota
	// StateConnecting: the first connection attempt is under way.
	StateConnecting
	// StateReady: connected; calls go out at once.
	StateReady
	// StateReconnecting: no connection; the next attempt is under way or waits
	// for its time.
	StateReconnecting
	// StateSuspect: a probe went unanswered; calls still go out.
	StateSuspect
	// StateClosed: Close was called.
	StateClosed
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case StateIdle:
		return "idle"
	case StateConnecting:
		return "connecting"
	case StateReady:
		return "ready"
	case StateReconnecting:
		return "reconnecting"
	case StateSuspect:
		return "suspect"
	case StateClosed:
		return "closed"
	}
	return "unknown"
}

// Status is a snapshot of a [Client].
type Status struct {
	State State
	// Since is when the client entered State.
	Since time.Time
	// Server is what the server told of itself, from the newest connection; nil
	// before the first one.
	Server *Server
	// LastError is why the newest connection or attempt failed; nil when it
	// did not.
	LastError error
	// NextAttempt is when the next connection attempt starts; zero when none
	// is planned.
	NextAttempt time.Time
	// Connects counts the connections made so far.
	Connects int
}

// Server is what a server told of itself when the connection was negotiated.
// It is immutable.
type Server struct {
	Era             Era
	ProtocolVersion string
	// Info is the server's Implementation object; nil when it sent none.
	Info jsontext.Value
	// Capabilities is its ServerCapabilities object; nil when it sent none.
	Capabilities jsontext.Value
	Instructions string

	tools, resources, prompts, completions, logging        bool // declared features
	toolsChange, resourcesChange, promptsChange, subscribe bool
	tasks                                                  bool // the tasks extension
	toolTasks, cancelsTasks                                bool // the tasks of 2025-11-25

}

// moduleVersion is the version of the module this package was built from.
func moduleVersion() string {
	const module = "github.com/mcpbridge/mcpbridge"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "0.0.0"
	}
	modules := append(info.Deps, &info.Main)
	for _, m := range modules {
		if m.Path == module && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "0.0.0-dev"
}
