package rawjson

import (
	"cmp"
	"slices"
)

const (
	indexBytes = 512 // values of fewer bytes are checked again
	indexDepth = 8   // and so are those inside of so many others
)

// span is a value that was checked.
type span struct {
	start, end int
	utf8       bool
	less       int // by how much a string is shorter than its JSON, quotes aside, at least
}

// Index says where the large values of a text are, so that nobody who walks the
// text later has to look for their ends. The zero value knows of none. It may be
// used from many goroutines at once.
type Index struct {
	spans []span // in the order of their starts
	base  int    // of the text in the one that was recorded
}

// Record keeps what the scanner checks from now on for [Scanner.Index].
func (s *Scanner) Record() { s.record = true }

// note keeps a value that is inside of depth others.
func (s *Scanner) note(v span, depth int) {
	if s.record && depth < indexDepth && v.end-v.start >= indexBytes {
		s.found = append(s.found, v)
	}
}

// Index returns what is known of part, which begins at offset start of the text.
func (s *Scanner) Index(part []byte, start int) Index {
	if len(s.found) == 0 {
		return Index{}
	}
	slices.SortFunc(s.found, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return Index{s.found, 0}.Part(start, len(part))
}

// Part returns what is known of size bytes from offset start of the text.
func (x Index) Part(start, size int) Index {
	from, _ := slices.BinarySearchFunc(x.spans, start+x.base, byStart)
	to, _ := slices.BinarySearchFunc(x.spans, start+x.base+size, byStart)
	if from == to {
		return Index{}
	}
	return Index{x.spans[from:to], x.base + start}
}

func byStart(s span, offset int) int { return cmp.Compare(s.start, offset) }

// at returns the value that begins at offset start of data.
func (x *Index) at(start int, data []byte) (v span, ok bool) {
	if len(x.spans) == 0 {
		return span{}, false
	}
	n := 0 // scanners only go forward
	for n < len(x.spans) && x.spans[n].start < start+x.base {
		n++
	}
	x.spans = x.spans[n:]
	if len(x.spans) == 0 || x.spans[0].start != start+x.base {
		return span{}, false
	}
	v = x.spans[0]
	v.start, v.end = v.start-x.base, v.end-x.base
	return v, v.end <= len(data)
}

// Ahead is the size of the value that is next, if it is known; else 0.
func (s *Scanner) Ahead() int {
	if s.err != nil {
		return 0
	}
	v, _ := s.known.at(s.pos, s.data)
	return v.end - v.start
}

// Unquoted is how long the string that is next is at most, if it is known and
// valid UTF-8; else 0.
func (s *Scanner) Unquoted() int {
	if s.err != nil {
		return 0
	}
	v, _ := s.known.at(s.pos, s.data)
	return max(0, v.end-v.start-2-v.less)
}
