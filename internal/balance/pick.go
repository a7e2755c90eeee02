package balance

import (
	"errors"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/bufbuild/httplb/conn"
	"github.com/bufbuild/httplb/picker"
)

// errForeign is for requests that do not come from transport.HTTP.
var errForeign = errors.New("balance: the request was not made by a transport.HTTP that has the balancer as its Wrap")

// chooser picks replicas. httplb's own pickers know neither sessions nor the
// replicas that a request has tried already.
type chooser struct {
	choices []choice
	turns   *turns
}

type choice struct {
	conn conn.Conn
	*replica
}

// turns rotate among replicas with equal load. Sessions rotate by themselves:
// the other requests of a client that connects would keep them in step.
type turns struct{ request, session atomic.Uint64 }

func (t *tripper) newChooser(_ picker.Picker, conns conn.Conns) picker.Picker {
	p := &chooser{turns: &t.turns, choices: make([]choice, conns.Len())}
	for i := range p.choices {
		c := conns.Get(i)
		p.choices[i] = choice{c, t.byHost[c.Address().HostPort]}
	}
	return p
}

// Pick returns the replica that the request is bound to, else one of those with
// the fewest requests in flight; replicas that are down come last.
func (p *chooser) Pick(r *http.Request) (conn.Conn, func(), error) {
	a := attemptOf(r.Context())
	if a == nil {
		return nil, nil, errForeign
	}
	best := p.best(a)
	if best == nil {
		return nil, nil, errors.New("balance: no replica is left")
	}
	a.at = best.replica
	best.load.Add(1)
	return best.conn, best.done, nil
}

func (p *chooser) best(a *attempt) *choice {
	if a.only != nil {
		for i := range p.choices {
			if p.choices[i].replica == a.only {
				return &p.choices[i]
			}
		}
		return nil
	}
	counter := &p.turns.request
	if a.out.Start {
		counter = &p.turns.session
	}
	var (
		best  *choice
		down  bool
		load  int64
		first = counter.Add(1)
		n     = uint64(len(p.choices))
	)
	for i := range n {
		c := &p.choices[(first+i)%n]
		if slices.Contains(a.tried, c.replica) {
			continue
		}
		d, l := c.down.Load(), c.load.Load()
		if best == nil || !d && down || d == down && l < load {
			best, down, load = c, d, l
		}
	}
	return best
}
