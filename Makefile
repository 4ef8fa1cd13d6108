# sjp: build, install, test.
#
#   make                  release build: sjpd, sjp, the Lua modules, man pages
#   make install          into PREFIX (/usr) below DESTDIR; make uninstall undoes it
#   make test             every test; as root on Debian it installs what they need
#   make demo             sjp at work on a throwaway real Slurm
#   make help             the rest
#
# GNU make and cargo are enough to build; `make install` needs neither cargo nor
# the network once `make` has run.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
# cargo uses all cores by itself, and the tests must not run into each other.
.NOTPARALLEL:

CARGO ?= cargo
# Cargo.lock is followed to the letter; empty it to build with other versions.
CARGOFLAGS ?= --locked
# Where cargo builds; CARGO_TARGET_DIR as cargo understands it.
TARGET := $(shell realpath -m -- "$(or $(CARGO_TARGET_DIR),target)")
# What `make stage`, `make test` and `make demo` build: debug (with overflow
# checks) or release. `make` and `make install` always take release.
PROFILE ?= debug

PREFIX ?= /usr
SYSCONFDIR ?= /etc
DESTDIR ?=

SBINDIR := $(PREFIX)/sbin
BINDIR := $(PREFIX)/bin
LIBDIR := $(PREFIX)/lib/sjp
UNITDIR := $(PREFIX)/lib/systemd/system
MANDIR := $(PREFIX)/share/man
DOCDIR := $(PREFIX)/share/doc/sjp
BASH_COMPLETIONS := $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS := $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS := $(PREFIX)/share/fish/vendor_completions.d
CONFDIR := $(SYSCONFDIR)/sjp

# Debian's slurmctld runs Lua 5.1, others 5.3 or 5.4; sjp.lua picks the module.
LUA_VERSIONS := 5.1 5.3 5.4
# The commands of `sjp`, each with a manual page of its own.
SJP_COMMANDS := status table place parse undo
# The crates that tests without a Slurm cover; sjp-lua has calls of its own.
UNIT_CRATES := sjp-core sjp-slurm sjp-table sjpd
# Real-Slurm tests at the same time: each runs a cluster of its own.
SLURM_TEST_THREADS ?= 2

# What `make` makes for `make install`, and what `make stage` makes for the tests.
DIST := $(TARGET)/sjp-dist
STAGE := $(TARGET)/sjp-stage/lib/sjp

ifneq ($(filter $(PROFILE),debug dev),)
profile_dir := debug
profile_flag :=
else ifeq ($(PROFILE),release)
profile_dir := release
profile_flag := --release
else
$(error PROFILE=$(PROFILE): it is debug or release)
endif

# 5.1 -> lua51
lua_feature = lua$(subst .,,$(1))
# A target folder for each Lua version: the modules have one file name, and in
# one folder each build would undo the others'.
lua_target = $(TARGET)/$(call lua_feature,$(1))
say = @printf '\n== %s\n' '$(1)'
# $(call put,MODE,FROM,TO): a new file, renamed over the old one. Never writes
# into a file that is in use: slurmctld has the modules mapped.
put = rm -f -- "$(3).sjp-new" && install -m $(1) -- "$(2)" "$(3).sjp-new" && mv -f -- "$(3).sjp-new" "$(3)"

.PHONY: build
build: build-programs $(LUA_VERSIONS:%=build-module-%) ## Release build of everything (the default)
	@rm -rf -- "$(DIST)"
	@mkdir -p "$(DIST)/man" "$(DIST)/completions" "$(DIST)/lib"
	@cp -- "$(TARGET)/release/sjpd" "$(TARGET)/release/sjp" "$(DIST)/"
	@cp -- lua/sjp.lua "$(DIST)/lib/"
	@for v in $(LUA_VERSIONS); do \
	    cp -- "$(TARGET)/lua$${v/./}/release/libsjp_native.so" "$(DIST)/lib/sjp_native-$$v.so"; \
	done
	@"$(TARGET)/release/sjp" generate man "$(DIST)/man"
	@test "$$(cd "$(DIST)/man" && LC_ALL=C && echo *)" = "$(sort $(man_pages))" || { \
	    echo "the manual pages are not those that install puts down: SJP_COMMANDS in the Makefile" >&2; exit 1; }
	@"$(TARGET)/release/sjp" generate completions "$(DIST)/completions"
	@echo "built: $(DIST); next: make install"

.PHONY: build-programs
build-programs:
	$(CARGO) build $(CARGOFLAGS) --release --target-dir "$(TARGET)" -p sjpd --bins

.PHONY: $(LUA_VERSIONS:%=build-module-%)
$(LUA_VERSIONS:%=build-module-%): build-module-%:
	$(CARGO) build $(CARGOFLAGS) --release --target-dir "$(call lua_target,$*)" \
	    -p sjp-lua --no-default-features --features module,$(call lua_feature,$*)

.PHONY: stage
stage: $(LUA_VERSIONS:%=stage-module-%) ## sjp.lua and the modules of PROFILE where the tests look for them
	@$(call put,644,lua/sjp.lua,$(STAGE)/sjp.lua)
	@echo "staged ($(profile_dir)): $(STAGE)"

.PHONY: $(LUA_VERSIONS:%=stage-module-%)
$(LUA_VERSIONS:%=stage-module-%): stage-module-%:
	$(CARGO) build $(CARGOFLAGS) $(profile_flag) --target-dir "$(call lua_target,$*)" \
	    -p sjp-lua --no-default-features --features module,$(call lua_feature,$*)
	@mkdir -p "$(STAGE)"
	@$(call put,644,$(call lua_target,$*)/$(profile_dir)/libsjp_native.so,$(STAGE)/sjp_native-$*.so)

# sjp-status.1 and so on.
man_pages := sjpd.8 sjp.1 sjp.toml.5 $(SJP_COMMANDS:%=sjp-%.1)
# sjp.1 -> man1/sjp.1
man_file = man$(patsubst .%,%,$(suffix $(1)))/$(1)

# --- install ---------------------------------------------------------------

# Everything that install puts down and uninstall takes away, but sjp.toml.
installed_files = \
	$(SBINDIR)/sjpd \
	$(BINDIR)/sjp \
	$(LIBDIR)/sjp.lua \
	$(LUA_VERSIONS:%=$(LIBDIR)/sjp_native-%.so) \
	$(UNITDIR)/sjpd.service \
	$(foreach m,$(man_pages),$(MANDIR)/$(call man_file,$(m))) \
	$(BASH_COMPLETIONS)/sjp \
	$(BASH_COMPLETIONS)/sjpd \
	$(ZSH_COMPLETIONS)/_sjp \
	$(ZSH_COMPLETIONS)/_sjpd \
	$(FISH_COMPLETIONS)/sjp.fish \
	$(FISH_COMPLETIONS)/sjpd.fish \
	$(DOCDIR)/README.md \
	$(DOCDIR)/CHANGELOG.md \
	$(DOCDIR)/LICENSE-MIT \
	$(DOCDIR)/LICENSE-APACHE \
	$(DOCDIR)/sjp.toml \
	$(DOCDIR)/job_submit.lua

.PHONY: install
install: ## Install what `make` built into DESTDIR/PREFIX
	@test -x "$(DIST)/sjpd" || { echo "nothing built yet in $(DIST): run 'make' first" >&2; exit 1; }
	@mkdir -p $(foreach d,$(sort $(dir $(installed_files)) $(CONFDIR)/),"$(DESTDIR)$(d)")
	@# sjpd has to be readable for SlurmUser: the kernel shuts /proc/PID/fd of a
	@# program that its own user cannot read, and the table goes through there.
	@$(call put,755,$(DIST)/sjpd,$(DESTDIR)$(SBINDIR)/sjpd)
	@$(call put,755,$(DIST)/sjp,$(DESTDIR)$(BINDIR)/sjp)
	@# The modules first: an old sjp.lua refuses a module it does not fit, and
	@# a slurmctld that has one loaded does not look again before it restarts.
	@for v in $(LUA_VERSIONS); do \
	    $(call put,644,$(DIST)/lib/sjp_native-$$v.so,$(DESTDIR)$(LIBDIR)/sjp_native-$$v.so); \
	done
	@$(call put,644,$(DIST)/lib/sjp.lua,$(DESTDIR)$(LIBDIR)/sjp.lua)
	@sed 's|/usr/sbin/sjpd|$(SBINDIR)/sjpd|; s|/etc/sjp/sjp.toml|$(CONFDIR)/sjp.toml|' etc/sjpd.service > "$(DIST)/sjpd.service"
	@$(call put,644,$(DIST)/sjpd.service,$(DESTDIR)$(UNITDIR)/sjpd.service)
	@for m in $(man_pages); do \
	    $(call put,644,$(DIST)/man/$$m,$(DESTDIR)$(MANDIR)/man$${m##*.}/$$m); \
	done
	@for c in sjp sjpd; do \
	    $(call put,644,$(DIST)/completions/$$c.bash,$(DESTDIR)$(BASH_COMPLETIONS)/$$c); \
	    $(call put,644,$(DIST)/completions/_$$c,$(DESTDIR)$(ZSH_COMPLETIONS)/_$$c); \
	    $(call put,644,$(DIST)/completions/$$c.fish,$(DESTDIR)$(FISH_COMPLETIONS)/$$c.fish); \
	done
	@for f in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE etc/sjp.toml lua/job_submit.lua; do \
	    $(call put,644,$$f,$(DESTDIR)$(DOCDIR)/$${f##*/}); \
	done
	@# The settings are the site's: never written over.
	@conf="$(DESTDIR)$(CONFDIR)/sjp.toml"; \
	if [ ! -e "$$conf" ] && [ ! -L "$$conf" ]; then \
	    $(call put,644,etc/sjp.toml,$$conf); rm -f -- "$$conf.new"; \
	elif cmp -s -- etc/sjp.toml "$$conf"; then \
	    rm -f -- "$$conf.new"; \
	else \
	    $(call put,644,etc/sjp.toml,$$conf.new); \
	    echo "kept $$conf; the settings of this release are in $$conf.new"; \
	fi
	@echo "installed below $(DESTDIR)$(PREFIX); settings: $(DESTDIR)$(CONFDIR)/sjp.toml"

.PHONY: uninstall
uninstall: ## Remove what install put down; a changed sjp.toml stays
	@rm -f -- $(foreach f,$(installed_files),"$(DESTDIR)$(f)") "$(DESTDIR)$(CONFDIR)/sjp.toml.new"
	@conf="$(DESTDIR)$(CONFDIR)/sjp.toml"; \
	if cmp -s -- etc/sjp.toml "$$conf"; then rm -f -- "$$conf"; \
	elif [ -e "$$conf" ]; then echo "kept $$conf: it was changed"; fi
	@for d in "$(DESTDIR)$(LIBDIR)" "$(DESTDIR)$(DOCDIR)" "$(DESTDIR)$(CONFDIR)"; do \
	    [ ! -d "$$d" ] || rmdir --ignore-fail-on-non-empty -- "$$d"; \
	done
	@echo "uninstalled from $(DESTDIR)$(PREFIX)"

# --- tests -----------------------------------------------------------------

.PHONY: test
test: test-deps test-unit test-lua test-loom test-install test-slurm ## All tests
	$(call say,all tests passed)

.PHONY: test-deps
test-deps:
	$(call say,what the tests need)
	@tests/install-deps.sh test

.PHONY: test-unit
test-unit: ## Tests without a Slurm (no root needed)
	$(call say,unit tests)
	$(CARGO) test $(CARGOFLAGS) $(profile_flag) --target-dir "$(TARGET)" $(UNIT_CRATES:%=-p %)

.PHONY: test-lua
test-lua: stage $(LUA_VERSIONS:%=test-lua-%) ## The Lua module under each Lua version
	$(call say,the staged modules in the interpreters)
	SJP_STAGE="$(STAGE)" $(CARGO) test $(CARGOFLAGS) $(profile_flag) --target-dir "$(call lua_target,5.1)" \
	    -p sjp-lua --no-default-features --features staged,lua51 --test staged

# First with an interpreter of its own and the module as a library; then with
# the system's liblua and the staged module, as slurmctld has them.
.PHONY: $(LUA_VERSIONS:%=test-lua-%)
$(LUA_VERSIONS:%=test-lua-%): test-lua-%: stage
	$(call say,the Lua module under Lua $*)
	$(CARGO) test $(CARGOFLAGS) $(profile_flag) --target-dir "$(call lua_target,$*)" \
	    -p sjp-lua --no-default-features --features vendored,$(call lua_feature,$*)
	SJP_STAGE="$(STAGE)" $(CARGO) test $(CARGOFLAGS) $(profile_flag) --target-dir "$(call lua_target,$*)" \
	    -p sjp-lua --no-default-features --features staged,$(call lua_feature,$*) --test states

.PHONY: test-loom
test-loom: ## Model-check the table's readers, writer and claims
	$(call say,loom models)
	@# Without --cfg loom the file holds no test at all, and that would pass.
	export RUSTFLAGS="$${RUSTFLAGS:-} --cfg loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false; \
	loom() { $(CARGO) test $(CARGOFLAGS) --release --target-dir "$(TARGET)/loom" -p sjp-table --test loom "$$@"; }; \
	models=$$(loom -- --list); \
	grep -q ': test$$' <<<"$$models" || { echo "no loom model was found" >&2; exit 1; }; \
	loom -- --nocapture

.PHONY: test-install
test-install: build ## Install, install again, uninstall, in a temporary folder
	$(call say,install and uninstall)
	CARGO_TARGET_DIR="$(TARGET)" bash tests/install.sh

.PHONY: test-slurm
test-slurm: stage ## The real-Slurm suite (root)
	$(call say,real Slurm)
	$(CARGO) build $(CARGOFLAGS) $(profile_flag) --target-dir "$(TARGET)" -p sjpd --bins
	SJP_STAGE="$(STAGE)" $(CARGO) test $(CARGOFLAGS) $(profile_flag) --target-dir "$(TARGET)" \
	    -p sjp-tests -- --test-threads=$(SLURM_TEST_THREADS)

.PHONY: test-debian13
test-debian13: stage ## The same on Debian 13's Slurm (SJP_DEBIAN_SUITE=sid: the newest), in a debootstrap folder (root)
	@command -v debootstrap >/dev/null || { echo "needs debootstrap: apt-get install debootstrap" >&2; exit 1; }
	$(CARGO) build $(CARGOFLAGS) --target-dir "$(TARGET)" -p sjpd --bins
	CARGO_TARGET_DIR="$(TARGET)" SJP_STAGE="$(STAGE)" tests/debian13.sh test

.PHONY: demo
demo: ## sjp at work on a throwaway real Slurm (root)
	@tests/install-deps.sh test
	@$(MAKE) --no-print-directory stage
	$(CARGO) build $(CARGOFLAGS) $(profile_flag) --target-dir "$(TARGET)" -p sjpd -p sjp-tests --bins
	@# What a failed demo leaves for a look stays; anything else goes, also on Ctrl-C.
	@dir=$$(mktemp -d) && chmod 755 "$$dir"; \
	trap 'sleep 1; rm -rf -- "$$dir"; exit 130' INT TERM HUP; \
	code=0; \
	SJP_TEST_DIR="$$dir" SJP_STAGE="$(STAGE)" "$(TARGET)/$(profile_dir)/sjp-demo" || code=$$?; \
	compgen -G "$$dir/c-*" >/dev/null || rm -rf -- "$$dir"; \
	exit $$code

# --- checks ----------------------------------------------------------------

.PHONY: lint
lint: ## Format, clippy, rustdoc, Lua, shell, licences, the unit
	@tests/install-deps.sh lint
	$(call say,format)
	$(CARGO) fmt --all --check
	$(call say,clippy)
	$(CARGO) clippy $(CARGOFLAGS) --target-dir "$(TARGET)" --all-targets -- -D warnings
	@set -x; for v in $(LUA_VERSIONS); do \
	    $(CARGO) clippy $(CARGOFLAGS) --target-dir "$(TARGET)/lua$${v/./}" -p sjp-lua \
	        --no-default-features --features "vendored,lua$${v/./}" --all-targets -- -D warnings; \
	    $(CARGO) clippy $(CARGOFLAGS) --target-dir "$(TARGET)/lua$${v/./}" -p sjp-lua \
	        --no-default-features --features "module,lua$${v/./}" --lib -- -D warnings; \
	    $(CARGO) clippy $(CARGOFLAGS) --target-dir "$(TARGET)/lua$${v/./}" -p sjp-lua \
	        --no-default-features --features "staged,lua$${v/./}" --tests -- -D warnings; \
	done
	$(call say,rustdoc)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CARGOFLAGS) --target-dir "$(TARGET)" --no-deps --document-private-items
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CARGOFLAGS) --target-dir "$(TARGET)/lua51" -p sjp-lua \
	    --no-default-features --features module,lua51 --no-deps --document-private-items
	$(call say,licences and sources of the dependencies)
	@tests/licences.sh
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) deny --offline --workspace check bans licenses sources; \
	else echo "cargo-deny is not installed: skipped (tests/licences.sh has checked the same lists)"; fi
	$(call say,Lua and shell)
	@# One file a call: luac5.1 -p ends in a double free on two.
	@for v in $(LUA_VERSIONS); do for f in lua/*.lua sjp-lua/src/lua/*.lua; do luac$$v -p "$$f"; done; done
	luacheck -q lua sjp-lua/src/lua
	shellcheck --exclude=SC2015,SC2016 .ci/run tests/*.sh
	$(call say,the systemd unit)
	@tests/unit-check.sh

.PHONY: docs-check
docs-check: ## Links, examples and named tests of README and docs
	$(call say,documents)
	$(CARGO) build $(CARGOFLAGS) --target-dir "$(TARGET)" -p sjpd --bins
	@tests/docs-check.sh "$(TARGET)/debug"

# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))

.PHONY: fuzz
fuzz: $(FUZZ_TARGETS:%=fuzz-%) ## FUZZ_SECONDS (60) of each fuzz target, by a stable toolchain

.PHONY: $(FUZZ_TARGETS:%=fuzz-%)
$(FUZZ_TARGETS:%=fuzz-%): fuzz-%:
	@tests/install-deps.sh fuzz
	CARGO_TARGET_DIR="$(TARGET)/fuzz" bash fuzz/run-on-stable.sh $* -max_total_time=$(FUZZ_SECONDS)

.PHONY: bench
bench: ## Benchmarks (docs/benchmarks.md has figures)
	$(CARGO) bench $(CARGOFLAGS) --target-dir "$(TARGET)" $(UNIT_CRATES:%=-p %)
	$(CARGO) bench $(CARGOFLAGS) --target-dir "$(TARGET)/lua51" -p sjp-lua \
	    --no-default-features --features vendored,lua51

.PHONY: clean
clean: ## Remove everything built
	$(CARGO) clean --target-dir "$(TARGET)"

.PHONY: help
help: ## This list
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1|\2/p' Makefile | while IFS='|' read -r t d; do printf '  make %-13s %s\n' "$$t" "$$d"; done
	@echo "variables: PREFIX DESTDIR SYSCONFDIR CARGO_TARGET_DIR PROFILE=debug|release CARGOFLAGS SLURM_TEST_THREADS FUZZ_SECONDS"
