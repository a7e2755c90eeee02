package server

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
	"github.com/mcpbridge/mcpbridge/mcpclient/mcptest"
)

const watchResources = "/mcpbridge.v1.ResourcesService/WatchResources"

// enveloped is one message of a Connect stream.
func enveloped(message string) string {
	prefix := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(message)))
	return string(prefix) + message
}

// rawWatch watches resources over HTTP/1.1 on a connection whose reader the
// test is.
func (b *bridge) rawWatch(changes bool, uris ...string) watching {
	b.t.Helper()
	caller := b.raw()
	list, err := json.Marshal(uris)
	if err != nil {
		b.t.Fatal(err)
	}
	body := enveloped(fmt.Sprintf(`{"listChanges":%v,"uris":%s}`, changes, list))
	caller.send(watchResources, fmt.Sprintf("Content-Type: application/connect+json\r\nContent-Length: %d\r\n", len(body)), body)
	var chunks io.Reader
	next := func() (string, error) {
		if chunks == nil {
			res, err := http.ReadResponse(caller.r, nil)
			if err != nil {
				return "", err
			}
			chunks = res.Body
		}
		prefix := make([]byte, 5)
		if _, err := io.ReadFull(chunks, prefix); err != nil {
			return "", err
		}
		message := make([]byte, binary.BigEndian.Uint32(prefix[1:]))
		if _, err := io.ReadFull(chunks, message); err != nil {
			return "", err
		}
		if prefix[0] != 0 {
			return "", errors.New(string(message))
		}
		var e struct {
			Ready       *struct{ URIs []string }
			Updated     *struct{ URI string }
			ListChanged *struct{}
		}
		if err := json.Unmarshal(message, &e); err != nil {
			return "", err
		}
		switch {
		case e.Ready != nil:
			return "ready " + strings.Join(e.Ready.URIs, " "), nil
		case e.Updated != nil:
			return "updated " + e.Updated.URI, nil
		case e.ListChanged != nil:
			return "list", nil
		}
		return string(message), nil
	}
	return watching{b.t, next}
}

// floods is how many updates of 8 KiB are more than a connection buffers.
const floods = 4000

// stall floods a watcher that does not read until the bridge can write no more;
// quick is another one.
func stall(t *testing.T, server *mcptest.Server, uri string, quick watching) {
	t.Helper()
	for range floods {
		updated(server, uri)
		quick.wants("updated " + uri)
	}
}

func TestAWatcherThatDoesNotReadDelaysNobodyAndSeesTheLastState(t *testing.T) {
	server := shop(mcptest.Legacy)
	// what a unary answer may be left untaken for is much shorter than the pause
	b := start(t, Options{limits: limits{write: 100 * time.Millisecond}}, map[string]targetConfig{"shop": {server: server}})
	big, last := "db:///"+strings.Repeat("x", maxURIBytes-6), "db:///last"
	slow := b.rawWatch(false, big, last)
	slow.wants("ready " + big + " " + last)
	quick := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{big}})
	quick.wants("ready false " + big)
	stall(t, server, big, quick)
	updated(server, last)
	time.Sleep(time.Second) // ten times what another answer has
	got := 0
	for {
		event, err := slow.next()
		if err != nil {
			t.Fatalf("after %d events: %v", got, err)
		}
		if event == "updated "+last {
			break
		}
		got++
	}
	if got == 0 || got >= floods {
		t.Errorf("%d updates were told one by one, of %d", got, floods)
	}
	updated(server, big)
	slow.wants("updated " + big)
}

func TestAWatcherOfManyThingsThatDoesNotReadSeesTheLastStateOfEach(t *testing.T) {
	server := shop(mcptest.Modern)
	b := one(t, server)
	var all []string
	for i := range 50 {
		all = append(all, fmt.Sprintf("db:///%02d%s", i, strings.Repeat("x", maxURIBytes-9)))
	}
	slow := b.rawWatch(true, all...)
	slow.wants("ready " + strings.Join(all, " "))
	quick := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: all, ListChanges: true})
	quick.wants("ready true " + strings.Join(all, " "))
	change := func(uri string) {
		t.Helper()
		updated(server, uri)
		quick.wants("updated " + uri)
	}
	last := all[len(all)-1]
	for i := range floods {
		change(all[i%(len(all)-1)])
		if i%(len(all)-1) == 0 {
			server.Notify(mcpclient.MethodResourcesChanged, nil)
			quick.wants("list")
		}
	}
	change(last)
	var told []string
	lists := 0
	for !slices.Contains(told, "updated "+last) {
		event, err := slow.next()
		switch {
		case err != nil:
			t.Fatal(err)
		case event == "list":
			lists++
		default:
			told = append(told, event)
		}
	}
	if most := floods / (len(all) - 1); lists == 0 || lists >= most || len(told) >= floods {
		t.Errorf("%d updates and %d changes of the list were told one by one, of %d and %d", len(told), lists, floods, most)
	}
	waited := told[max(0, len(told)-len(all)):]
	for _, uri := range all {
		if !slices.Contains(waited, "updated "+uri) {
			t.Errorf("the last change of %.10s was not told", uri)
		}
	}
	updated(server, all[0])
	for event := ""; event != "updated "+all[0]; {
		var err error
		if event, err = slow.next(); err != nil {
			t.Fatal(err)
		}
	}
}

// endsWatchesSoon shuts the bridge down, which n watches that nobody reads do not hold up; ended tells how each ended.
func (b *bridge) endsWatchesSoon(ended <-chan error, n int) {
	b.t.Helper()
	begin := time.Now()
	if err := b.Shutdown(b.t.Context()); err != nil {
		b.t.Error(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		b.t.Errorf("the shutdown took %v", took)
	}
	for range n {
		if err := <-ended; err == nil {
			b.t.Error("a watch ended without an error")
		}
	}
}

func TestAStalledWatchDoesNotHoldTheShutdown(t *testing.T) {
	server := shop(mcptest.Legacy)
	over, done := returned()
	b := start(t, Options{limits: limits{grace: 200 * time.Millisecond}, Interceptors: []connect.ServerInterceptor{over}}, map[string]targetConfig{"shop": {server: server}})
	big := "db:///" + strings.Repeat("x", maxURIBytes-6)
	slow := b.rawWatch(false, big)
	slow.wants("ready " + big)
	quick := b.watchResources(t.Context(), overGRPC, &pb.WatchResourcesRequest{Uris: []string{big}})
	quick.wants("ready false " + big)
	stall(t, server, big, quick)
	b.endsWatchesSoon(done, 2)
}

func TestAStreamThatHurriesHasLessTimeForASlowReader(t *testing.T) {
	for name, writing := range map[string]bool{"during a write": true, "before it": false} {
		synctest.Test(t, func(t *testing.T) {
			x, _ := slowExchange(t, 24*time.Hour, time.Time{})
			x.limits.write = defaultStreamTimeout
			begin := time.Now()
			if writing {
				time.AfterFunc(time.Minute, x.hurry)
			} else {
				x.hurry()
			}
			if _, err := x.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(name, err)
			}
			want := defaultAnswerGrace
			if writing {
				want += time.Minute
			}
			if took := time.Since(begin); took != want {
				t.Errorf("%s: given up after %v, want %v", name, took, want)
			}
			x.end()
			x.hurry() // after the end it does nothing
		})
	}
}
