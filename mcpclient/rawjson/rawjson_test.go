package rawjson

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

var texts = []string{
	`{"a":[1,-2.50e+3,"x\n\u00e9\ud83d\ude00",true,false,null,{}],"a":[]}`, " [ 1 , { \"b\" :\r\n\t\"c\" } ] ", `"\ud800"`, `"\udc00\ud800x"`, `"\ud800\u0041"`,
	"\"\xff\xc3\"", "\"\xe6\x97\xa5\xe6\x9c\xac\"", `0`, `-0`, `01`, `1.`, `.5`, `1e`, `1e+`, `-`, `+1`, `1.5E-7`, `nul`, `nullx`, `tru`, `"`, `"\`, `"\u12`, `"\u12g4"`, `"\x"`, "\"\x1f\"", "\"a\nb\"",
	`{`, `[`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `{1:2}`, `[1 2]`, `{"a" 1}`, `{"a":1 "b":2}`, `[}`, `{]`, `[1}`, `{"a":1]`, ``, ` `, `1 2`, `{}x`, "\v1", "\ufeff1",
	`["` + strings.Repeat("long ", 300) + `",{"` + strings.Repeat("name", 200) + `":"` + strings.Repeat("\\\"", 400) + `"}]`,
}

// check compares what a scanner makes of data with what jsontext does.
func check(t *testing.T, data []byte) {
	t.Helper()
	want := jsontext.Value(data).IsValid(lenient...)
	s := New(data, Index{})
	s.Record()
	start := 0
	if s.Kind() != 0 {
		start = s.Offset()
	}
	v := s.Value()
	if err := s.End(); (err == nil) != want {
		t.Fatalf("%.200q: got error %v, want valid = %t", data, err, want)
	}
	if !want {
		return
	}
	if !bytes.Equal(v, bytes.Trim(data, " \t\r\n")) {
		t.Fatalf("%.200q came back as %.200q", data, v)
	}
	walked := New(v, s.Index(v, start))
	walk(t, &walked, walked)
	if err := walked.End(); err != nil {
		t.Fatalf("%.200q: %v", data, err)
	}
}

// walk reads a value token by token and compares each with what is found by another way.
func walk(t *testing.T, s *Scanner, whole Scanner) {
	t.Helper()
	switch s.Kind() {
	case '{', '[':
	case '"':
		checkString(t, s.Value())
		return
	default:
		if v := s.Value(); !v.IsValid() {
			t.Fatalf("%q is no value", v)
		}
		return
	}
	object := s.Kind() == '{'
	begun := s.Offset()
	s.Enter()
	for first := true; ; first = false {
		if object {
			name, ok := s.Member(first)
			if !ok {
				break
			}
			checkString(t, name)
		} else if !s.Element(first) {
			break
		}
		start := s.Offset()
		ahead := *s
		v := ahead.Value()
		if !v.IsValid(lenient...) {
			t.Fatalf("%.200q is no value", v)
		}
		sub := New(v, whole.known.Part(start, len(v)))
		if again := sub.Value(); !bytes.Equal(again, v) || sub.End() != nil {
			t.Fatalf("%.200q became %.200q, %v", v, again, sub.Err())
		}
		walk(t, s, whole)
		if s.Offset() != ahead.Offset() {
			t.Fatalf("%.200q ends at %d, by tokens at %d", v, ahead.Offset(), s.Offset())
		}
	}
	if s.Err() == nil && !jsontext.Value(s.Since(begun)).IsValid(lenient...) {
		t.Fatalf("%.200q is no value", s.Since(begun))
	}
}

func checkString(t *testing.T, quoted []byte) {
	t.Helper()
	want, err := jsontext.AppendUnquote(nil, quoted)
	got, clean := Unquote(quoted)
	if got != string(want) || clean != (err == nil) {
		t.Fatalf("%.200q became %.200q, %t, want %.200q, %v", quoted, got, clean, want, err)
	}
	if out, clean := AppendUnquote([]byte("x"), quoted, false); string(out) != "x"+got || clean != (err == nil) {
		t.Fatalf("%.200q was appended as %.200q, %t", quoted, out, clean)
	}
	s := New(quoted, Index{})
	_, valid := s.Checked()
	if valid != (strings.ToValidUTF8(string(quoted), "") == string(quoted)) {
		t.Fatalf("%.200q is valid UTF-8: %t", quoted, valid)
	}
	if valid {
		whole := slices.Concat([]byte("<<"), quoted, []byte(">>"))
		place := whole[2 : len(whole)-2]
		text := UnquoteInPlace(place)
		if string(text) != got || len(text) > 0 && &text[0] != &place[1] {
			t.Fatalf("%.200q became %.200q in its place", quoted, text)
		}
		if !bytes.HasPrefix(whole, []byte(`<<"`)) || !bytes.HasSuffix(whole, []byte(`">>`)) {
			t.Fatalf("what stands around %.200q became %.200q", quoted, whole)
		}
	}
}

func TestTheSameTextsAreValidAsForJSONText(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
		for _, around := range []string{"[", "          ", `{"a":`} {
			check(t, []byte(around+text))
			check(t, []byte(around+text+"]"))
			check(t, []byte(around+text+"}"))
		}
	}
	for _, data := range samples(4 << 10) {
		check(t, data)
		for i := range len(data) {
			check(t, data[:i])
		}
	}
}

func TestNestingHasALimit(t *testing.T) {
	for _, depth := range []int{MaxDepth, MaxDepth + 1} {
		for _, pair := range []string{"[]", `{"a":}`} {
			text := strings.Repeat(pair[:len(pair)-1], depth-1) + "[]" + strings.Repeat(pair[len(pair)-1:], depth-1)
			s := New([]byte(text), Index{})
			s.Value()
			inside := New([]byte(text), Index{})
			for range 3 {
				inside.Enter()
				if pair[0] == '{' {
					inside.Member(true)
				}
			}
			inside.Value()
			for _, err := range []error{s.Err(), inside.Err()} {
				if errors.Is(err, ErrTooDeep) != (depth > MaxDepth) || err != nil && depth <= MaxDepth {
					t.Errorf("%d levels of %s: %v", depth, pair, err)
				}
			}
			if (s.Err() == nil) != jsontext.Value(text).IsValid(lenient...) {
				t.Errorf("%d levels of %s: jsontext differs", depth, pair)
			}
		}
	}
}

func TestTextThatEndsTooEarlyIsCalledThat(t *testing.T) {
	for _, text := range []string{``, `{`, `[`, `{"a`, `{"a":`, `{"a":"`, `"\`, `"\u00`, `tru`, `-`, `[1,`} {
		s := New([]byte(text), Index{})
		if s.Value(); !errors.Is(s.Err(), io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", text, s.Err())
		}
	}
}

func TestALargeValueIsNotCheckedTwice(t *testing.T) {
	data := samples(64 << 10)["rows"]
	s := New(data, Index{})
	s.Record()
	s.Value()
	copied := bytes.Clone(data)
	copied[len(copied)/2] = 0 // where nobody looks any more
	again := New(copied, s.Index(data, 0))
	again.Value()
	if err := again.End(); err != nil {
		t.Error(err)
	}
	other := New(data[:100], s.Index(data, 0))
	if v := other.Value(); other.Err() == nil {
		t.Errorf("an index that says too much gave %q", v)
	}
}

func FuzzScanner(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		check(t, data)
		Unquote(data) // whatever it is, it must not panic
		Name(data)
		// The same inside of something large, so that it is indexed.
		check(t, bytes.Join([][]byte{[]byte(`{"pad":"` + strings.Repeat("x", indexBytes) + `","v":`), data, []byte("}")}, nil))
	})
}

// pieces are what strings are made of here: each kind of escape, runs of
// backslashes, text of every width, and what is not allowed.
var pieces = []string{
	`a`, `plain text`, `more than sixteen bytes`, `\"`, `\\`, `\\\\`, `\\\"`, `\n`, `\/`, `\u00e9`, `\u2028`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\u0000`,
	"é", "日本語", "😀", " ", "\xff", "\xe6\x97", `"`, `\`, `\x`, `\u12`, "\x01", "\n",
}

func TestStringsOfAnyMakeAreRead(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		usual := 20 + rnd.IntN(len(pieces)-19) // what is wrong is rarer than what is not
		text := []byte{'"'}
		for range rnd.IntN(60) {
			text = append(text, pieces[rnd.IntN(usual)]...)
		}
		text = append(text, '"')
		check(t, text)
		Unquote(text) // whatever it is, it must end
	}
	for n := range 200 {
		Unquote([]byte(`"` + strings.Repeat("x", n) + strings.Repeat(`\S`, 200) + `"`))
	}
}

// inPieces gives a text as a reply comes.
func inPieces(data []byte, size int) func() ([]byte, bool) {
	there := 0
	return func() ([]byte, bool) {
		there = min(there+size, len(data))
		return bytes.Clone(data[:there]), there < len(data)
	}
}

func TestATextIsReadWhileItComes(t *testing.T) {
	for name, data := range samples(20 << 10) {
		for _, size := range []int{1, 7, 64, 1000, 4096, 1 << 20} {
			s := Growing(inPieces(data, size))
			s.Record()
			v := s.Value()
			if err := s.End(); err != nil || !bytes.Equal(v, data) {
				t.Errorf("%s in pieces of %d: %d of %d bytes, %v", name, size, len(v), len(data), err)
				continue
			}
			whole := New(data, Index{})
			whole.Record()
			whole.Value()
			if !slices.Equal(s.found, whole.found) {
				t.Errorf("%s in pieces of %d: found %v, want %v", name, size, s.found, whole.found)
			}
		}
	}
}
