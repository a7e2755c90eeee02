package server

import (
	"bytes"
	"math"
	"strconv"
)

// survivesDouble reports whether a JSON number means the same after it was
// stored in a double and written again: whether the shortest decimal that
// names the double is the same number. Integers beyond 2^53 mostly do not, and
// neither do 1e400 and decimals of more than 17 digits.
func survivesDouble(token []byte) bool {
	if len(token) <= 15 && !bytes.ContainsAny(token, ".eE") {
		return true // below 2^53
	}
	f, err := strconv.ParseFloat(string(token), 64)
	if err != nil {
		return false
	}
	var a, b [48]byte
	digits, exponent, ok := decimal(a[:0], token)
	if !ok {
		return false
	}
	shortest, shortestExponent, _ := decimal(b[:0], strconv.AppendFloat(nil, f, 'e', -1, 64))
	return exponent == shortestExponent && bytes.Equal(digits, shortest)
}

// decimal splits a JSON number into its digits without leading and trailing
// zeros and the power of ten for 0.DIGITS; zero has no digits and power 0. It
// is not ok when the exponent is beyond any double.
func decimal(dst, token []byte) (digits []byte, exponent int, ok bool) {
	token = bytes.TrimPrefix(token, []byte{'-'})
	mantissa := token
	if i := bytes.IndexAny(token, "eE"); i >= 0 {
		mantissa = token[:i]
		var err error
		if exponent, err = strconv.Atoi(string(token[i+1:])); err != nil || exponent > math.MaxInt32 || exponent < math.MinInt32 {
			return nil, 0, false
		}
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte{'.'})
	digits = append(append(dst, whole...), fraction...)
	exponent += len(whole)
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
		exponent--
	}
	digits = bytes.TrimRight(digits, "0")
	if len(digits) == 0 {
		exponent = 0
	}
	return digits, exponent, true
}
