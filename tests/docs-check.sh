#!/bin/bash
# Checks README.md, CHANGELOG.md and docs/*.md against the project:
#   - every ```toml block passes `sjpd --check-config`;
#   - every ```lua block is Lua for each version that slurmctld may run;
#   - every ```sh block marked `run` runs, in an empty folder, with the built
#     programs first in PATH;
#   - every relative link leads to a file, and its #anchor to a heading;
#   - every test named as `path/file.rs::name` is there.
#
#   tests/docs-check.sh DIR     DIR holds the built sjpd and sjp
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
[ $# -eq 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
bin=$(realpath -- "$1")
[ -x "$bin/sjpd" ] || { echo "$bin/sjpd is not there: cargo build -p sjpd" >&2; exit 1; }

tmp=$(mktemp -d)
trap 'rm -rf -- "$tmp"' EXIT
status=0 blocks=0 links=0 names=0
fail() {
    printf '%s\n' "$*" >&2
    status=1
}

# One file for each fenced block: NUMBER.LANGUAGE[.run], its origin in NUMBER.at.
split() {
    awk -v dir="$tmp" '
        /^ *```/ {
            if (inside) { inside = 0; close(out); next }
            inside = 1
            info = $0; sub(/^ *```/, "", info)
            words = split(info, word, " ")
            n += 1
            out = sprintf("%s/%s-%03d.%s%s", dir, prefix, n, words ? word[1] : "text", word[2] == "run" ? ".run" : "")
            printf "%s:%d\n", FILENAME, FNR > (out ".at"); close(out ".at")
            printf "" > out
            next
        }
        inside { print > out }
        END { if (inside) { print FILENAME ": a ``` block does not end" > "/dev/stderr"; exit 1 } }
    ' prefix="$2" "$1"
}

# The anchors of a document as GitHub makes them.
anchors() {
    sed -n '/^```/,/^```/!s/^#\{1,6\} //p' "$1" | tr '[:upper:]' '[:lower:]' |
        sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

number=0
for doc in README.md CHANGELOG.md docs/*.md; do
    number=$((number + 1))
    split "$doc" "$number" || status=1

    while IFS= read -r link; do
        links=$((links + 1))
        file=${link%%#*} anchor=
        case $link in *'#'*) anchor=${link#*#} ;; esac
        target=$doc
        [ -z "$file" ] || target=$(dirname -- "$doc")/$file
        if [ ! -e "$target" ]; then
            fail "$doc: link to $link: no such file"
        elif [ -n "$anchor" ] && ! grep -qxF -- "$anchor" <<<"$(anchors "$target")"; then
            fail "$doc: link to $link: no such heading"
        fi
    done < <(grep -oE '\]\([^)]+\)' "$doc" | sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' || true)

    while IFS= read -r name; do
        names=$((names + 1))
        file=${name%%::*} test=${name##*::}
        if [ ! -e "$file" ]; then
            fail "$doc: names the test $name: no file $file"
        elif ! grep -qE "\\b$test\\b" "$file"; then
            fail "$doc: names the test $name: not in $file"
        fi
    done < <(grep -oE '`[A-Za-z0-9_./-]+\.(rs|sh|lua)::[A-Za-z0-9_:]+`' "$doc" | tr -d '`' || true)
done

for block in "$tmp"/*; do
    case $block in *.at) continue ;; esac
    at=$(cat "$block.at")
    case $block in
    *.toml)
        blocks=$((blocks + 1))
        if ! said=$("$bin/sjpd" --config "$block" --check-config 2>&1); then fail "$at: $said"; fi
        ;;
    *.lua)
        blocks=$((blocks + 1))
        for version in 5.1 5.3 5.4; do
            if ! said=$("luac$version" -p "$block" 2>&1); then fail "$at: $said"; fi
        done
        ;;
    *.sh.run)
        blocks=$((blocks + 1))
        mkdir -p "$tmp/run"
        if ! said=$(cd "$tmp/run" && PATH=$bin:$PATH bash -eu -o pipefail "$block" 2>&1 </dev/null); then
            fail "$at: $said"
        fi
        rm -rf -- "$tmp/run"
        ;;
    esac
done

# Nothing found means that the search is broken, not that all is well.
[ "$blocks" -gt 0 ] && [ "$links" -gt 0 ] && [ "$names" -gt 0 ] ||
    fail "checked $blocks blocks, $links links, $names named tests: there must be some of each"
[ $status -eq 0 ] && echo "documents: $blocks blocks, $links links and $names named tests hold"
exit $status
