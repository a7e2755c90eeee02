package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFlagsThatMakeNoSenseAreRefused(t *testing.T) {
	for args, want := range map[string]string{"-duration=5s": "-duration", "-rate=0": "-rate", "-nope": "-nope"} {
		if _, err := parseFlags([]string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if f, err := parseFlags(nil); err != nil || f.duration < 3*time.Minute || f.rate != 200 {
		t.Errorf("defaults: %+v, %v", f, err)
	}
}
