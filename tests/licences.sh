#!/bin/bash
# Checks every dependency's licence and source against deny.toml, with cargo
# alone: no network, no further tool.
set -euo pipefail
cd -- "$(dirname -- "$0")/.."

allowed=$(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml)
banned=$(sed -n '/^deny = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml)
[ -n "$allowed" ] && [ -n "$banned" ] || {
    echo "deny.toml: no 'allow' or 'deny' list found" >&2
    exit 1
}
is_in() { grep -qxF -- "$1" <<<"$2"; }

# Whether an SPDX expression is satisfied: `OR` needs one side, `AND` both.
# The expressions of crates nest no deeper than (A OR B) AND C.
satisfied() {
    local all=$1 part option ok
    [ -n "$all" ] || return 1
    all=${all//\// OR }
    while [ -n "$all" ]; do
        case $all in
        *" AND "*) part=${all%%" AND "*} all=${all#*" AND "} ;;
        *) part=$all all= ;;
        esac
        part=${part#(} part=${part%)}
        ok=no
        while IFS= read -r option; do
            read -r option <<<"$option"
            if is_in "$option" "$allowed"; then ok=yes; fi
        done <<<"${part// OR /$'\n'}"
        [ $ok = yes ] || return 1
    done
}

status=0 count=0
while IFS='|' read -r crate licence; do
    [ -n "$crate" ] || continue
    count=$((count + 1))
    if ! satisfied "$licence"; then
        echo "$crate: licence '$licence' is not in deny.toml's list" >&2
        status=1
    fi
    if is_in "${crate%% *}" "$banned"; then
        echo "$crate: banned by deny.toml" >&2
        status=1
    fi
done < <(cargo tree --locked --workspace -e normal,build,dev --target all --prefix none --no-dedupe -f '{p}|{l}' | sort -u)

# 20 is far below what there is: an empty or cut list must not pass.
if [ "$count" -lt 20 ]; then
    echo "cargo tree listed only $count crates" >&2
    status=1
fi
if foreign=$(grep '^source = ' Cargo.lock | grep -vF 'registry+https://github.com/rust-lang/crates.io-index'); then
    echo "Cargo.lock names sources other than crates.io: $foreign" >&2
    status=1
fi
[ $status -eq 0 ] && echo "$count crates: licences and sources are as deny.toml says"
exit $status
