package server

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcpbridge/mcpbridge/mcpclient"
)

func TestPageSize(t *testing.T) {
	for requested, want := range map[int32]int{0: 500, 1: 1, 1000: 1000, 1001: 1000, 1 << 30: 1000} {
		if got, err := pageSize(requested); err != nil || got != want {
			t.Errorf("page_size %d: %d, %v; want %d", requested, got, err, want)
		}
	}
	_, err := pageSize(-1)
	if f, ok := errors.AsType[*failure](err); !ok || f.reason != reasonInvalidParams || !strings.Contains(f.message, "page_size") {
		t.Errorf("page_size -1: %v, want INVALID_PARAMS that names page_size", err)
	}
}

// randomParts makes lists of random length, some of them missing.
func randomParts(r *rand.Rand) []listing {
	parts := make([]listing, r.IntN(5))
	for i := range parts {
		parts[i].target = fmt.Sprintf("t%d", i)
		if r.IntN(4) == 0 {
			continue
		}
		list := &mcpclient.List{Fingerprint: fmt.Sprintf("f%d", r.Uint32())}
		for n := range r.IntN(7) {
			list.Items = append(list.Items, mcpclient.Item{Name: fmt.Sprintf("t%d.%d", i, n)})
		}
		parts[i].list = list
	}
	return parts
}

func TestPagesOfAnySizeAddUpToTheWholeList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		parts := randomParts(r)
		var want, got []string
		for _, part := range parts {
			if part.list != nil {
				for _, item := range part.list.Items {
					want = append(want, item.Name)
				}
			}
		}
		from := cursor{kind: 't'}
		for size := 1 + r.IntN(6); ; {
			items, target, offset, more := cutPage(parts, from.target, from.offset, size)
			if len(items) > size || more && len(items) < size {
				t.Fatalf("a page of %d items, size %d, more %v", len(items), size, more)
			}
			for _, item := range items {
				if !strings.HasPrefix(item.item.Name, item.target+".") {
					t.Fatalf("item %s is said to be of %s", item.item.Name, item.target)
				}
				got = append(got, item.item.Name)
			}
			if !more {
				break
			}
			token := cursor{kind: 't', target: target, offset: offset, skipped: skips(parts, target), digest: digestFrom('t', "", parts, target)}.encode()
			next, err := decodeCursor(token)
			if err != nil {
				t.Fatal(err)
			}
			for i := target; i < len(parts); i++ {
				if next.wants(i) != (parts[i].list != nil) {
					t.Fatalf("the token wants target %d: %v", i, next.wants(i))
				}
			}
			if next.digest != digestFrom('t', "", parts, next.target) {
				t.Fatal("the token does not fit the lists it was made from")
			}
			from = next
			size = 1 + r.IntN(6)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("pages differ from the list (-want +got):\n%s", diff)
		}
	}
}

func TestADigestFitsNothingElse(t *testing.T) {
	list := func(fingerprint string) *mcpclient.List { return &mcpclient.List{Fingerprint: fingerprint} }
	parts := []listing{{target: "a", list: list("1")}, {target: "b", list: list("2")}, {target: "c"}}
	own := digestFrom('t', "", parts, 1)
	for name, other := range map[string][12]byte{
		"another kind":     digestFrom('r', "", parts, 1),
		"another request":  digestFrom('t', "a", parts, 1),
		"another position": digestFrom('t', "", parts, 0),
		"a changed list":   digestFrom('t', "", []listing{{target: "a", list: list("1")}, {target: "b", list: list("3")}, {target: "c"}}, 1),
		"a new target":     digestFrom('t', "", append(slices.Clone(parts), listing{target: "d"}), 1),
		"a renamed target": digestFrom('t', "", []listing{{target: "aa", list: list("1")}, {target: "b", list: list("2")}, {target: "c"}}, 1),
		"a target back":    digestFrom('t', "", []listing{{target: "a", list: list("1")}, {target: "b", list: list("2")}, {target: "c", list: list("")}}, 1),
	} {
		if other == own {
			t.Errorf("the token also fits %s", name)
		}
	}
	if digestFrom('t', "", []listing{{target: "a", list: list("changed")}, {target: "b", list: list("2")}, {target: "c"}}, 1) != own {
		t.Error("a change in what was already delivered makes the token invalid")
	}
}

func TestAnyChangeToATokenIsNoticed(t *testing.T) {
	token := cursor{kind: 't', target: 3, offset: 700, skipped: []int{4, 200}}.encode()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			changed := slices.Clone(raw)
			changed[i] ^= 1 << bit
			if _, err := decodeCursor(base64.RawURLEncoding.EncodeToString(changed)); err == nil {
				t.Errorf("bit %d of byte %d was flipped and the token still counts", bit, i)
			}
		}
	}
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add(cursor{kind: 't', target: 1, offset: 2, skipped: []int{3}}.encode())
	f.Add("")
	f.Add("!!")
	f.Fuzz(func(t *testing.T, token string) {
		c, err := decodeCursor(token)
		if err != nil {
			return
		}
		if c.target < 0 || c.offset < 0 {
			t.Fatalf("negative position %+v", c)
		}
		again, err := decodeCursor(c.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, again, cmp.AllowUnexported(cursor{})); diff != "" {
			t.Error(diff)
		}
	})
}
