package mcpclient

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// page is one page of a list.
type page struct {
	next    *string
	ttl     time.Duration // -1 = not given
	private bool
}

// reportOddities logs what is wrong with a list, unless the last one was the
// same.
func (c *Client) reportOddities(l *listCache, list *List) {
	if last := l.newest(); last != nil && last.Fingerprint == list.Fingerprint && last.dropped == list.dropped && len(last.Excluded) == len(list.Excluded) {
		return
	}
	if list.dropped > 0 {
		c.log.Warn("entries of a list were dropped: they are no objects with the required name", "method", l.method, "member", l.key, "dropped", list.dropped)
	}
	for i, tool := range list.Excluded {
		if i == 10 {
			c.log.Warn("more tools were left out of the list", "left_out", len(list.Excluded))
			break
		}
		c.log.Warn("a tool was left out of the list: its x-mcp-header annotations are invalid", "tool", tool.Name, "reason", tool.Reason)
	}
}

func (c *Client) readPage(list *List, l *listCache, result *Result) (page, error) {
	p := page{ttl: -1, private: true}
	if result.Era == EraModern {
		p.ttl = 0 // 2026-07-28 server/utilities/caching: absent means stale at once
	}
	found := false
	err := eachMemberOf(result.Raw, result.Known, func(key []byte, value jsontext.Value) error {
		switch string(key) {
		case l.member:
			found = true
			if value.Kind() == 'n' {
				return nil
			}
			return eachElement(value, func(item jsontext.Value) error {
				c.addItem(list, l, item, result.Era)
				return nil
			})
		case "nextCursor":
			if cursor, ok := unquote(value); ok {
				p.next = &cursor
			} else if value.Kind() != 'n' {
				return fmt.Errorf("nextCursor is a %s", value.Kind())
			}
		case "ttlMs":
			if value.Kind() == '0' {
				p.ttl = milliseconds(value)
			}
		case "cacheScope":
			scope, _ := unquote(value)
			p.private = scope != "public"
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no member %q", l.member)
	}
	return p, err
}

// milliseconds reads a ttlMs: negative is 0, too large is the largest.
func milliseconds(value jsontext.Value) time.Duration {
	ms, err := strconv.ParseFloat(string(value), 64)
	if ms <= 0 {
		return 0
	}
	if err != nil || ms > float64(math.MaxInt64/int64(time.Millisecond)) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// addItem appends one item. What is no item at all is dropped with a warning,
// so that one bad entry does not cost the others.
func (c *Client) addItem(list *List, l *listCache, raw jsontext.Value, era Era) {
	name, named := "", false
	if raw.Kind() == '{' {
		_ = eachMember(raw, func(key string, value jsontext.Value) error {
			if key == l.key {
				name, named = unquote(value)
			}
			return nil
		})
	}
	if !named {
		list.dropped++
		return
	}
	if l.method == methodListTools && era == EraModern && c.transport.Name() == httpTransport && bytes.Contains(raw, []byte(headerAnnotation)) {
		plan, err := headerPlan(raw)
		if err != nil {
			list.Excluded = append(list.Excluded, ExcludedTool{Name: name, Reason: err.Error()})
			return
		}
		if len(plan) > 0 {
			if list.plans == nil {
				list.plans = map[string][]paramHeader{}
			}
			list.plans[name] = plan
		}
	}
	if l.method == methodListTools && era == EraLegacy && bytes.Contains(raw, []byte("taskSupport")) && taskRequired(raw) {
		if list.needTask == nil {
			list.needTask = map[string]struct{}{}
		}
		list.needTask[name] = struct{}{}
	}
	list.Items = append(list.Items, Item{Name: name, Raw: raw})
	list.names[name] = struct{}{}
}
