package convert

import (
	"bytes"
	"math"
	"strconv"
)

// maxExactInt is 2^53: all integers up to it are doubles.
const maxExactInt = 1 << 53

// parseNumber converts a JSON number to the nearest finite double. It is exact when the shortest decimal that names
// the double is the same number, so that no reader of the double sees another one; -0 is never exact, because most
// readers take it for 0.
func parseNumber(token []byte) (f float64, exact bool) {
	if n, ok := shortInt(token); ok {
		if n == 0 && token[0] == '-' {
			return math.Copysign(0, -1), false
		}
		return float64(n), true
	}
	f, err := strconv.ParseFloat(string(token), 64)
	if err != nil {
		return math.Copysign(math.MaxFloat64, f), false
	}
	if token[0] == '-' && f == 0 {
		return f, false
	}
	return f, isShortest(token, f)
}

// SurvivesDouble reports whether a JSON number means the same after it was stored in a double and written again.
// Integers beyond 2^53 mostly do not, and neither do 1e400 and decimals of more than 17 digits; -0 does.
func SurvivesDouble(token []byte) bool {
	if _, ok := shortInt(token); ok {
		return true // below 2^53
	}
	f, err := strconv.ParseFloat(string(token), 64)
	return err == nil && isShortest(token, f)
}

// isShortest reports whether the shortest decimal that names f is the number of token.
func isShortest(token []byte, f float64) bool {
	var a, b [48]byte
	digits, exp, ok := decimal(a[:0], token)
	if !ok {
		return false
	}
	shortest, shortestExp, _ := decimal(b[:0], strconv.AppendFloat(make([]byte, 0, 32), f, 'e', -1, 64))
	return exp == shortestExp && bytes.Equal(digits, shortest)
}

// shortInt reads an integer of at most 15 digits without fraction or exponent.
func shortInt(token []byte) (n int64, ok bool) {
	digits := bytes.TrimPrefix(token, []byte{'-'})
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if token[0] == '-' {
		n = -n
	}
	return n, true
}

// decimal splits a JSON number into its digits, without leading and trailing zeros, and a power of ten such that its
// absolute value is 0.DIGITS × 10^exp. Zero has no digits and exponent 0. It is not ok when the exponent is beyond
// any double.
func decimal(dst, token []byte) (digits []byte, exp int, ok bool) {
	token = bytes.TrimPrefix(token, []byte{'-'})
	mantissa := token
	if i := bytes.IndexAny(token, "eE"); i >= 0 {
		mantissa = token[:i]
		var err error
		if exp, err = strconv.Atoi(string(token[i+1:])); err != nil || exp > math.MaxInt32 || exp < math.MinInt32 {
			return nil, 0, false
		}
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte{'.'})
	digits = append(append(dst, whole...), fraction...)
	exp += len(whole)
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
		exp--
	}
	digits = bytes.TrimRight(digits, "0")
	if len(digits) == 0 {
		exp = 0
	}
	return digits, exp, true
}

// parseInt reads a JSON number that is an integer of 64 bits, however it is written (3, 3.0, 3e0); -0 is none.
func parseInt(token []byte) (int64, bool) {
	if len(token) == 0 {
		return 0, false // a number that was cut off
	}
	if n, err := strconv.ParseInt(string(token), 10, 64); err == nil {
		return n, n != 0 || token[0] != '-'
	}
	var buf [40]byte
	digits, exp, ok := decimal(buf[:0], token)
	switch {
	case !ok || exp < len(digits) || exp > 19:
		return 0, false
	case len(digits) == 0:
		return 0, token[0] != '-'
	}
	text := make([]byte, 0, 20)
	if token[0] == '-' {
		text = append(text, '-')
	}
	text = append(text, digits...)
	for range exp - len(digits) {
		text = append(text, '0')
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// appendNumber writes a finite double: integers up to 2^53 as such, others as the shortest decimal that reads back
// the same, written as ECMAScript does.
func appendNumber(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs <= maxExactInt && f == math.Trunc(f) && (f != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	if f == 0 || abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads a short exponent: 1e-07.
	if i := start + bytes.IndexByte(dst[start:], 'e'); len(dst) == i+4 && dst[i+2] == '0' {
		dst = append(dst[:i+2], dst[i+3])
	}
	return dst
}
