package convert

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

func TestNumbersThatADoubleKeeps(t *testing.T) {
	for token, want := range map[string]bool{
		"0": true, "-0": true, "0.0": true, "0e5": true, "1": true, "-12": true, "0.1": true, "1.0": true, "1e2": true, "1E+2": true,
		"9007199254740992": true, "9007199254740993": false, "-9007199254740993": false, "9007199254740994": true,
		"12345678901234567890": false, "1e23": true, "1e400": false, "-1e400": false, "1e-400": false, "4.9e-324": false,
		"5e-324": true, "0.1000000000000000055511151231257827": false, "123456789012345680000": true, "1e99999999999": false,
		"0e99999999999": false, "0.30000000000000004": true, "1.7976931348623157e308": true, "1.8e308": false,
		"100000000000000000000000": true, "1152921504606846976": false, "0.00000000000000000001": true,
	} {
		if got := SurvivesDouble([]byte(token)); got != want {
			t.Errorf("%s: %v, want %v", token, got, want)
		}
	}
}

func FuzzSurvivesDoubleAgreesWithAReadBack(f *testing.F) {
	for _, token := range []string{"0", "1.5", "9007199254740993", "1e400", "-0.1e-3", "123456789012345680000"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if !json.Valid([]byte(token)) || strings.Trim(token, "+-.0123456789eE") != "" {
			t.Skip() // no number, or one with whitespace around
		}
		if !SurvivesDouble([]byte(token)) {
			return
		}
		value, err := strconv.ParseFloat(token, 64)
		if err != nil {
			t.Fatalf("%s is called exact, but %v", token, err)
		}
		shortest := strconv.FormatFloat(value, 'g', -1, 64)
		a, aExponent, _ := decimal(nil, []byte(token))
		b, bExponent, _ := decimal(nil, []byte(shortest))
		if !bytes.Equal(a, b) || aExponent != bExponent {
			t.Errorf("%s is called exact, but reads back as %s", token, shortest)
		}
	})
}
