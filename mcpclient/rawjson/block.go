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
	return zeros(b.word(0)^x) | zeros(b.word(1)^x)<<8 | zeros(b.word(2)^x)<<16 | zeros(b.word(3)^x)<<24 |
		zeros(b.word(4)^x)<<32 | zeros(b.word(5)^x)<<40 | zeros(b.word(6)^x)<<48 | zeros(b.word(7)^x)<<56
}

// zeros has a bit for each byte of w that is zero.
func zeros(w uint64) uint64 {
	const low = ones * 0x7f
	return ^((w & low) + low | w | low) >> 7 * 0x0102040810204080 >> 56
}

// sum has the bits of all bytes of b, and control high bits if one of them is a
// control character.
func (b *block) sum() (all, control uint64) {
	for n := range blockBytes / 8 {
		w := b.word(n)
		all |= w
		control |= (w - ones*' ') &^ w
	}
	return all, control & highs
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
// ends it or is not valid, and collects in seen the bits of all bytes. Where it
// ends no escape is broken off.
func pass(data []byte, i int, seen *uint64) int {
	before := uint64(0)
	for ; i+blockBytes <= len(data); i += blockBytes {
		b := (*block)(data[i:])
		all, control := b.sum()
		if control != 0 {
			break
		}
		quotes, slashes := b.marks('"'), b.marks('\\')
		next := before
		taken := uint64(0)
		if slashes|before != 0 {
			taken = escaped(slashes, &next)
		}
		if quotes&^taken != 0 || !validEscapes(data, i, taken&^(quotes|slashes)) {
			break
		}
		*seen |= all
		before = next
	}
	return i - int(before)
}

// validEscapes checks the escapes whose second bytes are marked.
func validEscapes(data []byte, i int, marks uint64) bool {
	for ; marks != 0; marks &= marks - 1 {
		at := i + bits.TrailingZeros64(marks)
		if escapes[data[at]] != 0 {
			continue
		}
		if data[at] != 'u' {
			return false
		}
		if _, ok := hex4(data[at+1:]); !ok {
			return false
		}
	}
	return true
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
		slashes := (*block)(src[i:]).marks('\\')
		at := 0 // in the block
		if slashes != 0 {
			none := uint64(0)
			for starts := slashes &^ escaped(slashes, &none); starts != 0; {
				start := bits.TrailingZeros64(starts)
				n += run(part, n, text, at, start)
				if c := escapes[text[start&(blockBytes-1)+1]]; c != 0 {
					part[n&(partBytes-1)] = c
					n, at = n+1, start+2
					starts &= starts - 1
					continue
				}
				size, wide := decodeUnicode(part[n:], src[i+start:])
				*clean = *clean && size > 0
				n, at = n+wide, start+max(size, -size)
				starts &= ^uint64(0) << at // nothing is left beyond the block
			}
		}
		if at < blockBytes {
			n += run(part, n, text, at, blockBytes)
			at = blockBytes
		}
		i += at
	}
	return i, n
}

// ahead is what run copies at least.
const ahead = 16

// run copies what is between two places of text, and for short ones something
// behind it that does not count. It returns its length.
func run(part *window, n int, text *[blockBytes + ahead]byte, from, to int) int {
	d := part[n&(partBytes-1):]
	s := text[from&(blockBytes-1):]
	binary.LittleEndian.PutUint64(d, binary.LittleEndian.Uint64(s))
	binary.LittleEndian.PutUint64(d[8:], binary.LittleEndian.Uint64(s[8:]))
	if to-from > ahead {
		copy(part[n+ahead:], text[from+ahead:to])
	}
	return to - from
}
