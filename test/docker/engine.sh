# Sourced by run.sh: finds or starts a Docker engine, and finds or builds the
# base images.

engine_dir=

# engine_start makes "docker" usable.
engine_start() {
	if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
		return
	fi
	if [[ $(uname -s) != Linux || $(id -u) != 0 ]]; then
		echo "no Docker engine answers; start one, or run this as root on Linux to have one started" >&2
		exit 1
	fi
	if ! command -v dockerd >/dev/null; then
		engine_apt docker.io
	fi
	engine_dir=$(mktemp -d /tmp/mcpbridge-docker.XXXXXX)
	export DOCKER_HOST=unix://$engine_dir/docker.sock
	# no bridge and no iptables: neither is needed with --network host, and both
	# ask for privileges that a container may not have
	dockerd --data-root "$engine_dir/data" --exec-root "$engine_dir/exec" --pidfile "$engine_dir/dockerd.pid" \
		-H "$DOCKER_HOST" --bridge=none --iptables=false --ip6tables=false --ip-forward=false \
		>"$engine_dir/log" 2>&1 &
	for _ in {1..60}; do
		docker info >/dev/null 2>&1 && return
		sleep 1
	done
	echo "the Docker engine did not start:" >&2
	tail -n 20 "$engine_dir/log" >&2
	exit 1
}

# engine_stop ends what engine_start started.
engine_stop() {
	[[ -n $engine_dir ]] || return 0
	local pid
	if pid=$(cat "$engine_dir/dockerd.pid" 2>/dev/null); then
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	fi
	umount "$engine_dir/exec/netns/default" 2>/dev/null || true
	rm -rf "$engine_dir" || true
}

engine_apt() {
	if ! command -v apt-get >/dev/null; then
		echo "cannot install $*: there is no apt-get" >&2
		exit 1
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# engine_bases makes sure that the images exist.
engine_bases() {
	local base
	for base in "$@"; do
		if docker image inspect "$base" >/dev/null 2>&1 || timeout 300 docker pull -q "$base" >/dev/null 2>&1; then
			continue
		fi
		echo "$base cannot be pulled; building a stand-in" >&2
		case $base in
		golang:*) stand_in_golang "$base" ;;
		gcr.io/distroless/static*) stand_in_static "$base" ;;
		*) echo "there is no stand-in for $base" >&2 && exit 1 ;;
		esac
	done
}

# stand_in_golang is Debian with this machine's Go.
stand_in_golang() {
	local cache=${STAND_IN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcpbridge/docker}
	local rootfs=$cache/bookworm.tar goroot certs=/etc/ssl/certs/ca-certificates.crt
	goroot=$(go env GOROOT)
	if [[ ! -s $rootfs ]]; then
		command -v debootstrap >/dev/null || engine_apt debootstrap
		mkdir -p "$cache"
		rm -rf "$cache/rootfs"
		debootstrap --variant=minbase bookworm "$cache/rootfs" >&2
		tar -C "$cache/rootfs" -cf "$rootfs.part" .
		mv "$rootfs.part" "$rootfs"
		rm -rf "$cache/rootfs"
	fi
	local context
	context=$(mktemp -d)
	docker import "$rootfs" mcpbridge-stand-in:bookworm >/dev/null
	mkdir -p "$context/certs"
	[[ ! -e $certs ]] || cp -L "$certs" "$context/certs/ca-certificates.crt"
	tar -C "$goroot" -cf "$context/go.tar" .
	cat >"$context/Dockerfile" <<-EOF
		FROM mcpbridge-stand-in:bookworm
		ADD go.tar /usr/local/go
		COPY certs/ /etc/ssl/certs/
		ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOTOOLCHAIN=local \
		    GOPATH=/go GOPROXY=$(go env GOPROXY) GOSUMDB=$(go env GOSUMDB) GONOSUMDB=$(go env GONOSUMDB)
	EOF
	docker build -q --network host -t "$1" "$context" >/dev/null
	rm -rf "$context"
}

# stand_in_static has what the distroless image has: users, certificates, /tmp.
stand_in_static() {
	local root
	root=$(mktemp -d)
	mkdir -p "$root/etc/ssl/certs" "$root/tmp" "$root/home/nonroot"
	printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
	[[ ! -e /etc/ssl/certs/ca-certificates.crt ]] || cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
	chmod 1777 "$root/tmp"
	chown 65532:65532 "$root/home/nonroot" 2>/dev/null || true
	tar -C "$root" -c . | docker import --change 'USER 65532' - "$1" >/dev/null
	rm -rf "$root"
}
