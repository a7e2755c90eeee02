package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// fault is what is done to a target.
type fault string

const (
	faultKill    fault = "kill"    // kill -9; HTTP servers stay away for a while, the bridge restarts its children
	faultRestart fault = "restart" // kill -9 and a new server on the same port at once
	faultStop    fault = "stop"    // SIGSTOP, later SIGCONT
	fault500     fault = "500"     // HTTP 500 to everything
	fault404     fault = "404"     // HTTP 404 to everything
	faultHTML    fault = "html"    // HTTP 200 with a sign-in page
	faultSlow    fault = "slow"    // tools take longer, some longer than the bridge waits
	faultReset   fault = "reset"   // connections are reset instead of carrying the server's answer
	faultLimit   fault = "limit"   // connections end within the server's answer
	faultHang    fault = "hang"    // the server's answers are lost, connections stay
	faultTimeout fault = "timeout" // the same, and connections end after 700ms
	faultOff     fault = "off"     // connections end and new ones are refused
)

// cuts says whether a fault ends calls on their way, so that nobody can know whether they ran. A stopped server counts:
// it has taken the call, and the bridge is right to replace a connection that is silent.
func (f fault) cuts() bool {
	switch f {
	case faultKill, faultRestart, faultStop, faultReset, faultLimit, faultHang, faultTimeout, faultOff:
		return true
	case fault500, fault404, faultHTML, faultSlow:
		return false
	}
	return false
}

// faultsOf are the faults that can be done to a target.
func faultsOf(t *target) []fault {
	switch {
	case t.kind == kindStdio:
		return []fault{faultKill, faultStop, faultSlow}
	case t.proxied:
		return []fault{faultReset, faultLimit, faultHang, faultTimeout, faultOff, fault500, faultSlow}
	default:
		return []fault{faultKill, faultRestart, faultStop, fault500, fault404, faultHTML, faultSlow}
	}
}

// step is one disturbance to come.
type step struct {
	fault fault
	wait  time.Duration // before it
	hold  time.Duration // how long it lasts
	slow  time.Duration // what a call takes meanwhile; of faultSlow
}

func (s step) String() string {
	if s.hold == 0 {
		return fmt.Sprintf("+%.1fs %s", s.wait.Seconds(), s.fault)
	}
	if s.slow != 0 {
		return fmt.Sprintf("+%.1fs %s(%v) %.1fs", s.wait.Seconds(), s.fault, s.slow, s.hold.Seconds())
	}
	return fmt.Sprintf("+%.1fs %s %.1fs", s.wait.Seconds(), s.fault, s.hold.Seconds())
}

// plan is the schedule of one target.
type plan struct {
	target *target
	steps  []step
}

type planList []plan

func (l planList) String() string {
	var b strings.Builder
	for _, p := range l {
		fmt.Fprintf(&b, "  %-9s", p.target.name)
		for _, s := range p.steps {
			fmt.Fprintf(&b, "  %s", s)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// newPlans deals each touched target its faults in a random order, again and again, until the time is filled. The same
// seed gives the same plans.
func newPlans(seed uint64, duration time.Duration, all []*target) planList {
	random := rand.New(rand.NewPCG(seed, seed))
	between := func(low, high time.Duration) time.Duration {
		return (low + time.Duration(random.Int64N(int64(high-low)))).Round(100 * time.Millisecond)
	}
	var plans planList
	for _, t := range all {
		if !t.touched {
			continue
		}
		p := plan{target: t}
		var deck []fault
		for filled := time.Duration(0); filled < duration-tail; {
			if len(deck) == 0 {
				deck = faultsOf(t)
				random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			s := step{fault: deck[0], wait: between(2*time.Second, 7*time.Second), hold: between(2*time.Second, 9*time.Second)}
			deck = deck[1:]
			switch {
			case s.fault == faultRestart, s.fault == faultKill && t.kind == kindStdio:
				s.hold = 0 // it comes back at once
			case s.fault == faultSlow && random.IntN(2) == 0:
				s.slow = toolTimeout + time.Second // no answer in time
			case s.fault == faultSlow:
				s.slow = toolTimeout / 2
			}
			p.steps = append(p.steps, s)
			filled += s.wait + s.hold
		}
		plans = append(plans, p)
	}
	return plans
}
