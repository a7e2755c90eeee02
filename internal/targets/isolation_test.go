package targets

import (
	"errors"
	"testing"

	"github.com/mcpbridge/mcpbridge/internal/config"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
	"github.com/mcpbridge/mcpbridge/mcpclient/pool"
)

func TestCallersThatMustNotMeetHaveDifferentKeys(t *testing.T) {
	callers := []Caller{
		{"", "a"},
		{"", "b"},
		{"a", "b"},
		{"", "ab"},
		{"ab", ""},
		{"a", "bc"},
		{"ab", "c"},
		{"1:", "a"},
		{"", "1:a"},
		{"0:", "a"},
	}
	keys := map[pool.Key]Caller{}
	for _, who := range callers {
		key, err := keyOf(config.IsolationPerKey, who)
		if who.Affinity == "" {
			if !errors.Is(err, ErrAffinityRequired) {
				t.Errorf("%+v: %v, want ErrAffinityRequired", who, err)
			}
			continue
		}
		if err != nil || key == (pool.Key{}) {
			t.Errorf("%+v: %v, %v", who, key, err)
		}
		if other, taken := keys[key]; taken {
			t.Errorf("%+v and %+v share %v", who, other, key)
		}
		keys[key] = who
	}
	for _, who := range callers {
		key, err := keyOf(config.IsolationPerCaller, who)
		if (who.ID == "") != errors.Is(err, ErrCallerRequired) {
			t.Errorf("per_caller %+v: %v, %v", who, key, err)
		}
		if err == nil && key.Isolation != who.ID {
			t.Errorf("per_caller %+v: %v", who, key)
		}
		for _, isolation := range []config.Isolation{config.IsolationShared, config.IsolationPerCall} {
			if key, err := keyOf(isolation, who); key != (pool.Key{}) || err != nil {
				t.Errorf("%s %+v: %v, %v", isolation, who, key, err)
			}
		}
	}
}

func TestSessionsFollowTheIsolation(t *testing.T) {
	callers := []Caller{{"x", "1"}, {"x", "2"}, {"x", "1"}, {"y", "1"}}
	for isolation, sessions := range map[config.Isolation]int{
		config.IsolationShared: 1, config.IsolationPerKey: 3, config.IsolationPerCaller: 2, config.IsolationPerCall: 4,
	} {
		t.Run(string(isolation), func(t *testing.T) {
			server := &mcptest.Server{Era: mcptest.Legacy, Tools: []mcptest.Tool{{Name: "hi"}}}
			c := httpTarget(mcptest.StartHTTP(t, server))
			c.Pool.Isolation, c.Pool.MaxConnections = isolation, 0
			s := newSet(t, Deps{}, map[string]*config.Target{"a": c})
			s.Start()
			for _, who := range callers {
				lease, err := s.All()[0].Acquire(t.Context(), who)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := lease.Client().CallTool(t.Context(), "hi", nil, nil); err != nil {
					t.Error(err)
				}
				lease.Release()
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if got := server.Count("initialize"); got != sessions {
				t.Errorf("sessions = %d, want %d", got, sessions)
			}
			if got := server.Count(mcptest.MethodDelete); got != sessions {
				t.Errorf("deleted sessions = %d, want %d", got, sessions)
			}
		})
	}
}

func TestStderrIsThatOfTheNewestChildThatHasWritten(t *testing.T) {
	child := mcptest.StartChild(t, "legacy")
	c := childTarget(child)
	c.Pool.Isolation, c.Pool.MaxConnections = config.IsolationPerCall, 0
	s := newSet(t, Deps{}, map[string]*config.Target{"a": c})
	if got := s.All()[0].StderrTail(); got != nil {
		t.Errorf("before the first call: %q", got)
	}
	for range keptChildren + 1 {
		if _, err := call(t, s, "a", "env"); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.All()[0].children.tail(); len(got) != 1 || got[0] != "ready to serve" {
		t.Errorf("stderr = %q", got)
	}
	if got := s.All()[0].StderrTail(); got != nil {
		t.Errorf("what a process wrote for one caller is shown to all: %q", got)
	}
	if kept := len(s.All()[0].children.list); kept != keptChildren {
		t.Errorf("%d children are kept", kept)
	}
}
