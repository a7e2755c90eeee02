package mcpclient

import (
	"testing"
	"time"
)

func TestPresetsAreValidAndKeepTheirSeedsValues(t *testing.T) {
	for name, preset := range map[string]Options{
		"langchain4j": PresetLangChain4j(), "csharp": PresetCSharp(), "nexus": PresetNexus(), "recovery": PresetRecovery(),
	} {
		if err := preset.prepare("stdio"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	l, c, n, r := PresetLangChain4j(), PresetCSharp(), PresetNexus(), PresetRecovery()
	if !l.Version.SeparateBudgets || l.Timeouts.ToolResult != "There was a timeout executing the tool" || l.Health.Failures != 1 || !l.Cache.IgnoreTTL || !l.Changes.Force {
		t.Errorf("langchain4j: %+v", l)
	}
	if c.Version.Timeout != time.Minute || c.Version.DetectTimeout != 5*time.Second || c.Rounds.MaxRetries != 10 || c.Tasks.MaxStuckPolls != 60 || c.Timeouts.Tool != NoTimeout {
		t.Errorf("csharp: %+v", c)
	}
	if !n.Timeouts.ProgressExtends || n.Timeouts.Max != 10*time.Minute || n.Dispatch.MaxInFlight != 1024 || !n.Reconnect.NoRetry {
		t.Errorf("nexus: %+v", n)
	}
	if r.Health.Interval != 5*time.Second || r.Reconnect.Interval != 5*time.Second || r.Reconnect.Multiplier != 1 || r.Reconnect.StopTimeout != 10*time.Second {
		t.Errorf("recovery: %+v", r)
	}
}
