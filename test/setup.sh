#!/bin/sh
# Installs what the end-to-end tests run beside the bridge into test/.cache: real MCP servers (npm and PyPI),
# grpcurl and buf, all at pinned versions. Running it again does nothing unless a pin changed.
# Missing Node or Python is reported and skipped; set REQUIRE_REAL=1 to make it an error.
set -eu
cd "$(dirname "$0")"
cache=$PWD/.cache
grpcurl_version=v1.9.4
mkdir -p "$cache/bin"

fail() { echo "setup: $*" >&2; exit 1; }

missing() {
	[ "${REQUIRE_REAL:-}" = 1 ] && fail "$1"
	echo "setup: $1; the tests that need it will be skipped" >&2
}

# stamp NAME FILE...: succeeds when NAME was installed from exactly these files.
stamp() {
	name=$1; shift
	[ "$(cat "$@" | cksum)" = "$(cat "$cache/$name.stamp" 2>/dev/null)" ]
}

mark() {
	name=$1; shift
	cat "$@" | cksum >"$cache/$name.stamp"
}

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	missing "node and npm are not on PATH"
elif ! stamp npm npm/package-lock.json; then
	echo "setup: npm packages" >&2
	mkdir -p "$cache/npm"
	cp npm/package.json npm/package-lock.json npm/.npmrc "$cache/npm/"
	(cd "$cache/npm" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
		fail "npm ci failed in $cache/npm (see above; is the npm registry reachable?)"
	mark npm npm/package-lock.json
fi

if ! command -v python3 >/dev/null; then
	missing "python3 is not on PATH"
elif ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
	missing "python3 is $(python3 -V 2>&1), the MCP package needs 3.10 or newer"
elif ! stamp python fixtures/python/requirements.txt; then
	echo "setup: Python packages" >&2
	rm -rf "$cache/venv"
	python3 -m venv "$cache/venv" ||
		fail "python3 -m venv failed (on Debian and Ubuntu install python3-venv)"
	"$cache/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r fixtures/python/requirements.txt ||
		fail "pip install failed (see above; is PyPI reachable?)"
	"$cache/venv/bin/python" -c 'import mcp.server.mcpserver, uvicorn' ||
		fail "the installed Python packages do not import"
	mark python fixtures/python/requirements.txt
fi

if [ "$(cat "$cache/grpcurl.stamp" 2>/dev/null)" != "$grpcurl_version" ] || [ ! -x "$cache/bin/grpcurl" ]; then
	echo "setup: grpcurl $grpcurl_version" >&2
	command -v go >/dev/null || fail "go is not on PATH"
	GOBIN=$cache/bin GOFLAGS= go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$grpcurl_version" ||
		fail "go install grpcurl failed (see above)"
	echo "$grpcurl_version" >"$cache/grpcurl.stamp"
fi
echo "setup: done" >&2
