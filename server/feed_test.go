package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	pb "github.com/mcpbridge/mcpbridge/gen/mcpbridge/v1"
	"github.com/mcpbridge/mcpbridge/mcpclient"
)

// all takes what waits, in short.
func (f *feed) all() []string {
	var out []string
	for e, ok := f.take(); ok; e, ok = f.take() {
		switch {
		case e.progress != nil:
			out = append(out, fmt.Sprint("p", e.progress.Progress))
		case e.log != nil:
			text := "l" + string(e.log.Data)
			if e.dropped > 0 {
				text += fmt.Sprint("-", e.dropped)
			}
			out = append(out, text)
		case e.question != nil:
			out = append(out, "q"+e.question.id)
		default:
			out = append(out, "w"+e.withdrawn)
		}
	}
	return out
}

func logOf(n int, level mcpclient.LogLevel) mcpclient.LogMessage {
	return mcpclient.LogMessage{Level: level, Data: fmt.Append(nil, n)}
}

func wantEvents(t *testing.T, f *feed, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.all()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f.logs != 0 || f.logBytes != 0 || f.progress != nil || f.queue.Len() != 0 {
		t.Errorf("an empty feed counts %d logs of %d bytes, progress %v", f.logs, f.logBytes, f.progress)
	}
}

func TestProgressThatWaitsIsReplacedAndMovesBehindWhatCameMeanwhile(t *testing.T) {
	f := newFeed(1)
	f.addProgress(mcpclient.Progress{Progress: 1})
	f.addLog(logOf(1, mcpclient.LogInfo))
	f.addProgress(mcpclient.Progress{Progress: 2})
	f.addLog(logOf(2, mcpclient.LogInfo))
	wantEvents(t, f, "l1", "p2", "l2")
	f.addProgress(mcpclient.Progress{Progress: 3})
	f.all()
	f.addProgress(mcpclient.Progress{Progress: 4})
	wantEvents(t, f, "p4")
}

func TestTheOldestLogMessagesAreDroppedAndCounted(t *testing.T) {
	f := newFeed(1)
	f.ask(&question{id: "1"})
	for n := range maxWaitingLogs + 3 {
		f.addLog(logOf(n, mcpclient.LogInfo))
	}
	got := f.all()
	if len(got) != maxWaitingLogs+1 || got[0] != "q1" || got[1] != "l3-3" || got[2] != "l4" {
		t.Errorf("%d events: %q…", len(got), got[:3])
	}
	big := mcpclient.LogMessage{Data: []byte(strings.Repeat("9", maxWaitingLogBytes))}
	f.addLog(logOf(1, mcpclient.LogInfo))
	f.addLog(big)
	if e, ok := f.take(); !ok || e.dropped != 1 || len(e.log.Data) != maxWaitingLogBytes {
		t.Errorf("the newest message that just fits: %v, %d dropped", ok, e.dropped)
	}
	big.Data = append(big.Data, '9')
	f.addLog(big)
	f.addLog(logOf(2, mcpclient.LogInfo))
	wantEvents(t, f, "l2-1")
}

func TestLogMessagesThatWereShedBeforeCountAsDropped(t *testing.T) {
	f := newFeed(1)
	shed := func(n int64) mcpclient.LogMessage { return mcpclient.LogMessage{Data: []byte("1"), Shed: n} }
	f.addLog(shed(2))
	wantEvents(t, f, "l1-2")
	f.addLog(shed(3))
	for n := range maxWaitingLogs {
		f.addLog(logOf(n, mcpclient.LogInfo))
	}
	if got := f.all()[0]; got != "l0-4" {
		t.Errorf("got %s, want l0-4", got)
	}
	few := newFeed(severity(pb.LogLevel_LOG_LEVEL_ERROR))
	few.addLog(mcpclient.LogMessage{Level: mcpclient.LogDebug, Shed: 7})
	few.addLog(logOf(1, mcpclient.LogAlert))
	wantEvents(t, few, "l1-7")
}

func TestALongProgressTextIsCut(t *testing.T) {
	f := newFeed(0)
	f.addProgress(mcpclient.Progress{Message: strings.Repeat("é", maxProgressText)})
	e, _ := f.take()
	if n := len(e.progress.Message); n > maxProgressText || n < maxProgressText-4 || !strings.HasSuffix(e.progress.Message, "é...") {
		t.Errorf("%d bytes", n)
	}
}

func TestLogMessagesLessSevereThanAskedForAreLeftOut(t *testing.T) {
	f := newFeed(severity(pb.LogLevel_LOG_LEVEL_WARNING))
	for n, level := range []mcpclient.LogLevel{mcpclient.LogDebug, mcpclient.LogNotice, mcpclient.LogWarning, mcpclient.LogEmergency, "loud"} {
		f.addLog(logOf(n, level))
	}
	wantEvents(t, f, "l2", "l3", "l4")
	none := newFeed(0)
	none.addLog(logOf(1, mcpclient.LogEmergency))
	wantEvents(t, none)
}

func TestAQuestionThatIsWithdrawnBeforeItWasTakenIsNeverSeen(t *testing.T) {
	f := newFeed(0)
	for _, id := range []string{"1", "2"} {
		f.ask(&question{id: id})
	}
	f.withdraw("1")
	wantEvents(t, f, "q2")
	f.withdraw("2")
	wantEvents(t, f, "w2")
}

func TestAFeedIsBoundedWhateverComes(t *testing.T) {
	f := newFeed(1)
	rnd := rand.New(rand.NewPCG(1, 2))
	dropped, sent, taken := 0, 0, 0
	for n := range 100_000 {
		switch rnd.IntN(3) {
		case 0:
			f.addProgress(mcpclient.Progress{Progress: float64(n)})
		case 1:
			sent++
			f.addLog(mcpclient.LogMessage{Level: mcpclient.LogInfo, Data: make([]byte, rnd.IntN(10_000))})
		case 2:
			if rnd.IntN(10) == 0 {
				if e, ok := f.take(); ok && e.log != nil {
					taken++
					dropped += int(e.dropped)
				}
			}
		}
		if f.queue.Len() > maxWaitingLogs+1 || f.logBytes > maxWaitingLogBytes+20_000 {
			t.Fatalf("%d events, %d bytes wait", f.queue.Len(), f.logBytes)
		}
	}
	for e, ok := f.take(); ok; e, ok = f.take() {
		if e.log != nil {
			taken++
			dropped += int(e.dropped)
		}
	}
	if taken+dropped != sent {
		t.Errorf("%d taken and %d dropped, of %d", taken, dropped, sent)
	}
}

func TestLogLevelsAreThoseOfTheAPI(t *testing.T) {
	for value, name := range pb.LogLevel_name {
		level := severity(value).level()
		if want := strings.ToLower(strings.TrimPrefix(name, "LOG_LEVEL_")); want != "unspecified" && string(level) != want || severityOf(level) != severity(value) {
			t.Errorf("%s: %q, %v", name, level, severityOf(level))
		}
	}
	if !slices.Equal([]severity{severityOf(""), severityOf("loud")}, []severity{0, 0}) {
		t.Error("an unknown level has a severity")
	}
}
