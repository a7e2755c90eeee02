package transport

import (
	"errors"
	"io"
)

var errTooLarge = errors.New("reply exceeds the limit")

// growing reads r to its end. size is a hint, <=0 = unknown; limit <0 = none.
//
// Memory is taken in steps: what a server announces is believed once a part of
// it is there, and a size that it does not announce is guessed by doubling.
type growing struct {
	r           io.Reader
	size, limit int64
	data        []byte // so far
	err         error  // io.EOF at the end
}

// next reads at most so many bytes more, and reports whether there may be others.
func (g *growing) next(most int) bool {
	if g.err != nil {
		return false
	}
	if len(g.data) == cap(g.data) {
		g.grow()
	}
	n, err := g.r.Read(g.data[len(g.data):min(cap(g.data), len(g.data)+most)])
	g.data = g.data[:len(g.data)+n]
	if g.err = err; g.limit >= 0 && int64(len(g.data)) > g.limit {
		g.err = errTooLarge
	}
	return g.err == nil
}

func (g *growing) grow() {
	const least, unseen, believed = 1 << 10, 512 << 10, 16
	there := int64(len(g.data))
	if there == 0 {
		g.data = make([]byte, 0, max(least, min(g.size, unseen)+1)) // the last byte finds EOF without growing
		return
	}
	more := 2 * there
	if g.size >= there {
		more = min(g.size+1, believed*there)
	}
	grown := make([]byte, there, more)
	copy(grown, g.data)
	g.data = grown
}

// all reads the rest and returns the whole.
func (g *growing) all() ([]byte, error) {
	const most = 1 << 30
	for g.next(most) {
		continue
	}
	if errors.Is(g.err, io.EOF) {
		return g.data, nil
	}
	return g.data, g.err
}
