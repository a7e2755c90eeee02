package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reading is what the bridge's process holds at one time.
type reading struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"` // bytes in use after a collection
	FDs        int    `json:"-"`
	Sockets    int    `json:"-"` // of the fds
	Children   int    `json:"-"` // all descendants, zombies too
}

func (r reading) String() string {
	return fmt.Sprintf("%d goroutines, %d fds of which %d sockets, %d child processes, heap %.2f MiB", r.Goroutines, r.FDs, r.Sockets, r.Children, float64(r.Heap)/(1<<20))
}

// counts is the reading without the heap, which always moves a little.
func (r reading) counts() reading {
	r.Heap = 0
	return r
}

// heapMargin is by how much the heap may have grown.
const heapMargin = 0.10

// differs names what is not as before. Less is wrong, too: a stream or a process that never came back.
func (r reading) differs(before reading) []string {
	var wrong []string
	add := func(what string, before, after int, is bool) {
		if is {
			wrong = append(wrong, fmt.Sprintf("%s %d → %d", what, before, after))
		}
	}
	add("goroutines", before.Goroutines, r.Goroutines, r.Goroutines != before.Goroutines)
	add("fds", before.FDs, r.FDs, r.FDs != before.FDs)
	add("sockets", before.Sockets, r.Sockets, r.Sockets != before.Sockets)
	add("child processes", before.Children, r.Children, r.Children != before.Children)
	add("heap", int(before.Heap), int(r.Heap), float64(r.Heap) > float64(before.Heap)*(1+heapMargin))
	return wrong
}

// usual is the reading that most of a list are like in their counts, with the smallest heap of all.
func usual(readings []reading) (most reading, found bool) {
	times := map[reading]int{}
	for _, r := range readings {
		if times[r.counts()]++; 2*times[r.counts()] > len(readings) {
			most, found = r.counts(), true
		}
	}
	for i, r := range readings {
		if i == 0 || r.Heap < most.Heap {
			most.Heap = r.Heap
		}
	}
	return most, found
}

// settled is the outcome of the wait for rest after the load.
type settled struct {
	ok    bool
	took  time.Duration
	wrong []string // what stayed different
}

const (
	pollEvery    = 250 * time.Millisecond
	restFor      = 10 * time.Second // of observation before the load
	restPolls    = 4                // in a row that are as before, after the load; probes of health stand out
	settleWithin = 2 * time.Minute
)

// read takes one reading.
func (b *bridgeProcess) read(ctx context.Context) (reading, error) {
	var r reading
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(b.cmd.Process.Pid), "fd"))
	if err != nil {
		return r, err
	}
	r.FDs = len(entries)
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(b.cmd.Process.Pid), "fd", e.Name()))
		if err == nil && strings.HasPrefix(to, "socket:") {
			r.Sockets++
		}
	}
	r.Children = len(descendants(b.cmd.Process.Pid))
	raw, err := b.profile(ctx, "counts")
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(raw, &r)
}

// poll calls do with readings until it says that it is done, or time is over.
func (b *bridgeProcess) poll(ctx context.Context, limit time.Duration, do func(reading) bool) (took time.Duration, ok bool, err error) {
	began := time.Now()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for time.Since(began) < limit {
		r, err := b.read(ctx)
		if err != nil {
			return time.Since(began), false, err
		}
		if do(r) {
			return time.Since(began), true, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return time.Since(began), false, ctx.Err()
		}
	}
	return limit, false, nil
}

// baseline observes the bridge at rest, until most readings of restFor agree.
func (b *bridgeProcess) baseline(ctx context.Context) (reading, error) {
	var window []reading
	var base reading
	_, ok, err := b.poll(ctx, settleWithin, func(r reading) (found bool) {
		window = append(window, r)
		if excess := len(window) - int(restFor/pollEvery); excess >= 0 {
			window = window[excess:]
			base, found = usual(window)
		}
		return found
	})
	if err != nil {
		return base, err
	}
	if !ok {
		return base, fmt.Errorf("the bridge does not come to rest after the warm-up; last reading: %s", window[len(window)-1])
	}
	b.kept = map[string][]byte{}
	for _, name := range []string{"goroutine", "heap"} {
		if b.kept[name], err = b.profile(ctx, "profile/"+name); err != nil {
			return base, err
		}
	}
	return base, nil
}

// settle waits after the load until all is as before.
func (b *bridgeProcess) settle(ctx context.Context, before reading) (reading, settled, error) {
	var last reading
	good := 0
	took, ok, err := b.poll(ctx, settleWithin, func(r reading) bool {
		last = r
		if good++; len(r.differs(before)) > 0 {
			good = 0
		}
		return good == restPolls
	})
	return last, settled{ok: ok, took: took, wrong: last.differs(before)}, err
}

// saveProfiles writes goroutines, heap and open files for people, those from before the load too.
func (b *bridgeProcess) saveProfiles(ctx context.Context, when string) {
	for name, before := range b.kept {
		_ = os.WriteFile(filepath.Join(b.dir, name+".before.txt"), before, 0o600) // a help for people, no result
		if now, err := b.profile(ctx, "profile/"+name); err == nil {
			_ = os.WriteFile(filepath.Join(b.dir, name+"."+when+".txt"), now, 0o600)
		}
	}
}

// process is a process as /proc has it; started tells it from a later one of the same id.
type process struct {
	pid     int
	name    string
	parent  int
	started string
}

func (p process) String() string { return fmt.Sprintf("%d (%s)", p.pid, p.name) }

func (p process) alive() bool {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "stat"))
	if err != nil {
		return false
	}
	now, err := parseStat(string(raw))
	return err == nil && now.started == p.started
}

// parseStat reads what is needed of /proc/PID/stat. The name may have spaces and brackets.
func parseStat(stat string) (process, error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("not a line of /proc/PID/stat: %q", stat)
	}
	rest := strings.Fields(stat[end+1:]) // from field 3, the state
	if len(rest) < 20 {
		return process{}, fmt.Errorf("not a line of /proc/PID/stat: %q", stat)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	if err != nil {
		return process{}, err
	}
	parent, err := strconv.Atoi(rest[1])
	return process{pid: pid, name: stat[open+1 : end], parent: parent, started: rest[19]}, err
}

// descendants are the living and unburied processes below one.
func descendants(pid int) []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	children := map[int][]process{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // it has gone
		}
		if p, err := parseStat(string(raw)); err == nil {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var all []process
	for queue := slices.Clone(children[pid]); len(queue) > 0; queue = queue[1:] {
		all = append(all, queue[0])
		queue = append(queue, children[queue[0].pid]...)
	}
	return all
}
