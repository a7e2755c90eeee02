package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

const (
	defaultPageSize = 500
	maxPageSize     = 1000
)

// pageSize applies the defaults of page_size.
func pageSize(requested int32) (int, error) {
	switch {
	case requested < 0:
		return 0, refuseField(reasonInvalidParams, "page_size", "is negative; use 0 for the default or up to 1000")
	case requested == 0:
		return defaultPageSize, nil
	}
	return min(int(requested), maxPageSize), nil
}

// cursor is where a page begins: what a page token holds.
type cursor struct {
	kind    byte  // of list, see lister
	target  int   // index of the target in the list of names
	offset  int   // item within that target's list
	skipped []int // indices of targets that had not answered, in order
	digest  [12]byte
}

const tokenVersion = 1

// encode writes the token: opaque to callers, and safe in a URL.
func (c cursor) encode() string {
	b := []byte{tokenVersion, c.kind}
	b = binary.AppendUvarint(b, uint64(c.target))
	b = binary.AppendUvarint(b, uint64(c.offset))
	b = binary.AppendUvarint(b, uint64(len(c.skipped)))
	for _, i := range c.skipped {
		b = binary.AppendUvarint(b, uint64(i))
	}
	b = append(b, c.digest[:]...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

var errToken = errors.New("not a page token")

// decodeCursor reads a token.
func decodeCursor(token string) (cursor, error) {
	var c cursor
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 4 || crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return c, errToken
	}
	b = b[:len(b)-4]
	if len(b) < 2 || b[0] != tokenVersion {
		return c, errToken
	}
	c.kind = b[1]
	b = b[2:]
	next := func() int {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > 1<<31 {
			err = errToken
			return 0
		}
		b = b[size:]
		return int(n)
	}
	c.target, c.offset = next(), next()
	for range next() {
		if err != nil {
			break
		}
		c.skipped = append(c.skipped, next())
	}
	if err != nil || len(b) != len(c.digest) {
		return c, errToken
	}
	copy(c.digest[:], b)
	return c, nil
}

// listing is one target's part of a list. list is nil for a target that is
// skipped or lies before the cursor.
type listing struct {
	target   string
	list     *mcpclient.List
	isolated bool // the list is not for all callers
}

// digestFrom binds a token to the request, to the targets' names, and to the
// lists from index on; what was already delivered may change.
func digestFrom(kind byte, request string, all []listing, from int) (digest [12]byte) {
	h := sha256.New()
	write := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	h.Write([]byte{kind})
	write(request)
	for i, l := range all {
		write(l.target)
		switch {
		case i < from:
		case l.list == nil:
			write("-")
		default:
			write("+" + l.list.Fingerprint)
		}
	}
	copy(digest[:], h.Sum(nil))
	return digest
}

// pageItem is one entry of a page.
type pageItem struct {
	target string
	item   mcpclient.Item
}

// cutPage takes up to size items from the position (target, offset) on. next
// is where the next page begins; ok is false on the last page.
func cutPage(all []listing, target, offset, size int) (items []pageItem, nextTarget, nextOffset int, more bool) {
	for ; target < len(all); target, offset = target+1, 0 {
		list := all[target].list
		if list == nil {
			continue
		}
		rest := list.Items[min(offset, len(list.Items)):]
		for i := range rest {
			if len(items) == size {
				return items, target, offset + i, true
			}
			items = append(items, pageItem{all[target].target, rest[i]})
		}
	}
	return items, 0, 0, false
}

// skips returns the indices from index on whose target has no list.
func skips(all []listing, from int) []int {
	var out []int
	for i := from; i < len(all); i++ {
		if all[i].list == nil {
			out = append(out, i)
		}
	}
	return out
}

// wants reports whether the cursor's page needs the target at index i.
func (c cursor) wants(i int) bool {
	if i < c.target {
		return false
	}
	_, skipped := slices.BinarySearch(c.skipped, i)
	return !skipped
}
