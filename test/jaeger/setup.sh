#!/bin/sh
# Builds Jaeger at a pinned version, once, and prints the path of its binary. It is kept outside of the tree, because it
# takes some minutes of both processors and 1.6 GB of Go modules: JAEGER_CACHE, or mcpbridge in the user's cache.
# Its dependencies are a module of their own, so that none of its 300 takes part in the choice of ours.
set -eu
version=v1.76.0
cache=${JAEGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcpbridge}/jaeger-$version
fail() { echo "jaeger: $*" >&2; exit 1; }

if [ ! -x "$cache/jaeger" ]; then
	command -v go >/dev/null || fail "go is not on PATH"
	echo "jaeger: building $version in $cache" >&2
	mkdir -p "$cache/module"
	cd "$cache/module"
	[ -f go.mod ] || go mod init mcpbridge.test/jaeger >&2
	go get -tool "github.com/jaegertracing/jaeger/cmd/jaeger@$version" >&2 ||
		fail "go get failed in $cache/module (see above; is the Go module proxy reachable?)"
	# to a name of its own first, so that a build that was interrupted leaves nothing that looks like one
	go build -ldflags='-s -w' -o ../jaeger.new github.com/jaegertracing/jaeger/cmd/jaeger >&2 || fail "the build failed"
	mv ../jaeger.new ../jaeger
fi
echo "$cache/jaeger"
