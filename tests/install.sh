#!/bin/bash
# Tests `make install` and `make uninstall` in a temporary folder: every file
# is there, settings are never written over, modules in use are replaced by
# rename, and nothing of ours stays behind. `make` has to have run before.
set -euo pipefail
cd -- "$(dirname -- "$0")/.."

root=$(mktemp -d)
loader=
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    [ -z "$loader" ] || kill "$loader" 2>/dev/null || true
    rm -rf -- "$root"
}
trap cleanup EXIT

passed=0 failed=0
check() {
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what" >&2
    fi
}
refute() { ! "$@"; }
make_quiet() { make --no-print-directory "$@" >"$root/make.log" 2>&1 || { cat "$root/make.log" >&2; return 1; }; }
mode() { [ "$(stat -c %a -- "$2")" = "$1" ]; }

dest=$root/dest
versions=(5.1 5.3 5.4)
conf=$dest/etc/sjp/sjp.toml
lib=$dest/usr/lib/sjp

# --- a first install
make_quiet install DESTDIR="$dest"
for file in sbin/sjpd bin/sjp; do check "usr/$file is a program" mode 755 "$dest/usr/$file"; done
for file in \
    lib/sjp/sjp.lua lib/sjp/sjp_native-{5.1,5.3,5.4}.so \
    lib/systemd/system/sjpd.service \
    share/man/man8/sjpd.8 share/man/man5/sjp.toml.5 \
    share/man/man1/sjp{,-status,-table,-place,-parse,-undo}.1 \
    share/bash-completion/completions/{sjp,sjpd} \
    share/zsh/site-functions/_{sjp,sjpd} \
    share/fish/vendor_completions.d/{sjp,sjpd}.fish \
    share/doc/sjp/{README.md,CHANGELOG.md,LICENSE-MIT,LICENSE-APACHE,job_submit.lua,sjp.toml}; do
    check "usr/$file has text and mode 644" mode 644 "$dest/usr/$file"
    check "usr/$file is not empty" test -s "$dest/usr/$file"
done
check "sjp.toml is the one of this release" cmp -s etc/sjp.toml "$conf"
check "no sjp.toml.new beside it" test ! -e "$conf.new"
check "nothing else was installed" test "$(find "$dest" -type f | wc -l)" -eq 28
check "no half-written file" test -z "$(find "$dest" -name '*.sjp-new')"
check "sjpd answers" grep -q '^sjpd ' <<<"$("$dest/usr/sbin/sjpd" --version)"
check "sjp answers" grep -q '^sjp ' <<<"$("$dest/usr/bin/sjp" --version)"
check "the installed settings pass" "$dest/usr/sbin/sjpd" --config "$conf" --check-config >/dev/null
check "the unit starts what was installed" grep -qx 'ExecStart=/usr/sbin/sjpd --config /etc/sjp/sjp.toml' "$dest/usr/lib/systemd/system/sjpd.service"
if command -v man >/dev/null; then
    for page in man8/sjpd.8 man1/sjp.1 man1/sjp-status.1 man5/sjp.toml.5; do
        said=$(man --warnings -l "$dest/usr/share/man/$page" 2>&1 >/dev/null </dev/null | head -5)
        check "$page formats without a warning: $said" test -z "$said"
    done
fi

# --- the modules
for v in "${versions[@]}"; do
    so=$lib/sjp_native-$v.so
    exported=$(nm -D --defined-only "$so" | awk '{ print $3 }' | sort)
    check "the $v module exports its entry point only: $exported" test "$exported" = luaopen_sjp_native
    check "the $v module does not link liblua" refute grep -qi 'NEEDED.*lua' <<<"$(objdump -p "$so")"
    check "the $v module stays loaded (nodelete)" grep -q NODELETE <<<"$(readelf -d "$so")"
    script='package.path = arg[1] .. "/?.lua;" .. package.path
        local sjp = require("sjp")
        sjp.config.state_dir, sjp.config.disable_file = arg[2], arg[2] .. "/disable"
        local placed, reason = sjp.place({}, 0, {})
        io.write(_VERSION, " ", tostring(placed), " ", tostring(reason), "\n")'
    check "sjp.lua finds the $v module, which answers without sjpd" \
        test "$(echo "$script" | "lua$v" - "$lib" "$root")" = "Lua $v false no table"
done

# --- a second install, while a module is in use
so=$lib/sjp_native-5.1.so
inode=$(stat -c %i "$so")
cp -- "$so" "$root/old.so"
exec 9<"$so"
mkfifo "$root/go"
printf '%s\n' 'package.path = arg[1] .. "/?.lua;" .. package.path
    local sjp = require("sjp")
    sjp.config.state_dir = arg[2]
    sjp.place({}, 0, {})
    io.open(arg[2] .. "/loaded", "w"):close()
    io.open(arg[2] .. "/go"):read("*l")
    local placed, reason = sjp.place({}, 0, {})
    io.open(arg[2] .. "/answer", "w"):write(tostring(placed), " ", tostring(reason), "\n")' >"$root/hold.lua"
lua5.1 "$root/hold.lua" "$lib" "$root" &
loader=$!
deadline=$((SECONDS + 30))
until [ -e "$root/loaded" ] || [ $SECONDS -ge $deadline ]; do read -rt 0.05 <> <(:) || true; done
check "a running program has the module loaded" grep -q 'sjp_native-5.1.so' "/proc/$loader/maps"

printf '\n# the site was here\n' >>"$conf"
cp -- "$conf" "$root/site.toml"
make_quiet install DESTDIR="$dest"
check "the module is another file now" test "$(stat -c %i "$so")" != "$inode"
check "the file that was open is unchanged" cmp -s "$root/old.so" /dev/fd/9
check "the running program still has the old file" grep -q 'sjp_native-5.1.so (deleted)' "/proc/$loader/maps"
echo go >"$root/go"
check "the running program lives" wait "$loader"
loader=
check "and gets the same answer" grep -qx 'false no table' "$root/answer"
exec 9<&-
check "changed settings are kept" cmp -s "$root/site.toml" "$conf"
check "the settings of the release are beside them" cmp -s etc/sjp.toml "$conf.new"
cp -- etc/sjp.toml "$conf"
make_quiet install DESTDIR="$dest"
check "sjp.toml.new goes when there is no difference" test ! -e "$conf.new"

# --- a link in place of the settings is a choice of the site's
mv -- "$conf" "$root/elsewhere.toml"
ln -s "$root/elsewhere.toml" "$conf"
make_quiet install DESTDIR="$dest"
check "a link to the settings stays a link" test -L "$conf"
rm -- "$conf" && cp -- "$root/site.toml" "$conf"

# --- uninstall
touch "$dest/usr/lib/sjp/of-the-site"
make_quiet uninstall DESTDIR="$dest"
check "changed settings survive uninstall" cmp -s "$root/site.toml" "$conf"
check "only what is not ours is left" \
    test "$(cd "$dest" && find . -type f | sort | tr '\n' ' ')" = "./etc/sjp/sjp.toml ./usr/lib/sjp/of-the-site "
rm -rf -- "$dest"
make_quiet install DESTDIR="$dest"
make_quiet uninstall DESTDIR="$dest"
check "uninstall leaves no file" test -z "$(find "$dest" ! -type d)"
check "and no folder named sjp" test -z "$(find "$dest" -name 'sjp*')"

# --- another prefix, in a folder with a blank in its name
make_quiet install DESTDIR="$root/my dest" PREFIX=/opt/sjp SYSCONFDIR=/opt/etc
check "the unit follows PREFIX" grep -qx 'ExecStart=/opt/sjp/sbin/sjpd --config /opt/etc/sjp/sjp.toml' \
    "$root/my dest/opt/sjp/lib/systemd/system/sjpd.service"
check "settings follow SYSCONFDIR" cmp -s etc/sjp.toml "$root/my dest/opt/etc/sjp/sjp.toml"
make_quiet uninstall DESTDIR="$root/my dest" PREFIX=/opt/sjp SYSCONFDIR=/opt/etc
check "uninstall follows them too" test -z "$(find "$root/my dest" ! -type d)"
check "install without a build says what to do" grep -q "run 'make' first" \
    <<<"$(make install DESTDIR="$root/none" CARGO_TARGET_DIR="$root/not built" 2>&1 || true)"

echo "install: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
