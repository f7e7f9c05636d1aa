# sbench: build, demo, tests. `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# The targets of demo and test follow on each other, and two cores are few.
.NOTPARALLEL:

# A login shell on Debian has no Go in its PATH, and a plain user's no sbin.
export PATH := $(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin
export CGO_ENABLED := 0

# Lazy: what no target asks for is not run.
VERSION ?= $(shell scripts/version.sh)
LINT = go tool -modfile=scripts/tools/go.mod
SCRIPTS = scripts/*.sh scripts/hosts/*.sh candidate/trustedgit/*.sh .ci/run

# What an ordinary user's kernel may not limit where nothing is delegated; see
# docs/install.md.
DEGRADED = $(shell [ "$$(id -u)" = 0 ] || echo --allow-degraded memory,pids,cpu)

say = @echo "==> $(1)"

## build: compile bin/sbench and its shim
.PHONY: build
build:
	$(call say,build: compiling bin/sbench $(VERSION))
	@go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/...

## install: install bin/sbench, its shim, man page, completion and docs below PREFIX (/usr/local)
.PHONY: install
install:
	@[ -x bin/sbench ] && [ -x bin/containerd-shim-sbench-v1 ] || $(MAKE) build
	$(call say,install: into $(DESTDIR)$(PREFIX))
	@scripts/install.sh "$(DESTDIR)$(PREFIX)" bin/sbench

## uninstall: remove what make install has installed
.PHONY: uninstall
uninstall:
	$(call say,uninstall: from $(DESTDIR)$(PREFIX))
	@scripts/install.sh --remove "$(DESTDIR)$(PREFIX)"

PREFIX ?= /usr/local

## dist: make dist/: tarballs, deb, rpm, checksums (SIGN_KEY=... signs them) and a list of modules
.PHONY: dist
dist:
	$(call say,dist: $(VERSION))
	@VERSION="$(VERSION)" scripts/dist.sh

## demo: from a bare machine to two verdict tables: set-up, build, image, two runs
.PHONY: demo
demo: setup image
	$(call say,demo: running the pack terminal-task-smoke (tasks of it fail on purpose))
	@bin/sbench $(DEGRADED) run --config benchmarks/terminal-task-smoke/tester-command.yaml \
		--output-dir "runs/demo-$$(date +%Y%m%d-%H%M%S)"
	$(call say,demo: and functions of the form of HumanEval (one is wrong on purpose))
	@bin/sbench $(DEGRADED) run --config benchmarks/humaneval-mini/tester-command.yaml \
		--output-dir "runs/demo-humaneval-$$(date +%Y%m%d-%H%M%S)"

## test: from a bare machine: what must never break, with real sandboxes as root and as a user (10 minutes)
.PHONY: test
test:
	@scripts/test.sh test

# CONTRIBUTING.md has a table with the minutes.
## test-rootless: all suites with sandboxes as an ordinary user without control groups
## test-verdicts: all forged and honest candidates, HumanEval, machine tasks
## test-runtimes: sandboxes on the newest containerd and runc, on crun, and on gVisor
## test-agents: the command-line programs of agents, downloaded
## test-page: the report's page in Chromium
## test-clusters: job slurm on a real Slurm
## test-hosts: an emulated Debian 13, as root and as a user
OTHERS = test-rootless test-verdicts test-runtimes test-agents test-page test-clusters test-hosts
.PHONY: $(OTHERS)
$(OTHERS): test-%:
	@scripts/test.sh $*

## test-all: all of these but test, one after the other (LESS=... leaves some out)
.PHONY: test-all
test-all:
	@scripts/test.sh $(patsubst test-%,%,$(filter-out $(LESS:%=test-%),$(OTHERS)))

## check: gofmt, vet, staticcheck, errcheck, doc comments, tidy, shellcheck, release files, race detector
.PHONY: check
check:
	@scripts/setup.sh check
	$(call say,check: gofmt)
	@unformatted="$$(gofmt -l .)"; \
	[ -z "$$unformatted" ] || { echo "not formatted with gofmt:"; echo "$$unformatted"; exit 1; }
	$(call say,check: go vet)
	@go vet ./... && go vet -tags kubernetes ./cmd/sbench
	$(call say,check: staticcheck)
	@$(LINT) staticcheck -checks all ./...
	$(call say,check: errcheck)
	@$(LINT) errcheck ./...
	$(call say,check: doc comments)
	@$(LINT) revive -config scripts/tools/revive.toml ./...
	$(call say,check: go mod tidy)
	@go mod tidy -diff
	$(call say,check: shellcheck)
	@shellcheck -x $(SCRIPTS)
	$(call say,check: the release files of this machine's architecture)
	@scripts/test-dist.sh --short
	$(call say,check: go test -race -short)
	@CGO_ENABLED=1 go test -count=1 -p 1 -race -short -timeout 15m ./...

## golden: write golden files, schemas and the tables of keys anew, for git diff to show
.PHONY: golden
golden:
	@go test ./compiler ./compiler/testerfile ./oci ./pack -run '^(TestCases|TestSchemaFiles|TestTesterKeys|TestGolden)$$' -update

## bench: benchmarks, next to runc and, where a daemon answers, Docker
.PHONY: bench
bench: setup build
	@scripts/docker-image.sh "$$(scripts/base-image.sh)"
	$(call say,bench: go test -bench)
	@mkdir -p runs; SBENCH_TEST_MEMORY=1 scripts/without-hybrid.sh scripts/go-test.sh -p 1 -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 60m $(BENCH) | tee runs/bench.txt
	@scripts/bench-table.sh runs/bench.txt docs/design/performance.md
	$(call say,bench: a sandbox as an ordinary user)
	@[ "$$(id -u)" != 0 ] || BENCH='Life/^sbench$$/^parallel=1$$' scripts/test-rootless.sh runtime/sandbox

# Lives of sandboxes take tens of milliseconds: a fixed count gives quantiles.
BENCHTIME ?= 200x
BENCH ?= ./...

## soak: the long forms of the tests
.PHONY: soak
soak: setup build
	$(call say,soak: the long tests (an hour and more))
	@SBENCH_SOAK=1 scripts/go-test.sh -p 1 -timeout 60m -run 'Soak|Upload|PeakMemory|Attacks|Honest|Forged|HumanEval|Commands|HostMemory|Linear' ./...

## hosts: everything on emulated Debian 12, 13 and sid, as root and as a user
.PHONY: hosts
hosts:
	@scripts/setup.sh hosts
	$(call say,hosts: three emulated machines (an hour or two))
	@scripts/hosts/run.sh

## kubernetes: job kubernetes on a real API server, and sbench's container image in both modes
.PHONY: kubernetes
kubernetes: setup build
	$(call say,kubernetes: compiling an API server (once, many minutes), and making sbench's image)
	@archive="$$(mktemp -d)"; trap 'rm -r "$$archive"' EXIT; \
	scripts/container-image.sh bin/sbench test "$$archive/sbench.oci.tar"; programs="$$(scripts/kubernetes.sh)"; \
	SBENCH_TEST_KUBERNETES="$$programs" SBENCH_TEST_CONTAINER="$$archive/sbench.oci.tar" \
	scripts/go-test.sh -tags kubernetes -timeout 30m -run '^TestKubernetes$$' ./cmd/sbench

## test-dist: make the release files of both architectures twice, and compare them
.PHONY: test-dist
test-dist:
	@scripts/setup.sh check
	$(call say,test-dist: some minutes)
	@scripts/test-dist.sh

## image: build the images of the example packs and import them
.PHONY: image
image:
	$(call say,image: building the base image while bin/sbench compiles)
	@scripts/base-image.sh >/dev/null & $(MAKE) build || { kill $$!; exit 1; }; wait $$!
	@bin/sbench image import "$$(scripts/base-image.sh)"
	@for pack in repo-patch-smoke terminal-bench-first10 swe-bench-verified-codex-smoke; do \
		bin/sbench $(DEGRADED) image build --pack "benchmarks/$$pack" 2>/dev/null || exit; done

## clean: remove bin/, dist/, the image archives and the emulated machines that make built
.PHONY: clean
clean:
	@. scripts/debian.sh; cache="$$(cache_dir)"; \
	echo "==> clean: removing bin/, dist/ and what is built in $$cache"; \
	rm -rf bin dist "$$cache/hosts"; rm -f -- "$$cache"/images/base-bookworm-*.oci.tar

## help: list the targets
.PHONY: help
help:
	@echo "sbench: make targets"
	@sed -n 's/^## \([a-z-]*\): /  make \1 \t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

.PHONY: setup
setup:
	@scripts/setup.sh
