package targets

import (
	"iter"
	"slices"
	"sort"
	"strings"
	"unique"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// handlesOf makes URIs comparable at once, however long they are.
func handlesOf(uris []string) []unique.Handle[string] {
	handles := make([]unique.Handle[string], len(uris))
	for i, uri := range uris {
		handles[i] = unique.Make(uri)
	}
	return handles
}

func isLong(uri string) bool { return len(uri) > MaxURIBytes }

// updatedLocked tells who watches a resource, or one that it is a part of
// (2026-07-28 schema, ResourceUpdatedNotificationParams: the URI may be that of
// a sub-resource). Of a part whose URI is too long to be handed on, watchers
// hear by the URI that they watch.
func (f *feed) updatedLocked(u *upstream, uri string) {
	f.updates++
	var told unique.Handle[string] // the zero handle is that of a URI that is too long
	if !isLong(uri) {
		told = unique.Make(uri)
	}
	found := f.tellLocked(u, uri, told)
	if f.up != nil && f.up != u && f.tellLocked(f.up, uri, told) { // which is asked for more
		found = true
	}
	if found {
		return
	}
	for s := range f.watchers { // it is one of them, spelled in another way
		switch {
		case len(s.uris) == 0:
		case isLong(uri):
			s.resync()
		default:
			s.markURI(told, false)
		}
	}
}

// tellLocked tells who watches what u was asked for, and reports whether it was
// asked for the resource or one that it is a part of.
func (f *feed) tellLocked(u *upstream, uri string, told unique.Handle[string]) (found bool) {
	for _, whole := range slices.Backward(wholes(u.uris, uri)) { // the longest first
		found = true
		if isLong(uri) {
			told = whole
		}
		for s := range f.byURI[whole] {
			if s.heard != f.updates {
				s.heard = f.updates
				s.markURI(told, told == whole)
			}
		}
	}
	return found
}

// wholes returns those of the sorted URIs that a resource may be a part of,
// itself included, shortest first: it goes on after them with a segment, the
// query or the fragment.
func wholes(sorted []unique.Handle[string], uri string) []unique.Handle[string] {
	var found []unique.Handle[string]
	for at, with := range narrow(sorted, uri) {
		if first := with[0]; len(first.Value()) == at && (at == len(uri) || uri[at-1] == '/' || strings.IndexByte("/?#", uri[at]) >= 0) {
			found = append(found, first)
		}
	}
	return found
}

// narrow yields those of the sorted URIs that begin with the first bytes of
// uri: one byte, two, and so on while there are any. Each byte is looked at
// once, since a server may name a URI of any length.
func narrow(sorted []unique.Handle[string], uri string) iter.Seq2[int, []unique.Handle[string]] {
	return func(yield func(int, []unique.Handle[string]) bool) {
		for at := range len(uri) {
			if len(sorted) > 0 && len(sorted[0].Value()) == at {
				sorted = sorted[1:] // it does not go on
			}
			sorted = goingOn(sorted, at, uri[at])
			if len(sorted) == 0 || !yield(at+1, sorted) {
				return
			}
		}
	}
}

// goingOn returns those of the sorted URIs, all of them alike before at, that
// have b there.
func goingOn(sorted []unique.Handle[string], at int, b byte) []unique.Handle[string] {
	byteOf := func(i int) byte { return sorted[i].Value()[at] }
	last := len(sorted) - 1
	if last < 0 || byteOf(0) == b && byteOf(last) == b {
		return sorted
	}
	from := sort.Search(len(sorted), func(i int) bool { return byteOf(i) >= b })
	sorted = sorted[from:]
	return sorted[:sort.Search(len(sorted), func(i int) bool { return byteOf(i) != b })]
}

// uriOf reads params.uri; "" when there is none.
func uriOf(params jsontext.Value) string {
	var p struct {
		URI string `json:"uri"`
	}
	if len(params) == 0 || json.Unmarshal(params, &p, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return ""
	}
	return p.URI
}
