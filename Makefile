# go test ./... and go build ./cmd/fairshare are all that is needed; these are
# for those who like them short.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)

.PHONY: build test check bench

build: ## one static binary in dist/
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o dist/fairshare ./cmd/fairshare

test:
	go test ./...

check: ## what CI checks
	bash .ci/run

bench: ## the tables of BENCHMARKS.md
	cd bench && go run ./limiters
