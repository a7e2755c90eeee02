//go:build unix

package transport

import (
	"errors"
	"testing"
)

func TestFault68_WritingToAProcessThatEndsIsAnErrorAndNothingElse(t *testing.T) {
	conn := dial(t, child("exit", ""), nil)
	if _, err := conn.Call(t.Context(), legacy(1, "x")); err != nil {
		t.Fatal(err)
	}
	for { // until the end has been noticed
		err := conn.Notify(t.Context(), notification("notifications/cancelled"))
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != NotSent && e.Kind != Lost {
			t.Errorf("error: %v", err)
		}
		break
	}
	<-conn.Done()
	wantError(t, conn.Notify(t.Context(), notification("notifications/cancelled")), NotSent)
}
