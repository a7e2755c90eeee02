#!/bin/sh
# Installs the official conformance suite and the Node.js it needs into test/.cache/conformance, at pinned versions.
# Running it again does nothing unless a pin changed. Linux on amd64 only, because of that Node.js.
set -eu
cd "$(dirname "$0")"
cache=$PWD/../.cache/conformance
fail() { echo "conformance: $*" >&2; exit 1; }

sum=$(cat npm/package.json npm/package-lock.json | cksum)
[ "$sum" = "$(cat "$cache/npm.stamp" 2>/dev/null)" ] && exit 0
command -v npm >/dev/null || fail "npm is not on PATH; install Node.js with npm (any version that npm ci runs on)"
echo "conformance: npm packages" >&2
mkdir -p "$cache/npm"
cp npm/package.json npm/package-lock.json npm/.npmrc "$cache/npm/"
(cd "$cache/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
	fail "npm ci failed in $cache/npm (see above; is the npm registry reachable?)"
echo "$sum" >"$cache/npm.stamp"
