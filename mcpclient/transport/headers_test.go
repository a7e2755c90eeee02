package transport

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestFault38_HeaderValuesAreEncodedWhereTheSpecSaysSo(t *testing.T) {
	for in, want := range map[string]string{
		"us-west1":                        "us-west1",
		"Hello, 世界":                       "=?base64?SGVsbG8sIOS4lueVjA==?=",
		" padded ":                        "=?base64?IHBhZGRlZCA=?=",
		"line1\nline2":                    "=?base64?bGluZTEKbGluZTI=?=",
		"=?base64?literal?=":              "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?=":                      "=?base64?PT9iYXNlNjQ/PQ==?=",
		"=?BASE64?x?=":                    "=?BASE64?x?=",
		"file:///path/to/file%20name.txt": "file:///path/to/file%20name.txt",
		"a b":                             "a b",
		"":                                "",
		"tab\tinside":                     "=?base64?dGFiCWluc2lkZQ==?=",
		"a\r\nX: y":                       "=?base64?YQ0KWDogeQ==?=",
		"\x7f":                            "=?base64?fw==?=",
		" x ":                             "=?base64?IHgg?=",
		"=?base64?dGVzdA==?=":             "=?base64?PT9iYXNlNjQ/ZEdWemRBPT0/PQ==?=",
	} {
		got := EncodeHeaderValue(in)
		if got != want {
			t.Errorf("EncodeHeaderValue(%q) = %q, want %q", in, got, want)
		}
		if back, err := DecodeHeaderValue(got); err != nil || back != in {
			t.Errorf("DecodeHeaderValue(%q) = %q, %v, want %q", got, back, err, in)
		}
	}
	if _, err := DecodeHeaderValue("=?base64?***?="); err == nil {
		t.Error("a broken sentinel was decoded")
	}
}

func FuzzHeaderValuesSurvive(f *testing.F) {
	for _, s := range []string{"", "a", " a", "=?base64?YQ==?=", "世", "\x00", "=?base64?="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		enc := EncodeHeaderValue(s)
		if strings.TrimSpace(enc) != enc || strings.ContainsFunc(enc, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q became %q, which is not safe", s, enc)
		}
		if back, err := DecodeHeaderValue(enc); err != nil || back != s {
			t.Fatalf("%q became %q and then %q, %v", s, enc, back, err)
		}
	})
}

func FuzzHeaderValuesOfOthersAreReadOrRefused(f *testing.F) {
	for _, s := range []string{"", "a", "=?base64?YQ==?=", "=?base64??=", "=?base64?YQ?=", "=?base64?=", "=?base64?Y\nQ==?="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value, err := DecodeHeaderValue(s)
		if err != nil {
			if value != "" || !looksEncoded(s) {
				t.Fatalf("%q: %q, %v", s, value, err)
			}
			return
		}
		if back, err := DecodeHeaderValue(EncodeHeaderValue(value)); err != nil || back != value {
			t.Fatalf("%q means %q, which became %q, %v", s, value, back, err)
		}
	})
}

func TestRetryAfterIsReadAsSecondsOrDate(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 1.5 ": 1500 * time.Millisecond, "-3": 0, "NaN": 0, "soon": 0, "99999999999999999999": maxWait, "Inf": maxWait,
		now.Add(time.Minute).Format(http.TimeFormat):  time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(in, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", in, got, want)
		}
	}
}

func TestFault40_ConfiguredHeadersAreCheckedEarly(t *testing.T) {
	for name, tt := range map[string]struct {
		h  *HTTP
		ok bool
	}{
		"fine":              {&HTTP{URL: "http://h/mcp", Header: http.Header{"Authorization": {"Bearer x"}}}, true},
		"bare host":         {&HTTP{URL: "https://h"}, true},
		"non-ASCII value":   {&HTTP{URL: "http://h", Header: http.Header{"X-A": {"ä"}}}, false},
		"line break":        {&HTTP{URL: "http://h", Header: http.Header{"X-A": {"a\r\nB: c"}}}, false},
		"bad name":          {&HTTP{URL: "http://h", Header: http.Header{"X A": {"a"}}}, false},
		"no scheme":         {&HTTP{URL: "h/mcp"}, false},
		"other scheme":      {&HTTP{URL: "ftp://h"}, false},
		"no host":           {&HTTP{URL: "http:///mcp"}, false},
		"secret unparsable": {&HTTP{URL: "http://user:secret@h:port/"}, false},
	} {
		err := tt.h.Validate()
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "ä")) {
			t.Errorf("%s: the error shows the value: %v", name, err)
		}
		if _, err := tt.h.Dial(t.Context(), nil); (err == nil) != tt.ok {
			t.Errorf("%s: Dial: %v", name, err)
		}
	}
}
