# You need only go test ./... and go build ./cmd/fairshare; these are shortcuts.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)

.PHONY: build test check bench module

build: ## one static binary in dist/
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $$(go list ./internal/cli).version=$(VERSION)" -o dist/fairshare ./cmd/fairshare

test:
	go test ./...

check: ## the checks of CI
	bash .ci/run

bench: ## the tables of BENCHMARKS.md
	cd bench && go run ./limiters

# make passes PATH=… to its commands as their search path, so Go is located first.
GO := $(or $(shell command -v go),$(wildcard /usr/local/go/bin/go))

module: ## changes the module path everywhere: make module PATH=example.org/fairshare
	PATH="$(dir $(GO)):/usr/local/bin:/usr/bin:/bin" $(GO) run ./internal/modulepath $(PATH)
