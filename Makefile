# Targets that people and scripts rely on; `make help` lists them.
SHELL := /bin/bash
GO    ?= go
export CGO_ENABLED := 0

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

.PHONY: build
build: ## Compile the workstation command to bin/
	@mkdir -p bin
	$(GO) build -trimpath -buildvcs=$$(git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false) -o bin/ ./cmd/firstlight

.PHONY: check
check: ## Before each commit: format, vet, fast tests, fuzz seeds, the rules of the tree; no root, QEMU or network
	@test -z "$$(gofmt -l cmd image daemon pxe assets)" || { gofmt -l cmd image daemon pxe assets; exit 1; }
	$(GO) vet ./...
	FIRSTLIGHT_TEST= $(GO) test -short ./...

.PHONY: test
test: deps build ## All that CI runs: installs what it needs, builds the image, tests it (needs root for namespaces)
	$(MAKE) check
	bin/firstlight build
	bin/firstlight verify build/firstlight.img
	FIRSTLIGHT_TEST=ns,native,qemu,store,rack $(GO) test -count=1 -p 2 -timeout 60m ./...
	FIRSTLIGHT_TEST=chain $(GO) test -count=1 -timeout 2h -v -run TestOneServerBecomesACluster ./image/lab/virtualrack

.PHONY: mutants
mutants: ## Put faults in by hand, one at a time: a test must notice each (needs root and a built image; an hour)
	FIRSTLIGHT_TEST=mutants $(GO) test -count=1 -timeout 4h -v -run TestNoMutantSurvives ./assets/mutants

E2E := racks situations clusters drills hostile launches moves machines nodes boots desks loads earlier builds uploads mutants
.PHONY: e2e e2e-ready $(E2E:%=e2e-%)
e2e: ## What `make test` leaves out: rarer boots, servers and their faults, two equal builds (root; hours, fewer with -j2 and more than two processors); goes on where it was
	@$(MAKE) -k --no-print-directory $(E2E:%=e2e-%)

$(E2E:%=e2e-%): e2e-%: e2e-ready
	@scripts/e2e $*

e2e-ready: deps build
	@scripts/deps e2e
	@bin/firstlight build

.PHONY: usb-image
usb-image: ## Build build/firstlight.img; SITE=site.yaml OUT=file.img MIRROR=url as wanted
	@scripts/deps build
	@$(MAKE) --no-print-directory build
	@bin/firstlight build $(if $(SITE),--site '$(SITE)') $(if $(OUT),--out '$(OUT)') $(if $(MIRROR),--mirror '$(MIRROR)')

.PHONY: release
release: ## Package image and command of a clean tree for others, in build/release/VERSION; SIGN='minisign -Sm' signs SHA256SUMS
	@test -z "$$(git status --porcelain)" || { echo "release: files differ from the commit:" >&2; git status --short >&2; exit 1; }
	@scripts/deps build
	@$(MAKE) --no-print-directory build
	@bin/firstlight build --locked
	@bin/firstlight verify build/firstlight.img
	@bin/firstlight release $(if $(SIGN),--sign '$(SIGN)')

.PHONY: demo
demo: ## A rack in QEMU, without root: two blank nodes where they suit this machine (N=2: in any case), proven, a cluster of them; DISCOVER=1: three that no file names; interrupted, it continues
	@scripts/deps build lab
	@$(MAKE) --no-print-directory build
	@bin/firstlight build
	@bin/firstlight lab up --fit $(if $(N),--nodes $(N)) $(if $(DISCOVER),--discover) --wait

.PHONY: demo-down
demo-down: ## End the rack of make demo and remove what it left
	@$(MAKE) --no-print-directory build
	@bin/firstlight lab down --remove

# Benchmarks of packages by a pattern of their names; each runs once.
BENCH = $(GO) test -run '^$$' -timeout 0 -bench

.PHONY: bench-pxe
bench-pxe: ## Measure DHCP, TFTP and HTTP beside other servers (needs root; minutes)
	@scripts/deps test bench
	$(BENCH) . ./pxe/bench

.PHONY: bench-kube
bench-kube: ## Measure the bring-up of Kubernetes natively, its memory, and a first boot in QEMU (needs root and a built image; minutes)
	$(BENCH) 'BringUp|Boot' ./image/lab/testbed/sandbox/bench

.PHONY: bench-image
bench-image: ## Measure rebuilds, sizes and a boot (needs a built image; minutes; COLD=1: also a build from nothing)
	@scripts/deps build test
	$(BENCH) 'Rebuild|Size|Boot$(if $(COLD),|Cold)' ./image/bench

.PHONY: bench-metal
bench-metal: ## Measure 10, 50 and 200 fake hosts provisioned by Ironic and Metal3 (root and a built image; half an hour; BIG=1: 1,000 inspected)
	$(BENCH) 'Disk|$(if $(BIG),Register,Provision)' ./image/lab/testbed/scenario/bench

.PHONY: bench-idle
bench-idle: ## Measure what an appliance that waits takes of the processor, by process (needs root and a built image; minutes)
	$(BENCH) Idle ./image/lab/testbed/scenario/bench

.PHONY: bench-rack
bench-rack: ## Measure racks of one, two and three nodes from power on to proven nodes (needs a built image; an hour)
	@scripts/deps lab
	@$(MAKE) --no-print-directory build
	$(BENCH) . ./image/lab/virtualrack/bench

.PHONY: bench-bpa
bench-bpa: ## Measure the operator of clusters: matching, and its memory with 1,000 hosts and 100 clusters (minutes)
	$(BENCH) . ./daemon/clusters/bpa/bench
	$(BENCH) Operator ./image/lab/testbed/sandbox/bench

.PHONY: bench-kpa
bench-kpa: ## Measure 20 Components on 10 API servers beside helm install in a loop, and the operator that waits (4 GiB of memory; an hour)
	$(BENCH) . ./daemon/clusters/kpa/bench

.PHONY: bench-artifact
bench-artifact: ## Measure uploads and downloads beside an S3 server and nginx, and memory (10 GiB of disk; minutes)
	@scripts/deps test bench
	$(BENCH) . ./daemon/uploads/bench

.PHONY: bench-clusters
bench-clusters: ## Measure clusters of 1, 2 and 3 nodes by SSH and by Cluster API beside kubeadm by hand, natively (needs root and a built image; an hour)
	$(BENCH) Hundred ./daemon/clusters/metal3provider/choice
	$(BENCH) . ./image/lab/testbed/sandbox/nodes/bench

.PHONY: bench-page
bench-page: ## Measure the server time of the page for 1, 10 and 200 nodes, and what a tab that is open takes of the processor (minutes)
	$(BENCH) . ./daemon/page

.PHONY: bench-site
bench-site: ## Measure the check of site documents of 300 and 3,000 nodes (seconds)
	$(BENCH) Accept ./assets/site

.PHONY: bench
bench: bench-page bench-site bench-pxe bench-kube bench-idle bench-metal bench-bpa bench-kpa bench-clusters bench-artifact bench-image bench-rack ## All measurements; rows to the screen and to build/bench

.PHONY: deps
deps: ## Install the Debian packages that building and testing need
	scripts/deps build test

.PHONY: clean
clean: ## Remove bin/ and build/ (the cache stays); not under a rack that is on
	@for rack in build/*/running.json; do \
		[ ! -e "$$rack" ] || { dir=$${rack%/*}; what=lab; [ ! -e $$dir/try.json ] || what=try; \
			echo "clean: the rack in $$dir is not down; end it first: bin/firstlight $$what --dir $$dir down --remove" >&2; exit 1; }; \
	done
	rm -rf bin build
