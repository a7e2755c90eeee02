SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE ?= mcpbridge:dev
BASE ?= origin/main
FUZZTIME ?= 60s
BENCH ?= .

BUF := tools/buf
GOLANGCI_LINT := .bin/golangci-lint
LDFLAGS := -s -w -X main.version=$(VERSION)
# Both modules that hold our code; tools/ has none.
MODULES := . test

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary ./bridge
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bridge ./cmd/bridge

.PHONY: image
image: ## Build the container image IMAGE (mcpbridge:dev)
	docker build --build-arg VERSION="$(VERSION)" -t "$(IMAGE)" .

.PHONY: test
test: test-unit test-e2e ## Run every test; installs the servers that the tests need

.PHONY: test-unit
test-unit: ## Run the unit tests with the race detector
	$(GO) test -race -timeout 10m ./...

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests against real MCP servers
	test/setup.sh
	cd test && $(GO) test -v -count=1 -timeout 15m ./... 2>&1 | { grep -E -v '^ *(=== |--- PASS)' || true; }

.PHONY: conformance
conformance: ## Run the client through the official conformance suite (Linux, amd64)
	test/conformance/setup.sh
	cd test && $(GO) run ./conformance/run

.PHONY: test-zoo
test-zoo: ## Drive the client against many real MCP servers
	test/zoo/setup.sh
	cd test && ZOO=1 $(GO) test -count=1 -timeout 10m ./zoo

.PHONY: chaos
chaos: ## Disturb the servers of a bridge under load for some minutes (Linux)
	cd test && $(GO) run ./chaos

.PHONY: test-jaeger
test-jaeger: ## Look at traces through a real Jaeger; builds one the first time, which takes minutes
	binary=$$(test/jaeger/setup.sh) && cd test && JAEGER_BIN="$$binary" $(GO) test -v -count=1 -timeout 10m -run Jaeger ./e2e

.PHONY: test-docker
test-docker: ## Build the image, run it and check its behaviour and size
	test/docker/run.sh

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (60s)
	for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime "$(FUZZTIME)" "$$pkg"; \
		done; \
	done

# built first, since go run does not pass signals on
.PHONY: bench
bench: ## Measure the bridge beside a bare POST and the official SDK: eight cells, under 10 minutes (Linux)
	cd test && $(GO) build -o .cache/bench ./bench && exec .cache/bench -doc ../docs/performance.md

.PHONY: bench-full
bench-full: ## The same with every cell, in about half an hour (Linux)
	cd test && $(GO) build -o .cache/bench ./bench && exec .cache/bench -full -duration 2s -settle 3m -doc ../docs/performance.md

.PHONY: bench-client
bench-client: ## Measure the client's CPU and allocations beside the official SDK's (Linux)
	cd test && $(GO) run ./clientbench

.PHONY: bench-micro
bench-micro: ## Run the microbenchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: lint
lint: lint-go lint-proto ## Run every check of the sources

.PHONY: lint-go
lint-go: $(GOLANGCI_LINT) ## gofmt, go vet, go fix and golangci-lint
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "not formatted; run make fmt:"; echo "$$files"; exit 1; fi
	for module in $(MODULES); do (cd "$$module" && $(GO) mod tidy -diff && $(GO) vet ./... && $(GO) fix -diff ./...); done
	$(GOLANGCI_LINT) config verify
	$(GOLANGCI_LINT) run ./...

.PHONY: lint-proto
lint-proto: ## buf lint and buf format
	$(BUF) lint
	$(BUF) format --diff --exit-code

.PHONY: breaking
breaking: ## Compare the protobuf API with that of BASE (origin/main)
	$(BUF) breaking proto --against '.git#ref=$(BASE),subdir=proto'

.PHONY: vuln
vuln: ## Look for known vulnerabilities; needs the Go vulnerability database
	$(GO) tool -modfile=tools/go.mod govulncheck ./...

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format Go and protobuf files
	$(GOLANGCI_LINT) fmt
	cd test && gofmt -w .
	$(BUF) format -w

.PHONY: generate
generate: ## Generate gen/ and test/gen/ from proto/
	$(BUF) generate
	test/setup.sh
	cd test && $(GO) generate ./gen/...

.PHONY: check-generated
check-generated: generate ## Fail when the generated code is not up to date
	@changes=$$(git status --porcelain -- gen test/gen); \
	if [ -n "$$changes" ]; then \
		git --no-pager diff -- gen test/gen; \
		echo "generated code is not up to date; run make generate and commit:"; echo "$$changes"; exit 1; \
	fi

.PHONY: tools
tools: $(GOLANGCI_LINT) ## Install golangci-lint and buf inside the tree
	$(BUF) --version

$(GOLANGCI_LINT): tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: clean
clean: ## Remove everything that was built or installed inside the tree
	rm -rf .bin .cache bridge dist tools/npm/node_modules test/.cache
