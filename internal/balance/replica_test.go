package balance

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = log.New(io.Discard, "", 0)

// watched starts the watch of a replica whose connections dial makes.
func watched(t *testing.T, dial func() error) (r *replica, stop func()) {
	t.Helper()
	base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if err := dial(); err != nil {
			return nil, err
		}
		a, b := net.Pipe()
		_ = b.Close()
		return a, nil
	}}
	u, err := url.Parse("http://replica/mcp")
	if err != nil {
		t.Fatal(err)
	}
	r = newReplica(u, base, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.watch(ctx)
	}()
	return r, func() { cancel(); <-ended }
}

// step is how exactly backAfter measures.
const step = 10 * time.Millisecond

// backAfter waits until the replica is not down and returns for how long.
func backAfter(r *replica) time.Duration {
	begin := time.Now()
	for r.down.Load() {
		time.Sleep(step) // fake time
		synctest.Wait()
	}
	return time.Since(begin)
}

func TestAReplicaIsBackSoonAfterItAcceptsConnections(t *testing.T) {
	for _, outage := range []time.Duration{0, time.Second, time.Minute, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			probes := 0
			r, stop := watched(t, func() error {
				probes++
				if time.Since(begin) < outage {
					return errors.New("refused")
				}
				return nil
			})
			defer stop()
			r.fail(errors.New("refused"))
			if late := backAfter(r) - outage; late > probePause+step {
				t.Errorf("back %v after it accepts connections, want at most %v", late, probePause)
			}
			if most := 5 + int(outage/probePause); probes > most {
				t.Errorf("%d probes in %v, want at most %d", probes, outage, most)
			}
		})
	}
}

func TestAReplicaThatOnlyAnswersProbesIsTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := watched(t, func() error { return nil })
		defer stop()
		want := firstPause
		for range 12 {
			r.fail(errors.New("handshake failed"))
			if got := backAfter(r); got < want || got > want+step {
				t.Errorf("tried again after %v, want %v", got, want)
			}
			want = min(2*want, trialPause)
		}
		r.answered()
		r.fail(errors.New("refused"))
		if got := backAfter(r); got > firstPause+step {
			t.Errorf("tried again after %v although it had worked, want %v", got, firstPause)
		}
	})
}

func TestAnAnswerBringsAReplicaBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := watched(t, func() error { return errors.New("refused") })
		defer stop()
		r.fail(errors.New("refused"))
		synctest.Wait()
		r.answered()
		synctest.Wait()
		if r.down.Load() {
			t.Error("it still counts as down")
		}
	})
}

func TestAReplicaBehindAProxyIsTriedWithARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dialed atomic.Bool
		r, stop := watched(t, func() error { dialed.Store(true); return errors.New("unreachable") })
		defer stop()
		r.base.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy:3128") }
		r.fail(errors.New("proxy: bad gateway"))
		if backAfter(r) > time.Second || dialed.Load() {
			t.Errorf("it was probed directly: %t", dialed.Load())
		}
	})
}
