# Chancery. `make help` lists the targets.
#
# The modules stand alone: there is no go.work, because one workspace would merge
# the dependency versions of all of them.

.DEFAULT_GOAL := build
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

# Arguments for the command behind `demo` and `bench`, and for the controller of `compare`: make bench ARGS='--certificates 1000'
ARGS ?=

BIN := $(CURDIR)/bin
CHANCERY := $(BIN)/chancery
STANDALONE := $(BIN)/chancery-standalone
DNS := $(BIN)/chancery-dns
KUBECTL := $(BIN)/kubectl-chancery
VAULT := $(BIN)/vault
TRAEFIK := $(BIN)/traefik
STEP_CA := $(BIN)/step-ca
APPROVER_POLICY := $(BIN)/approver-policy
TRUST_MANAGER := $(BIN)/trust-manager
CMCTL := $(BIN)/cmctl
HELM := $(BIN)/helm
LINTER := $(BIN)/golangci-lint
GOTESTSUM := $(BIN)/gotestsum
GOVULNCHECK := $(BIN)/govulncheck
NFPM := $(BIN)/nfpm
CYCLONEDX := $(BIN)/cyclonedx-gomod
# Where known vulnerabilities are listed; a mirror will do, file:///srv/vulndb too.
VULNDB ?= https://vuln.go.dev

# The one mutation that `make mutations` tries; empty means all.
MUTATION ?=

# The modules beside the root one, as far as they exist. The tests of e2e are slow, and
# run by targets of their own: one for each peer, in the directory of its name.
NESTED := $(patsubst %/go.mod,%,$(wildcard standalone/go.mod dnsproviders/go.mod kubectl/go.mod deploy/images/go.mod))
MODULES := $(NESTED) e2e

# The peers, cheapest first.
PEERS := chart vault stepca ingress

# The parts of nightly: clients that people run beside the controllers, numbers that take long to measure, and a release.
NIGHTLY := approverpolicy trustmanager cmctl numbers hostile release fips platforms takeover mutations-1 mutations-2 mutations-3 mutations-4
# All mutations take about an hour: so they come in quarters.
MUTATIONS := $(filter mutations-%,$(NIGHTLY))
# The parts of test-slow: those of internal/rig/slow, and the race detector.
SLOW := crash faults versions docs numbers takeover installs builds race
CLIENTS := approverpolicy trustmanager cmctl

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
VERSION_PACKAGE := chancery.dev/internal/cli/version

# What make release makes, and what the image of the controller is called; the names of the others begin with that name.
RELEASE_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
IMAGE_REPOSITORY ?= localhost/chancery
RELEASE = VERSION='$(VERSION)' COMMIT='$(COMMIT)' IMAGE_REPOSITORY='$(IMAGE_REPOSITORY)' \
	SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)"

# kube-apiserver must be told its version at link time, or clients refuse it.
KUBE_VERSION := $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' standalone/go.mod)
KUBE_NUMBERS := $(subst ., ,$(KUBE_VERSION:v%=%))
KUBE_PACKAGE := k8s.io/component-base/version
KUBE_LDFLAGS := -X $(KUBE_PACKAGE).gitVersion=$(KUBE_VERSION) \
	-X $(KUBE_PACKAGE).gitMajor=$(word 1,$(KUBE_NUMBERS)) \
	-X $(KUBE_PACKAGE).gitMinor=$(word 2,$(KUBE_NUMBERS))

# The binaries hold no path of the machine that built them, so they are the same wherever they are built. The build cache
# keeps packages with and without paths apart: so this is said for tests, vet and lint, too. Programs that are not
# published are built with $(TOOL).
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath

# An older Go fetches the version that go.mod names, also where its installation is told not to. make GOTOOLCHAIN=local
# leaves it to the Go that is there.
export GOTOOLCHAIN := auto

# Static binaries. Said once for all commands, since the build cache keeps packages
# built with and without cgo apart, and Kubernetes takes minutes to compile.
export CGO_ENABLED := 0

# The version is linked in, so Go need not ask git (and fail in a checkout of another owner).
BUILD := -buildvcs=false
TOOL := $(BUILD) -trimpath=false
LDFLAGS := -s -w -X $(VERSION_PACKAGE).number=$(VERSION) -X $(VERSION_PACKAGE).commit=$(COMMIT)

# The race detector needs a C compiler, and all that is tested compiled once more: so it has targets of its own. Our own
# code runs under it, kube-apiserver never.
CC := $(firstword $(shell go env CC 2>/dev/null) gcc)

# A test that fails is run again, alone, at most twice. More than five failures in a module, a data race, a panic and a
# build that fails are no matter of chance: then nothing is run again.
RERUN := --rerun-fails=2 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race

# $(call TEST,MODULE,PACKAGES,FLAGS) is a command for $(OUTCOME) bash -c '…', and the one way in which tests are run.
# Tests of an API server wait much of their time, for a clock or a server: so many of a package run at once. Two packages
# do; more of them only slow each other down.
# Never answered from the test cache (-count=1): the cache does not see that a binary which
# a test drives has changed, nor what go list says. Without what debuggers read (-w) a binary is linked in three quarters
# of the time; make vet vets.
TEST = (echo "== tests of $1" && mkdir -p $(BIN)/tests/$@/$1 && cd $1 && go list $2 >$(BIN)/tests/$@/$1/packages && $(GOTESTSUM) $(RERUN) --format=pkgname-and-test-fails --format-icons=text \
	--format-hide-empty-pkg --hide-summary=skipped,failed,output --jsonfile=$(BIN)/tests/$@/$1/events.json \
	--packages="$2" -- -count=1 -vet=off -ldflags=-w -p 2 -parallel 8 -timeout 20m $3) </dev/null

# Runs a command with $(TEST), fails where a later run would hide a failure, and says what gotestsum leaves out.
OUTCOME = go run ./internal/rig/outcome $(BIN)/tests/$@

# Where tests note what they spend time on beside their own work, for $(OUTCOME).
export CHANCERY_TEST_TIMES := $(BIN)/test-times

# Tests drive the built binaries.
export CHANCERY_BIN := $(CHANCERY)
export CHANCERY_STANDALONE_BIN := $(STANDALONE)
export CHANCERY_DNS_BIN := $(DNS)
export CHANCERY_KUBECTL_BIN := $(KUBECTL)
export CHANCERY_VAULT_BIN := $(VAULT)
export CHANCERY_TRAEFIK_BIN := $(TRAEFIK)
export CHANCERY_STEP_CA_BIN := $(STEP_CA)
export CHANCERY_APPROVER_POLICY_BIN := $(APPROVER_POLICY)
export CHANCERY_TRUST_MANAGER_BIN := $(TRUST_MANAGER)
export CHANCERY_CMCTL_BIN := $(CMCTL)
export CHANCERY_HELM_BIN := $(HELM)
export CHANCERY_GOTESTSUM_BIN := $(GOTESTSUM)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: need
need:
	@command -v go >/dev/null || { echo 'make: Go 1.21 or newer is needed, and no "go" is on the PATH: see https://go.dev/doc/install' >&2; exit 1; }
	@command -v git >/dev/null || echo 'make: no "git" on the PATH: binaries will call their version "unknown"' >&2

.PHONY: build
build: build-chancery build-standalone build-dns build-kubectl ## Build the binaries into bin/ and print their sizes
	@cd $(BIN) && for b in chancery chancery-standalone chancery-dns kubectl-chancery; do \
		if [ -f $$b ]; then awk -v s="$$(wc -c <$$b)" -v b=$$b 'BEGIN { printf "bin/%-20s %6.1f MB\n", b, s / 1e6 }'; fi; \
	done

# go build is incremental by itself; these targets always ask it.
.PHONY: build-chancery build-standalone build-dns build-kubectl
build-chancery: need
	@go build $(BUILD) -ldflags '$(LDFLAGS)' -o $(CHANCERY) ./cmd/chancery

build-standalone: need
	@[ -f $(STANDALONE) ] || echo 'Building chancery-standalone: the first time compiles Kubernetes, about 6 minutes on two cores.'
	@cd standalone && go build $(BUILD) -ldflags '$(LDFLAGS) $(KUBE_LDFLAGS)' -o $(STANDALONE) ./cmd/chancery-standalone

build-dns: need
	@cd dnsproviders && go build $(BUILD) -ldflags '$(LDFLAGS)' -o $(DNS) ./cmd/chancery-dns

build-kubectl: need
	@cd kubectl && go build $(BUILD) -ldflags '$(LDFLAGS)' -o $(KUBECTL) ./cmd/kubectl-chancery

.PHONY: demo
demo: build-chancery build-standalone ## Issue real certificates on a control plane of its own, live (ARGS='…')
	@$(STANDALONE) demo $(ARGS)

.PHONY: demo-picture
demo-picture: build-chancery build-standalone ## Record the output of the demo, and draw docs/demo.svg
	$(STANDALONE) demo >standalone/demo/testdata/demo.txt
	go test -C standalone -count=1 -run '^TestPicture$$' ./demo -update

.PHONY: dashboard-pictures
dashboard-pictures: need ## Draw the pictures of docs/dashboard.md in Chromium
	go test -count=1 -run '^TestPictures$$' ./internal/dashboard -update

.PHONY: record-refusals
record-refusals: build-chancery build-standalone ## Record how the API server refuses writes; that of CHANCERY_TEST_KUBECONFIG, if it is set
	.ci/with-control-plane go test -C kubectl -count=1 -v -run '^TestRefusals$$' ./internal/broken -record

.PHONY: bench
bench: build-chancery build-standalone ## Measure requests, latency and CPU per certificate (ARGS='…')
	@$(STANDALONE) bench $(ARGS)

# The packages of a module whose tests take the longest begin first: one that begins last is waited for alone.
FIRST := declare -A first=([.]="./internal/stories ./internal/app ./internal/install ./internal/controller/..." [kubectl]="./internal/takeover ./internal/move")

.PHONY: test
test: build $(GOTESTSUM) ## Run the tests of all modules that every change needs, beside one API server
	@echo 'make test: what takes longer is left to make test-slow, test by test below (SKIP); real peers to make e2e'
	@$(OUTCOME) .ci/with-control-plane bash -c 'code=0; $(FIRST); for m in . $(NESTED); do $(call TEST,$$m,$${first[$$m]:-} ./...) || code=1; done; exit $$code'

.PHONY: test-slow
test-slow: ## Run what make test leaves out (one part: test-slow-crash, -faults, -versions, -docs, -numbers, -takeover, -installs, -builds, -race)
	@for p in $(SLOW); do $(MAKE) --no-print-directory test-slow-$$p || exit 1; done

# $(call PART_TEST,PART,FLAGS) runs the tests of a part, as $(TEST) does.
PART_TEST = bash -c 'code=0; tests=$$(go run ./internal/rig/parts $1) || exit 1; while read -r module run packages; do \
	$(call TEST,$$module,$$packages,$2 -run "$$run") || code=1; done <<<"$$tests"; exit $$code'

.PHONY: $(SLOW:%=test-slow-%) test-race
$(filter-out test-slow-race,$(SLOW:%=test-slow-%)): test-slow-%: build $(GOTESTSUM)
	@CHANCERY_TEST_SLOW=$* $(OUTCOME) .ci/with-control-plane $(call PART_TEST,$*)

test-slow-race: build need-cc $(GOTESTSUM)
	@$(OUTCOME) env CGO_ENABLED=1 .ci/with-control-plane $(call PART_TEST,race,-race)

test-race: need need-cc $(GOTESTSUM) ## Run the tests of code that runs side by side under the race detector, without an API server
	@$(OUTCOME) env CGO_ENABLED=1 $(call PART_TEST,race-short,-race -short)

.PHONY: need-cc
need-cc:
	@command -v $(CC) >/dev/null || { echo 'make: the race detector needs a C compiler, and no "$(CC)" is on the PATH: install gcc' >&2; exit 1; }

.PHONY: quick
quick: need ## Run the tests of packages that know no API server, in a minute
	@read -r _ _ packages <<<"$$(go run ./internal/rig/parts quick)" && go test -short -count=1 -vet=off -ldflags=-w $$packages
	@echo 'make quick: NOT TESTED: what is linked with a client of the API server (engine, controllers, signers, stories, commands), and the modules $(NESTED)'

# How long all fuzz targets together look for inputs, in seconds. Compiling comes on top: with counters, all that is
# tested is compiled once more.
SECONDS := 60

.PHONY: fuzz
fuzz: need ## Look for inputs that break a property of a parser, SECONDS=60 for all fuzz targets together
	go run ./internal/rig/fuzz -seconds $(SECONDS)

# How long failures go on, and the commit whose controller runs beside that of this one.
MINUTES := 3
OTHER := HEAD~1

.PHONY: chaos
chaos: build-chancery build-standalone ## Have what Chancery works with killed, stopped and silent, MINUTES=3, beside a controller of the commit OTHER=HEAD~1
	@source=$$(mktemp -d); trap 'rm -rf "$$source"' EXIT; git archive '$(OTHER)' | tar -x -C "$$source"; \
		go build -C "$$source" $(BUILD) -o $(BIN)/chancery-other ./cmd/chancery
	CHANCERY_CHAOS_MINUTES='$(MINUTES)' CHANCERY_CHAOS_OTHER_BIN=$(BIN)/chancery-other \
		go test -C standalone -count=1 -vet=off -ldflags=-w -v -timeout 0 -run '^TestChaos$$' ./chaos

# The controller to compare with, and how many objects both get; another SEED takes others.
CONTROLLER ?=
CERTIFICATES := 300
INGRESSES := 200
SEED := 1

.PHONY: compare
compare: build-chancery build-standalone ## Give the same objects to CONTROLLER=PATH, cert-manager's or another build, and to ours, and compare what they make (ARGS='…' are the other one's)
	@[ -n '$(CONTROLLER)' ] || { echo 'make compare: say which controller to compare with: make compare CONTROLLER=/path/to/its/program' >&2; exit 1; }
	@go run -C standalone $(BUILD) ./compare -controller '$(abspath $(CONTROLLER))' \
		-certificates $(CERTIFICATES) -ingresses $(INGRESSES) -seed $(SEED) -- $(ARGS)

# How long churn and rest take turns, and the file for the picture; none if that is empty.
soak: MINUTES := 5
SVG :=

.PHONY: soak
soak: build-chancery build-standalone ## Show that memory, goroutines, descriptors, watches and requests do not grow, MINUTES=5 (SVG=docs/soak.svg)
	CHANCERY_SOAK_MINUTES='$(MINUTES)' CHANCERY_SOAK_SVG='$(abspath $(SVG))' \
		go test -C standalone -count=1 -vet=off -ldflags=-w -v -timeout 0 -run '^TestSoak$$' ./chaos

.PHONY: mutations
mutations: build-chancery build-standalone ## Show that tests find each wrong change of internal/rig/mutation (MUTATION=name)
	.ci/with-control-plane go run ./internal/rig/mutation/mutate -only '$(MUTATION)'

.PHONY: e2e
e2e: ## Run the tests against real peers (one of them: e2e-chart, e2e-vault, e2e-stepca, e2e-ingress)
	@for p in $(PEERS); do $(MAKE) --no-print-directory e2e-$$p || exit 1; done

.PHONY: $(PEERS:%=e2e-%)
$(PEERS:%=e2e-%): e2e-%: build-chancery build-standalone peer-% $(GOTESTSUM)
	@$(OUTCOME) .ci/with-control-plane bash -c '$(call TEST,e2e,./$*)'

.PHONY: nightly
nightly: ## Run what takes too long for every run (one part: nightly-approverpolicy, -trustmanager, -cmctl, -numbers, -hostile, -release, -fips, -platforms, -takeover, -mutations-1 to -4)
	@for p in $(NIGHTLY); do $(MAKE) --no-print-directory nightly-$$p || exit 1; done

.PHONY: $(NIGHTLY:%=nightly-%)
$(CLIENTS:%=nightly-%): nightly-%: build-chancery build-standalone peer-% $(GOTESTSUM)
	@$(OUTCOME) .ci/with-control-plane bash -c '$(call TEST,e2e,./$*)'

# Performance is measured, not asserted: this part fails only if the controller does not do the work.
nightly-numbers: build-chancery build-standalone $(GOTESTSUM)
	$(STANDALONE) bench --scenario ca,acme-dns01 --certificates 1000
	$(STANDALONE) bench --scenario rest --at-rest 30000
	@CHANCERY_NIGHTLY=1 CHANCERY_TEST_SLOW=docs $(OUTCOME) bash -c '$(call TEST,.,./internal/dashboard,-run "TestInABrowser|TestAxe")'

# This one has bars, and fails above one.
nightly-hostile: build-chancery build-standalone
	$(STANDALONE) bench --scenario hostile

# What we use of cryptography is in FIPS 140-3: the tests pass where nothing else may be used.
nightly-fips: need $(GOTESTSUM)
	@GODEBUG=fips140=on $(OUTCOME) bash -c '$(call TEST,.,./internal/pki ./internal/acme/... ./internal/kube/servingcert ./internal/machine/certificate ./internal/machine/facts,-short)'

# The platform of this machine alone: nightly-platforms is for the others, which take minutes to compile.
nightly-release: peer-release
	$(RELEASE) RELEASE_PLATFORMS="linux/$$(go env GOARCH)" deploy/release
	$(RELEASE) deploy/check-release

# make test takes 40 Certificates over, make test-slow-takeover 300.
nightly-takeover: build-chancery build-standalone $(GOTESTSUM)
	@CHANCERY_TAKEOVER_CERTIFICATES=3000 $(OUTCOME) .ci/with-control-plane bash -c '$(call TEST,kubectl,./internal/takeover,-run TestTakeover)'

$(MUTATIONS:%=nightly-%): nightly-mutations-%: build-chancery build-standalone
	.ci/with-control-plane go run ./internal/rig/mutation/mutate -quarter $*

nightly-platforms: peer-platforms
	$(RELEASE) RELEASE_PLATFORMS='linux/arm64 darwin/arm64' deploy/release
	cd dist && sha256sum --quiet -c SHA256SUMS

.PHONY: release
release: need peer-release ## Make binaries, images, packages, SBOMs and checksums in dist/ (see docs/release.md)
	$(RELEASE) RELEASE_PLATFORMS='$(RELEASE_PLATFORMS)' deploy/release

# The peers are servers built from their Go modules. Each has a mod file of its own, as
# the linter does, so that their versions do not merge; they are built where they are
# missing, one after the other.
.PHONY: peers $(PEERS:%=peer-%) $(NIGHTLY:%=peer-%)
peers: $(PEERS:%=peer-%) $(NIGHTLY:%=peer-%) ## Build the programs that the tests of e2e and nightly run
peer-chart: $(HELM)
e2e-chart: build-dns
peer-vault: $(VAULT)
peer-stepca: $(STEP_CA)
peer-ingress: $(TRAEFIK) $(HELM)
peer-approverpolicy: $(APPROVER_POLICY)
peer-trustmanager: $(TRUST_MANAGER)
peer-cmctl: $(CMCTL)
peer-numbers:
peer-hostile:
peer-fips:
peer-takeover:
$(MUTATIONS:%=peer-%):
peer-release peer-platforms: $(NFPM) $(CYCLONEDX)

PEER := cd e2e/peers && go build $(TOOL) -p 2 -ldflags '-s -w'

# Of its plugins, Vault is given the one that is needed: with all of them it would take
# half as long again to build. It finds those in the directory beside it.
$(VAULT): e2e/peers/vault.mod e2e/peers/vault.sum | need
	@echo 'Building Vault: two minutes or so on two cores, the first time.'
	$(PEER) -modfile vault.mod -o $@-plugins/ github.com/hashicorp/vault-plugin-auth-kubernetes/cmd/vault-plugin-auth-kubernetes
	$(PEER) -modfile vault.mod -tags minimal -o $@ github.com/hashicorp/vault

$(STEP_CA): e2e/peers/step-ca.mod e2e/peers/step-ca.sum | need
	@echo 'Building step-ca: about 4 minutes on two cores, the first time.'
	$(PEER) -modfile step-ca.mod -o $@ github.com/smallstep/certificates/cmd/step-ca

$(APPROVER_POLICY): e2e/peers/approver-policy.mod e2e/peers/approver-policy.sum | need
	@echo 'Building approver-policy: about 3 minutes on two cores, the first time.'
	$(PEER) -modfile approver-policy.mod -o $@ github.com/cert-manager/approver-policy/cmd

$(TRUST_MANAGER): e2e/peers/trust-manager.mod e2e/peers/trust-manager.sum | need
	@echo 'Building trust-manager: about 2 minutes on two cores, the first time.'
	$(PEER) -modfile trust-manager.mod -o $@ github.com/cert-manager/trust-manager/cmd/trust-manager

$(CMCTL): e2e/peers/cmctl.mod e2e/peers/cmctl.sum | need
	@echo 'Building cmctl: about 3 minutes on two cores, the first time.'
	$(PEER) -modfile cmctl.mod -o $@ github.com/cert-manager/cmctl/v2

# The version of Kubernetes is that for which charts are rendered where no cluster is asked.
$(HELM): e2e/peers/helm.mod e2e/peers/helm.sum | need
	@echo 'Building helm: about 3 minutes on two cores, the first time.'
	cd e2e/peers && go build $(TOOL) -p 2 -ldflags '-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37' -modfile helm.mod -o $@ helm.sh/helm/v3/cmd/helm

# Traefik embeds a web interface that its module does not contain: it is built in a copy,
# with its own go.mod, beside an empty one.
TRAEFIK_VERSION := v3.6.0

$(TRAEFIK): e2e/peers/traefik.sh | need
	@echo 'Building Traefik: about 6 minutes on two cores, the first time.'
	e2e/peers/traefik.sh $(TRAEFIK_VERSION) $@

.PHONY: modules
modules: need ## Download the modules that everything is built from
	go mod download
	@for m in $(MODULES); do (cd $$m && go mod download) || exit 1; done

.PHONY: tools
tools: $(LINTER) $(GOTESTSUM) ## Build the linter, what runs tests, and the generator
	go tool -modfile=tools/go.mod controller-gen --version

.PHONY: generate
generate: need ## Generate CRDs, deep copies, RBAC, docs/reference and the catalog of DNS providers
	go generate ./...
	@for m in $(NESTED); do go generate -C $$m ./... || exit 1; done

.PHONY: fmt
fmt: $(LINTER) ## Format all Go code
	$(LINTER) fmt ./...

.PHONY: vet
vet: need
	go vet ./...
	@for m in $(MODULES); do (cd $$m && go vet ./...) || exit 1; done

.PHONY: lint
lint: $(LINTER) ## Hold the code to the style bar
	.ci/lint $(LINTER) . $(MODULES)

# Its dependencies are its own business: a mod file of its own keeps them from tools/go.mod.
$(LINTER): tools/golangci-lint.mod tools/golangci-lint.sum | need
	@echo 'Building golangci-lint: two minutes or so, the first time.'
	cd tools && go build $(TOOL) -modfile golangci-lint.mod -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOTESTSUM): tools/gotestsum.mod tools/gotestsum.sum | need
	cd tools && go build $(TOOL) -modfile gotestsum.mod -o $@ gotest.tools/gotestsum

# No step of check: what is found changes with the database, whatever the code is. In the root module only
# vulnerabilities count whose code is called; in the nested ones, which hold Kubernetes and lego, those of each package.
.PHONY: vuln
vuln: $(GOVULNCHECK) ## Look for known vulnerabilities in what is built (VULNDB=URL of a mirror of the database)
	@found=0; for m in . $(NESTED); do \
		echo "govulncheck: $$m"; status=0; scan=package; [ $$m != . ] || scan=symbol; \
		$(GOVULNCHECK) -C $$m -db $(VULNDB) -scan $$scan ./... || status=$$?; \
		case $$status in \
		0) ;; \
		3) found=1; echo "make vuln: $$m has known vulnerabilities: see above" >&2 ;; \
		*) echo 'make vuln: NOT CHECKED. The reason is above; if the database $(VULNDB) cannot be reached, run this where it can, or name a mirror by VULNDB' >&2; exit 1 ;; \
		esac; \
	done; exit $$found

$(GOVULNCHECK): tools/govulncheck.mod tools/govulncheck.sum | need
	cd tools && go build $(TOOL) -modfile govulncheck.mod -o $@ golang.org/x/vuln/cmd/govulncheck

$(NFPM): tools/nfpm.mod tools/nfpm.sum | need
	cd tools && go build $(TOOL) -modfile nfpm.mod -o $@ github.com/goreleaser/nfpm/v2/cmd/nfpm

$(CYCLONEDX): tools/cyclonedx-gomod.mod tools/cyclonedx-gomod.sum | need
	cd tools && go build $(TOOL) -modfile cyclonedx-gomod.mod -o $@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

# One after the other, whatever -j says: each step works on what the last one left.
.PHONY: checks
checks: ## Do what check does, but for the tests
	@for step in subjects generate fmt vet lint dirty; do echo "make $$step"; $(MAKE) --no-print-directory $$step || exit 1; done

.PHONY: check
check: ## Generate, format, vet, lint and test, and fail if that changed anything
	@for step in generate fmt vet lint test dirty; do $(MAKE) --no-print-directory $$step || exit 1; done

.PHONY: subjects
subjects: ## Fail if the subject of a commit has more than 72 characters
	@first=07855fb; git rev-parse --quiet --verify $$first^{commit} >/dev/null || exit 0; \
	long=$$(git log --format=%s $$first..HEAD | awk 'length > 72'); \
	[ -z "$$long" ] || { printf 'make: subjects of more than 72 characters:\n%s\n' "$$long" >&2; exit 1; }

.PHONY: dirty
dirty:
	@changed=$$(git status --porcelain --untracked-files=all); \
	if [ -n "$$changed" ]; then \
		git --no-pager diff; git status --short; \
		echo 'make: the tree is not clean: commit what is listed above, or revert it' >&2; exit 1; \
	fi

# The parts of the gate. The tree is clean before, and again after the tests have run.
GATE := dirty build checks test test-race dirty

# A program that is missing fails the tests that need it (CI=true), which are skipped elsewhere. The list of trees that
# have passed is one for all worktrees of a clone. The last lines name the tests that passed only when they ran again.
# A recipe that names $(MAKE) runs under make -n, too, where no part does anything.
.PHONY: gate
gate: export CI := true
gate: need ## Decide whether a commit may land: build, checks, make test and the race detector
	@case "$${MAKEFLAGS%% *}" in *n*) exit ;; *[iqt]*) echo 'GATE: not run: make was told to pass over failures' >&2; exit 1 ;; esac; \
	tree=$$(git rev-parse 'HEAD^{tree}'); \
	rm -rf $(BIN)/tests; flaky() { cat $(BIN)/tests/*/flaky 2>/dev/null || true; }; \
	for part in $(GATE); do \
		printf '\n== make %s (minute %d)\n' $$part $$((SECONDS / 60)); \
		$(MAKE) --no-print-directory $$part || { flaky; echo "GATE: FAILED in make $$part, minute $$((SECONDS / 60))"; exit 1; }; \
	done; \
	[ "$$(git rev-parse 'HEAD^{tree}')" = "$$tree" ] || { echo 'GATE: FAILED: another commit was checked out meanwhile'; exit 1; }; \
	flaky; echo "$$tree" >>"$$(git rev-parse --git-common-dir)/gate-passed"; \
	echo "GATE: passed on the tree $$tree, minute $$((SECONDS / 60))"

# What the gate leaves out.
OTHERS := $(PEERS:%=e2e-%) $(SLOW:%=test-slow-%) $(NIGHTLY:%=nightly-%) fuzz chaos soak

.PHONY: others
others:
	@echo $(OTHERS)

# The commit, or the branch that was left, since which make due looks at changes.
SINCE := main

.PHONY: due
due: ## Say which parts beside the gate a change asks for (SINCE=main)
	@.ci/due '$(SINCE)'

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN) dist
