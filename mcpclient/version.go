package mcpclient

import "slices"

// Era is one of the two incompatible families of protocol revisions
// (2026-07-28 basic/versioning, Terminology).
type Era int

const (
	// EraUnknown: not negotiated yet.
	EraUnknown Era = iota
	// EraLegacy: an initialize handshake opens a session; 2025-11-25 and older.
	EraLegacy
	// EraModern: stateless, metadata on every request; 2026-07-28 and newer.
	EraModern
)

// String returns "unknown", "legacy" or "modern".
func (e Era) String() string {
	switch e {
	case EraLegacy:
		return "legacy"
	case EraModern:
		return "modern"
	case EraUnknown:
	}
	return "unknown"
}

// Protocol versions this client speaks.
const (
	Version20260728 = "2026-07-28"
	Version20251125 = "2025-11-25"
	Version20250618 = "2025-06-18"
	Version20250326 = "2025-03-26"
	Version20241105 = "2024-11-05"
)

// newest first: the first mutual one is chosen.
var (
	modernVersions = []string{Version20260728}
	legacyVersions = []string{Version20251125, Version20250618, Version20250326, Version20241105}
)

// EraOf returns the era of a version this client speaks, else EraUnknown.
func EraOf(version string) Era {
	switch {
	case slices.Contains(modernVersions, version):
		return EraModern
	case slices.Contains(legacyVersions, version):
		return EraLegacy
	}
	return EraUnknown
}

// SupportedVersions returns every version this client speaks, newest first.
func SupportedVersions() []string {
	return append(slices.Clone(modernVersions), legacyVersions...)
}

// bestMutual returns the first of ours, newest first, that the other side
// lists; "" when there is none.
func bestMutual(ours, theirs []string) string {
	for _, v := range ours {
		if slices.Contains(theirs, v) {
			return v
		}
	}
	return ""
}
