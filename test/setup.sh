#!/bin/sh
# Installs what the end-to-end tests run beside the bridge into test/.cache: real MCP servers (npm and PyPI),
# Connect-ES, grpcurl and buf, all at pinned versions. Running it again does nothing unless a pin changed.
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

# venv FIXTURE FOLDER IMPORT: a virtual environment with what a fixture needs.
venv() {
	stamp "$1" "fixtures/$1/requirements.txt" && return
	echo "setup: Python packages of fixtures/$1" >&2
	rm -rf "${cache:?}/$2"
	python3 -m venv "$cache/$2" ||
		fail "python3 -m venv failed (on Debian and Ubuntu install python3-venv)"
	"$cache/$2/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "fixtures/$1/requirements.txt" ||
		fail "pip install failed (see above; is PyPI reachable?)"
	"$cache/$2/bin/python" -c "$3" ||
		fail "the installed Python packages do not import"
	mark "$1" "fixtures/$1/requirements.txt"
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
else
	venv python venv 'import mcp.server.mcpserver, uvicorn'
	venv fastmcp venv-fastmcp 'import fastmcp, fastmcp_tasks, opentelemetry.sdk, opentelemetry.exporter.otlp.proto.http'
	venv stubs venv-stubs 'import grpc, grpc_tools.protoc'
fi

if [ "$(cat "$cache/grpcurl.stamp" 2>/dev/null)" != "$grpcurl_version" ] || [ ! -x "$cache/bin/grpcurl" ]; then
	echo "setup: grpcurl $grpcurl_version" >&2
	command -v go >/dev/null || fail "go is not on PATH"
	GOBIN=$cache/bin GOFLAGS= go install "github.com/fullstorydev/grpcurl/cmd/grpcurl@$grpcurl_version" ||
		fail "go install grpcurl failed (see above)"
	echo "$grpcurl_version" >"$cache/grpcurl.stamp"
fi
echo "setup: done" >&2
