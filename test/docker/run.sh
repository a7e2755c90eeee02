#!/usr/bin/env bash
# Builds the image of ../../Dockerfile, runs it the way the README does, and
# checks what a user sees: it answers, it runs read-only without privileges, it
# refuses to be exposed by accident, it ends cleanly, and it is small.
#
# Uses the Docker engine that is there. Where there is none, but this is root
# on a Debian machine, it starts one of its own and stops it in the end; base
# images that cannot be pulled are then built with debootstrap.
#
#   IMAGE           name of the image (mcpbridge:test)
#   PORT            port on this machine (18080)
#   STAND_IN_CACHE  where stand-in bases are kept (~/.cache/mcpbridge/docker)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source test/docker/engine.sh

image=${IMAGE:-mcpbridge:test}
port=${PORT:-18080}
container=mcpbridge-test-$$
max_bytes=$((40 * 1000 * 1000))

say() { printf '== %s\n' "$*" >&2; }
fail() {
	printf 'FAIL: %s\n' "$*" >&2
	docker logs "$container" >&2 2>/dev/null || true
	exit 1
}

clean_up() {
	docker rm -f "$container" >/dev/null 2>&1 || true
	engine_stop
}
trap clean_up EXIT

engine_start
engine_bases golang:1.26-bookworm gcr.io/distroless/static-debian12:nonroot

say "build $image"
docker build --network host --build-arg VERSION=docker-test -t "$image" .

size=$(docker image inspect -f '{{.Size}}' "$image")
say "size $size bytes"
((size < max_bytes)) || fail "the image has $size bytes, more than $max_bytes"
user=$(docker image inspect -f '{{.Config.User}}' "$image")
[[ $user == nonroot* ]] || fail "the image runs as '$user'"

say "an address that others reach is refused"
if refusal=$(docker run --rm --network host "$image" serve --demo --listen "0.0.0.0:$port" 2>&1); then
	fail "0.0.0.0 was accepted without --insecure"
fi
grep -q 'can be reached from other machines' <<<"$refusal" || fail "unexpected refusal: $refusal"

say "run"
docker run -d --name "$container" --network host --read-only --cap-drop ALL --security-opt no-new-privileges \
	"$image" serve --demo --listen "0.0.0.0:$port" --insecure >/dev/null

rpc() { # METHOD JSON
	curl -sS --fail-with-body --noproxy '*' --retry 30 --retry-connrefused --retry-delay 1 --max-time 60 \
		-H 'Content-Type: application/json' -d "$2" "http://127.0.0.1:$port/mcpbridge.v1.ToolsService/$1"
}

tools=$(rpc ListTools '{}') || fail "ListTools: $tools"
grep -q '"echo"' <<<"$tools" || fail "ListTools has no tool echo: $tools"
result=$(rpc CallTool '{"target":"demo","name":"big_number"}') || fail "CallTool: $result"
grep -q '9007199254740993' <<<"$result" || fail "CallTool lost digits: $result"
[[ $(docker inspect -f '{{.State.Running}}' "$container") == true ]] || fail "the container has stopped"

say "stop"
docker stop --time 20 "$container" >/dev/null
code=$(docker inspect -f '{{.State.ExitCode}}' "$container")
[[ $code == 0 ]] || fail "exit code $code after docker stop"
say "ok"
