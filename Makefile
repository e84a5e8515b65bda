# You need only go test ./... and go build ./cmd/fairshare; these are shortcuts.

.PHONY: build dist image test check bench module

build: ## one static binary in dist/
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $(if $(VERSION),-X $$(go list ./internal/cli).version=$(VERSION))" -o dist/fairshare ./cmd/fairshare

dist: ## a release in dist/: programs, packages, image, bills of materials, checksums
	cd packaging && go run .

image: ## only the container image, in dist/
	cd packaging && go run . -image

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
