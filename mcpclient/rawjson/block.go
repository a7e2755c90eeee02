package rawjson

import (
	"encoding/binary"
	"math/bits"
)

// Long strings are read in blocks, with one bit for each byte: how many
// escapes there are then matters little, and neither does where they are.

const blockBytes = 64

type block [blockBytes]byte

// word is the n-th of the eight words of b.
func (b *block) word(n int) uint64 { return binary.LittleEndian.Uint64(b[8*n : 8*n+8]) }

// marks has a bit for each byte of b that is c.
func (b *block) marks(c byte) uint64 {
	x := ones * uint64(c)
	return ^(others(b.word(0)^x) | others(b.word(1)^x)<<8 | others(b.word(2)^x)<<16 | others(b.word(3)^x)<<24 |
		others(b.word(4)^x)<<32 | others(b.word(5)^x)<<40 | others(b.word(6)^x)<<48 | others(b.word(7)^x)<<56)
}

// others has a bit for each byte of w that is not zero.
func others(w uint64) uint64 { return gather((w&lows + lows) | w) }

// asciiMarks is marks for a block of ASCII.
func (b *block) asciiMarks(c byte) uint64 {
	x := ones * uint64(c)
	return ^(gather((b.word(0)^x)+lows) | gather((b.word(1)^x)+lows)<<8 | gather((b.word(2)^x)+lows)<<16 | gather((b.word(3)^x)+lows)<<24 |
		gather((b.word(4)^x)+lows)<<32 | gather((b.word(5)^x)+lows)<<40 | gather((b.word(6)^x)+lows)<<48 | gather((b.word(7)^x)+lows)<<56)
}

// find is marks, and sooner done for a block of ASCII.
func (b *block) find(c byte) uint64 {
	if (b.word(0)|b.word(1)|b.word(2)|b.word(3)|b.word(4)|b.word(5)|b.word(6)|b.word(7))&highs == 0 {
		return b.asciiMarks(c)
	}
	return b.marks(c)
}

// gather puts the high bits of the bytes of w side by side.
func gather(w uint64) uint64 { return w & highs * 0x0002040810204081 >> 56 }

// sum has the bits of all bytes of b, and tells whether none of them is a control character, which holds for ASCII
// alone.
func (b *block) sum() (all uint64, printable bool) {
	least := ^uint64(0)
	for n := range blockBytes / 8 {
		w := b.word(n)
		all |= w
		least &= w + ones*(0x80-' ')
	}
	return all, least&highs == highs
}

// control tells whether b has a control character.
func (b *block) control() bool {
	found := uint64(0)
	for n := range blockBytes / 8 {
		w := b.word(n)
		found |= (w - ones*' ') &^ w
	}
	return found&highs != 0
}

// escaped says which bytes of a block have a backslash before them that is not
// itself escaped. slashes are the backslashes. The byte before the block is
// none that escapes, unless before is 1, which is updated for the next block.
//
// A run of backslashes that begins at an even byte, when added to a run's
// beginning, carries to where it ends: so runs of odd length are told from
// those of even length without a loop.
func escaped(slashes uint64, before *uint64) uint64 {
	const even = 0x5555555555555555
	slashes &^= *before
	follows := slashes<<1 | *before
	oddStarts := slashes &^ even &^ follows
	sum, carry := bits.Add64(oddStarts, slashes, 0)
	*before = carry
	return (even ^ sum<<1) & follows
}

// pass skips blocks of the inside of a string from i on, up to the one that
// ends it or is not valid, and collects in seen the bits of all bytes, and in
// less how many bytes the escapes stand for less than they have, at least. Where
// it ends no escape is broken off.
func pass(data []byte, i int, seen *uint64, less *int) int {
	before := uint64(0)
	for ; i+blockBytes <= len(data); i += blockBytes {
		b := (*block)(data[i:])
		var quotes, slashes uint64
		all, valid := b.sum()
		if all&highs == 0 {
			quotes, slashes = b.asciiMarks('"'), b.asciiMarks('\\')
		} else {
			valid, quotes, slashes = !b.control(), b.marks('"'), b.marks('\\')
		}
		next, taken := before, uint64(0)
		if slashes|before != 0 {
			taken = escaped(slashes, &next)
		}
		if !valid || quotes&^taken != 0 {
			break
		}
		wide, valid := validEscapes(data, i, taken&^(quotes|slashes))
		if !valid {
			break
		}
		*seen |= all
		*less += bits.OnesCount64(taken) + 2*wide
		before = next
	}
	return i - int(before)
}

// validEscapes checks the escapes whose second bytes are marked, and counts those with four digits.
func validEscapes(data []byte, i int, marks uint64) (wide int, valid bool) {
	for ; marks != 0; marks &= marks - 1 {
		at := i + bits.TrailingZeros64(marks)
		if escapes[data[at]] != 0 {
			continue
		}
		if data[at] != 'u' {
			return 0, false
		}
		if _, ok := hex4(data[at+1:]); !ok {
			return 0, false
		}
		wide++
	}
	return wide, true
}

// partBytes is how much is decoded at a time. It is a power of two so that the
// compiler sees, from a mask that changes nothing, that no index is too large.
const partBytes = 4 << 10

// window is where text is decoded to, with room for what stands behind a run.
type window [partBytes + blockBytes]byte

// decodeBlocks decodes blocks of the inside of a valid string that holds valid
// UTF-8 into part from n on, until there is no room or no block any more. No
// escape is broken off. It returns how many bytes it read, and n behind what it
// wrote.
func decodeBlocks(part *window, n int, src []byte, clean *bool) (read, end int) {
	i := 0
	for i+blockBytes+ahead <= len(src) && n+2*blockBytes <= partBytes {
		text := (*[blockBytes + ahead]byte)(src[i:])
		slashes := (*block)(src[i:]).find('\\')
		starts := slashes
		if slashes != 0 {
			none := uint64(0)
			starts &^= escaped(slashes, &none)
		}
		at := 0
		n, at = unescape(part, n, text, starts)
		i += at
		for again := at < blockBytes; again; again = n+2*blockBytes <= partBytes && i+12 <= len(src) && src[i] == '\\' && src[i+1] == 'u' {
			size, wide := decodeUnicode(part[n:], src[i:])
			*clean = *clean && size > 0
			i, n = i+max(size, -size), n+wide
		}
	}
	return i, n
}

// ahead is what is copied at a time.
const ahead = 16

// unescape decodes a block in which escapes begin at starts, up to its end or to an escape with four digits. It
// returns where it stands in both. It calls nothing, which would cost more than what it does.
func unescape(part *window, n int, text *[blockBytes + ahead]byte, starts uint64) (end, at int) {
	for {
		start := blockBytes
		if starts != 0 {
			start = bits.TrailingZeros64(starts)
		}
		for {
			d, s := part[n&(partBytes-1):], text[at&(blockBytes-1):]
			binary.LittleEndian.PutUint64(d, binary.LittleEndian.Uint64(s))
			binary.LittleEndian.PutUint64(d[8:], binary.LittleEndian.Uint64(s[8:]))
			if start-at <= ahead {
				break
			}
			at, n = at+ahead, n+ahead
		}
		n += start - at
		if starts == 0 {
			return n, start
		}
		c := escapes[text[start&(blockBytes-1)+1]]
		if c == 0 {
			return n, start
		}
		part[n&(partBytes-1)] = c
		n, at = n+1, start+2
		if starts &= starts - 1; at >= blockBytes {
			return n, at
		}
	}
}
