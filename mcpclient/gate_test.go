package mcpclient_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestAGateLearnsTheOutcomeOfEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &mcptest.Server{Era: mcptest.Legacy}
		server.SetDown(true)
		var outcomes []error
		c := overHTTP(t, server, mcpclient.Options{ConnectGate: func(context.Context) (func(error), error) {
			return func(err error) { outcomes = append(outcomes, err) }, nil
		}})
		if err := c.Connect(t.Context()); err == nil {
			t.Error("connected to a server that is down")
		}
		server.SetDown(false)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if len(outcomes) != 2 || outcomes[0] == nil || outcomes[1] != nil {
			t.Errorf("outcomes = %v, want a failure and a success", outcomes)
		}
	})
}

func TestAnAttemptThatItsGateRefusesIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := 3
		c := overHTTP(t, &mcptest.Server{Era: mcptest.Legacy}, mcpclient.Options{
			Reconnect: mcpclient.ReconnectOptions{MaxAttempts: 2},
			ConnectGate: func(context.Context) (func(error), error) {
				if refusals--; refusals >= 0 {
					return nil, &mcpclient.Error{Kind: mcpclient.KindUnavailable, Message: "not yet", RetryAfter: 7 * time.Second}
				}
				return func(error) {}, nil
			},
		})
		e, ok := errors.AsType[*mcpclient.Error](c.Connect(t.Context()))
		if !ok || e.Kind != mcpclient.KindUnavailable || e.RetryAfter != 7*time.Second || !e.SafeToRetry {
			t.Errorf("Connect = %+v, want the gate's refusal with its time", e)
		}
		time.Sleep(3*7*time.Second + time.Second)
		synctest.Wait()
		if s := c.Status(); s.State != mcpclient.StateReady {
			t.Errorf("%v, want ready after three refusals of 7 s", s.State)
		}
	})
}

func TestALazyClientThatLostItsConnectionWaitsForACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := features(mcptest.Legacy)
		var st states
		c := overHTTP(t, server, mcpclient.Options{Lazy: true, OnState: st.on})
		if err := c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.SetDown(true)
		server.ExpireSessions()
		_, _ = c.ReadResource(t.Context(), "demo://a", nil) // finds out, and tries again
		synctest.Wait()
		if s := c.Status(); s.State != mcpclient.StateReconnecting || s.NextAttempt.IsZero() {
			t.Errorf("%v, next attempt %v; want to know when to come back", s.State, s.NextAttempt)
		}
		server.SetDown(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := c.Status(); s.State != mcpclient.StateIdle || s.LastError == nil || !s.NextAttempt.IsZero() {
			t.Errorf("%v after the wait, want idle: who goes by the state would never call again", s.State)
		}
		if _, err := c.ReadResource(t.Context(), "demo://a", nil); err != nil {
			t.Error(err)
		}
		server.Hangup()
	})
}
