# ramport: `make run` serves a RAM disk and measures it; `make test` runs all checks; `make test-adapters` repeats the RDMA suites
# with adapters; `make test-long` runs the long variants.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
BINARY = target/release/ramport

.PHONY: run build test test-adapters test-long install clean

# A RAM disk on loopback: checked, measured, then served until Ctrl-C.
run: build
	$(BINARY) demo

build:
	@scripts/deps.sh build
	$(CARGO) build --release --package ramport

test: build
	@scripts/deps.sh test
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	$(CARGO) test --workspace --no-fail-fast
	$(CARGO) xtask tidy
	tests/shell/run
	tests/docs/run
	tests/iscsi/run
	tests/vm/run --again --jobs 2 --only '!(*/io_goes_on_while_the_adapter_is_away)' iser nvme-rdma iscsi nvme-tcp fabric

# Repeats the RDMA suites with adapters: the daemon runs in a guest of its own on rdma_rxe, which is removed and added again. Takes 15
# minutes beside `make test`.
test-adapters: build
	@scripts/deps.sh test
	tests/vm/run --again --jobs 2 --peer ramport-hw nvme-rdma iser

# Takes hours: 500 seeds of the simulation, 10,000 cases of each property, 10,000 connections by each transport, and a minute of
# each fuzz target.
test-long: build
	@scripts/deps.sh test
	RAMPORT_SIM_SEEDS=500 $(CARGO) test --release --package sim --test protocols
	PROPTEST_CASES=10000 $(CARGO) test --release --lib $(addprefix --package ,bench control fabric iscsi memory roce session volume)
	$(CARGO) build --package server --examples
	ROUNDS=1000 RAMPORT_VM_TEST_LIMIT_S=6000 tests/vm/run --jobs 2 --only '90-*/many*' nvme-tcp nvme-rdma iser
	tests/fuzz/run

install: build
	install -D -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/ramport
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(BINARY) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/man/man5
	mv $(DESTDIR)$(PREFIX)/share/man/man1/*.5 $(DESTDIR)$(PREFIX)/share/man/man5
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -d $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BINARY) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/ramport
	$(BINARY) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_ramport
	$(BINARY) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/ramport.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/bin|$(PREFIX)/bin|' packaging/ramport.service \
		> $(DESTDIR)$(PREFIX)/lib/systemd/system/ramport.service

clean:
	$(CARGO) clean
