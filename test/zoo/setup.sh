#!/bin/sh
# Installs the real MCP servers that the tests in this folder run into test/.cache/zoo: npm packages and programs built
# from Go modules, at pinned versions. Running it again does nothing unless a pin changed.
set -eu
cd "$(dirname "$0")"
mkdir -p ../.cache/zoo/bin
cache=$(cd ../.cache/zoo && pwd)
fail() { echo "zoo: $*" >&2; exit 1; }

sum=$(cat npm/package.json npm/package-lock.json | cksum)
if [ "$sum" != "$(cat "$cache/npm.stamp" 2>/dev/null)" ]; then
	command -v npm >/dev/null || fail "npm is not on PATH; install Node.js 20 or newer"
	echo "zoo: npm packages" >&2
	mkdir -p "$cache/npm"
	cp npm/package.json npm/package-lock.json npm/.npmrc "$cache/npm/"
	(cd "$cache/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
		fail "npm ci failed in $cache/npm (see above; is the npm registry reachable?)"
	echo "$sum" >"$cache/npm.stamp"
fi

# One line each: the name of the binary, the package and its version.
while read -r name package; do
	[ "$package" = "$(cat "$cache/$name.stamp" 2>/dev/null)" ] && [ -x "$cache/bin/$name" ] && continue
	command -v go >/dev/null || fail "go is not on PATH"
	echo "zoo: $package" >&2
	mkdir -p "$cache/build"
	GOBIN=$cache/build GOFLAGS= go install "$package" || fail "go install $package failed (see above)"
	mv "$cache/build/$(basename "${package%@*}")" "$cache/bin/$name"
	echo "$package" >"$cache/$name.stamp"
done <<END
gosdk-everything github.com/modelcontextprotocol/go-sdk/conformance/everything-server@v1.8.0
gosdk-sse github.com/modelcontextprotocol/go-sdk/examples/server/sse@v1.8.0
mcpgo-conformance github.com/mark3labs/mcp-go/examples/conformance@v1.2.1
mcpgo-everything github.com/mark3labs/mcp-go/examples/everything@v1.2.1
mcpgo-dynamic-path github.com/mark3labs/mcp-go/examples/dynamic_path@v1.2.1
END
