package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// readEvents parses a whole stream; too large events show as "!".
func readEvents(t testing.TB, r io.Reader, limit int64) (events []string, s *eventReader) {
	t.Helper()
	s = newEventReader(bufio.NewReaderSize(r, 16), limit, completeJSON)
	return collect(s), s
}

// keepEvents parses a whole stream and shows what is kept of too large events.
func keepEvents(r io.Reader, limit int64) (events []string, s *eventReader) {
	s = newEventReader(bufio.NewReaderSize(r, 16), limit, completeJSON)
	s.keep = true
	return collect(s), s
}

func collect(s *eventReader) (events []string) {
	for {
		ev, err := s.next()
		switch {
		case errors.Is(err, errEventTooLarge):
			if events = append(events, "!"); s.keep {
				events[len(events)-1] += fmt.Sprintf("%d|%s|%s", s.over.size, s.over.head, s.over.tail)
			}
		case err != nil:
			return events
		default:
			events = append(events, ev.name+"|"+string(ev.data))
		}
	}
}

func TestFault43_Fault44_Fault46_Fault47_Fault49_EventStreamsFollowTheStandard(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
		id       string
		retry    time.Duration
	}{
		{"plain", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}, "", -1},
		{"no space", "data:{\"a\":1}\n\n", []string{`|{"a":1}`}, "", -1},
		{"two spaces", "data:  a\n\n", []string{"| a"}, "", -1},
		{"name and id", "event: message\nid: 7\ndata: a\n\n", []string{"message|a"}, "7", -1},
		{"several data lines", "data: {\ndata: \"a\":\ndata: 1}\n\n", []string{"|{\n\"a\":\n1}"}, "", -1},
		{"comments", ":\n: ping\ndata: a\n:x\n\n", []string{"|a"}, "", -1},
		{"no data is no event", "event: x\nid: 1\n\ndata: a\n\n", []string{"|a"}, "1", -1},
		{"priming event", "id: 0\ndata:\n\n", []string{"|"}, "0", -1},
		{"fields without colon", "data\nfoo\nid\n\n", []string{"|"}, "", -1},
		{"unknown fields", "foo: bar\nDATA: x\ndata: a\n\n", []string{"|a"}, "", -1},
		{"id with NUL", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n", []string{"|a", "|b"}, "1", -1},
		{"id counts at the blank line", "id: 1\ndata: a\n\nid: 2\ndata: b\n", []string{"|a"}, "1", -1},
		{"retry", "retry: 1500\ndata: a\n\n", []string{"|a"}, "", 1500 * time.Millisecond},
		{"retry that is no number", "retry: 1s\nretry:\nretry: -5\n\n", nil, "", -1},
		{"retry beyond reason", "retry: 9223372036854775807\n\n", nil, "", maxWait},
		{"BOM", bom + "data: a\n\n", []string{"|a"}, "", -1},
		{"only one BOM", bom + bom + "data: a\n\n", nil, "", -1},
		{"cut off", "data: a\n", nil, "", -1},
		{"cut off but whole", "id: 3\ndata: {\"method\":\"n\"}", []string{`|{"method":"n"}`}, "3", -1},
		{"cut off inside an id", "data: {\"method\":\"n\"}\nid: 3", []string{`|{"method":"n"}`}, "", -1},
		{"empty", "", nil, "", -1},
		{"line separators are no line ends", "data: a\u2028b\u0085c\n\n", []string{"|a\u2028b\u0085c"}, "", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, eol := range []string{"\n", "\r\n", "\r"} {
				in := strings.ReplaceAll(tt.in, "\n", eol)
				for reader, r := range map[string]io.Reader{
					"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)),
				} {
					got, s := readEvents(t, r, -1)
					if !slices.Equal(got, tt.want) || s.lastID != tt.id || s.retry != tt.retry {
						t.Errorf("%q by %s: %q, id %q, retry %v; want %q, %q, %v", in, reader, got, s.lastID, s.retry, tt.want, tt.id, tt.retry)
					}
				}
			}
		})
	}
}

func TestFault50_LargeEventsAreReadUpToTheLimitAndSkippedBeyond(t *testing.T) {
	big := strings.Repeat("x", 5<<20)
	got, _ := readEvents(t, strings.NewReader("data: "+big+"\n\n"), 5<<20)
	if len(got) != 1 || got[0] != "|"+big {
		t.Errorf("5 MiB line at the limit: %d events", len(got))
	}
	for name, tt := range map[string]struct {
		in   string
		want []string
	}{
		"one line":         {"data: a\n\ndata: " + strings.Repeat("x", 101) + "\n\ndata: b\n\n", []string{"|a", "!", "|b"}},
		"far beyond":       {"data: " + big + "\ndata: more\n\ndata: b\n\n", []string{"!", "|b"}},
		"many lines":       {strings.Repeat("data: 12345678901\n", 10) + "data: more\n\ndata: b\n\n", []string{"!", "|b"}},
		"looks like an id": {"data: " + strings.Repeat("x", 110) + "id: 5\n\ndata: b\n\n", []string{"!", "|b"}},
		"long comment":     {":" + big + "\ndata: b\n\n", []string{"|b"}},
		"long id":          {"id: " + big + "\ndata: b\n\n", []string{"|b"}},
		"long name":        {"event: " + strings.Repeat("x", 200) + "\ndata: b\n\n", []string{"|b"}},
		"long id after it": {"data: " + big + "\nid: 4\n\ndata: b\n\n", []string{"!", "|b"}},
	} {
		t.Run(name, func(t *testing.T) {
			for size, r := range map[string]io.Reader{"whole": strings.NewReader(tt.in), "half": iotest.HalfReader(strings.NewReader(tt.in))} {
				if got, _ := readEvents(t, r, 100); !slices.Equal(got, tt.want) {
					t.Errorf("%s: %q, want %q", size, got, tt.want)
				}
			}
		})
	}
}

func TestFault50_WhatIsKeptOfALargeEventIsItsStartAndItsEnd(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, tt := range map[string]struct {
		in         string
		head, tail string
		size       int64
	}{
		"one line":        {"data: {" + x(200) + "}\n\n", "{" + x(200) + "}", "{" + x(200) + "}", 202},
		"no space":        {"data:{" + x(200) + "}\n\n", "{" + x(200) + "}", "{" + x(200) + "}", 202},
		"many lines":      {"data: {\ndata: " + x(90) + "\ndata: " + x(90) + "\ndata: }\n\n", "{\n" + x(90) + "\n" + x(90) + "\n}", "{\n" + x(90) + "\n" + x(90) + "\n}", 185},
		"long second":     {"data: {\ndata: " + x(500) + "\ndata: }\n\n", "{\n" + x(500) + "\n}", x(254) + "\n}", 504},
		"two long lines":  {"data: {" + x(500) + "\n:" + x(500) + "\ndata: " + x(500) + "}\n\n", "{" + x(500) + "\n" + x(500) + "}", x(255) + "}", 1003},
		"longer than all": {"id: " + x(500) + "\ndata: {" + x(keptHead) + x(keptHead) + "}\n\n", "{" + x(keptHead-1), x(255) + "}", 2*keptHead + 2},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{"whole": strings.NewReader(tt.in + "data: b\n\n"), "bytes": iotest.OneByteReader(strings.NewReader(tt.in + "data: b\n\n"))} {
				got, _ := keepEvents(r, 100)
				want := []string{fmt.Sprintf("!%d|%s|%s", tt.size, tt.head, tt.tail), "|b"}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %.300q, want %.300q", how, got, want)
				}
			}
		})
	}
}

func TestEventMemoryIsNotReused(t *testing.T) {
	a, b := strings.Repeat("a", stealBytes+1), strings.Repeat("b", stealBytes+1)
	s := newEventReader(bufio.NewReader(strings.NewReader("data: "+a+"\n\ndata: "+b+"\n\ndata: c\n\n")), -1, nil)
	first, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.next(); err != nil {
		t.Fatal(err)
	}
	if string(first.data) != a {
		t.Error("the second event overwrote the first")
	}
}

func TestReadAllStopsAtTheLimit(t *testing.T) {
	for _, size := range []int{0, 1, 1023, 1024, 5000} {
		in := bytes.Repeat([]byte("x"), size)
		for _, hint := range []int64{-1, int64(size)} {
			got, err := (&growing{r: iotest.HalfReader(bytes.NewReader(in)), size: hint, limit: int64(size)}).all()
			if err != nil || !bytes.Equal(got, in) {
				t.Errorf("size %d, hint %d: %d bytes, %v", size, hint, len(got), err)
			}
		}
		if size > 0 {
			if _, err := (&growing{r: bytes.NewReader(in), size: -1, limit: int64(size) - 1}).all(); !errors.Is(err, errTooLarge) {
				t.Errorf("size %d over the limit: %v", size, err)
			}
		}
	}
	if _, err := (&growing{r: iotest.ErrReader(io.ErrUnexpectedEOF), size: -1, limit: -1}).all(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a read error became %v", err)
	}
}

func FuzzEventStreamIsTheSameHoweverItIsSplit(f *testing.F) {
	for _, s := range []string{
		"data: a\r\ndata: b\r\n\r\n", "data: a\r\r", bom + "data:x\n\n", ":c\nid: 1\nretry: 5\ndata\n\n", "data: {\"method\":\"n\"}",
		"data: 12345678901234567890123456789012345\n\ndata: b\n\n", "\r\n\r\n", "\xef\xbb", "event: e\ndata: x\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, a := readEvents(t, bytes.NewReader(in), 32)
		bytewise, b := readEvents(t, iotest.OneByteReader(bytes.NewReader(in)), 32)
		if !slices.Equal(whole, bytewise) || a.lastID != b.lastID || a.retry != b.retry {
			t.Fatalf("%q: whole %q (id %q), by bytes %q (id %q)", in, whole, a.lastID, bytewise, b.lastID)
		}
		keptWhole, a := keepEvents(bytes.NewReader(in), 32)
		keptBytewise, b := keepEvents(iotest.OneByteReader(bytes.NewReader(in)), 32)
		if !slices.Equal(keptWhole, keptBytewise) || a.lastID != b.lastID {
			t.Fatalf("%q, kept: whole %q (id %q), by bytes %q (id %q)", in, keptWhole, a.lastID, keptBytewise, b.lastID)
		}
		large := func(s string) bool { return strings.HasPrefix(s, "!") }
		if !slices.Equal(slices.DeleteFunc(whole, large), slices.DeleteFunc(keptWhole, large)) {
			t.Fatalf("%q: %q, but kept %q", in, whole, keptWhole)
		}
	})
}

func BenchmarkEventStream(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			in := []byte("event: message\nid: 1\ndata: " + strings.Repeat("x", size) + "\n\n")
			r := bufio.NewReaderSize(nil, 8<<10)
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(bytes.NewReader(in))
				if _, err := newEventReader(r, 64<<20, nil).next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
