package mcpclient_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

func TestASubscriptionIsOpenWhileNothingIsMissed(t *testing.T) {
	for _, era := range []mcptest.Era{mcptest.Modern, mcptest.Legacy} {
		onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
			s := features(era)
			c := dial(t, s, mcpclient.Options{Changes: noChanges})
			var b box
			sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, b.put)
			other := mustListen(t, c, mcpclient.Filter{PromptsList: true}, b.put)
			if !sub.Open() || !other.Open() {
				t.Error("not open after the acknowledgement")
			}
			other.Close()
			synctest.Wait()
			if other.Open() || !sub.Open() {
				t.Error("the end of one is the end of the other, or of neither")
			}
			s.SetDown(true)
			s.ExpireSessions()
			s.DropSubscriptions()
			time.Sleep(time.Minute)
			_ = c.Connect(t.Context()) // a legacy client without calls finds out late
			synctest.Wait()
			if sub.Open() {
				t.Error("open while the server is away")
			}
			b.take()
			s.SetDown(false)
			time.Sleep(5 * time.Minute)
			if !sub.Open() {
				t.Error("not open again")
			}
			b.want(t, mcpclient.MethodResync)
			wantOpen(t, sub)
		})
	}
}

func TestWithoutAnAcknowledgementNothingIsOpen(t *testing.T) {
	onBoth(t, func(t *testing.T, _ string, dial func(*testing.T, *mcptest.Server, mcpclient.Options) *mcpclient.Client) {
		s := features(mcptest.Modern)
		s.Listen.AckDelay = time.Minute
		c := dial(t, s, mcpclient.Options{Changes: noChanges})
		var b box
		sub := mustListen(t, c, mcpclient.Filter{ToolsList: true}, b.put)
		if sub.Open() {
			t.Error("open before the acknowledgement")
		}
		time.Sleep(2 * time.Minute)
		if !sub.Open() {
			t.Error("not open after it")
		}
	})
}
