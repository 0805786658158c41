# ramport: `make run` serves a RAM disk and measures it; `make cluster` shows a cluster that loses nodes; `make test` runs all checks;
# `make test-adapters` repeats the RDMA suites with adapters; `make test-long` runs the long variants.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
BINARY = target/release/ramport
STATIC_PROFILE ?= release

.PHONY: run cluster build test test-adapters test-long install uninstall deb tarball oci clean

# A RAM disk on loopback: checked, measured, then served until Ctrl-C.
run: build
	$(BINARY) demo

# Three daemons on loopback addresses with a volume of two copies: nodes are killed in turn, and what was written is verified.
cluster: build
	scripts/cluster.sh $(BINARY)

build:
	@scripts/deps.sh build
	$(CARGO) build --release --package ramport
	scripts/stage.sh $(BINARY) target/dist

test: build
	@scripts/deps.sh test
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	PROPTEST_RNG_SEED=1 $(CARGO) test --workspace --no-fail-fast
	$(CARGO) xtask tidy
	tests/shell/run
	tests/docs/run
	tests/packages/run
	tests/iscsi/run
	tests/nfs/run
	tests/attach/run
	tests/vm/report-test
	tests/vm/run --short --again --flaky-max 2 --jobs 3 --only '!(*/io_goes_on_while_the_adapter_is_away)' iser srp nvme-rdma iscsi nvme-tcp nvme-tls fabric volumes nfs attach cluster

# Repeats the RDMA suites with adapters: the daemon runs in a guest of its own on rdma_rxe, which is removed and added again. Takes 15
# minutes beside `make test`.
test-adapters: build
	@scripts/deps.sh test
	tests/vm/run --again --jobs 2 --peer ramport-hw nvme-rdma iser srp

# Takes hours: 500 seeds of the simulations, 10,000 cases of each property, what `make test` leaves out of the virtual machine's tests,
# 10,000 connections by each transport, and a minute of each fuzz target.
test-long: build
	@scripts/deps.sh test
	RAMPORT_SIM_SEEDS=500 $(CARGO) test --release --package sim --test protocols
	RAMPORT_SIM_SEEDS=500 $(CARGO) test --release --package replica --test simulation
	PROPTEST_CASES=10000 $(CARGO) test --release --lib $(addprefix --package ,bench control fabric image iscsi memory net roce session volume window)
	$(CARGO) build --package server --package fabric --examples
	tests/vm/run --again --jobs 2 --long iser nvme-rdma iscsi nvme-tcp nvme-tls
	ROUNDS=1000 RAMPORT_VM_TEST_LIMIT_S=6000 tests/vm/run --jobs 2 --only '90-*/many*' nvme-tcp nvme-rdma iser
	tests/fuzz/run

# Both copy or remove what `make build` has built; they compile nothing, so that root need not.
install uninstall:
	PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh $@

# A Debian package, in target/deb.
deb: build
	scripts/deb.sh

# A statically linked program that runs on any Linux, with RDMA in software only, and an OCI image of it; in target/dist-static.
tarball:
	@scripts/deps.sh build
	scripts/tarball.sh $(STATIC_PROFILE)

oci: tarball
	scripts/oci.sh

clean:
	$(CARGO) clean
