package config

import (
	"math"
	"strconv"
)

// Size is a number of bytes, written 512, 64KiB, 16MiB, 1GiB or, in powers of
// ten, 64KB, 16MB, 1GB.
type Size int64

// String writes s in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name   string
		factor Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= u.factor && s%u.factor == 0 {
			return strconv.FormatInt(int64(s/u.factor), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Int returns s for use as a length, at most math.MaxInt.
func (s Size) Int() int { return int(min(int64(s), math.MaxInt)) }
