#!/bin/bash
# Installs what building, checking and testing sjp needs, from Debian's archive.
#
#   tests/install-deps.sh build|lint|test|fuzz
#
# Does nothing where everything is there. As root it calls apt-get, and no
# service is started by that; otherwise it says what to install and fails.
set -euo pipefail

what=${1:-}
packages=(gcc libc6-dev)
case $what in
build) ;;
fuzz) packages+=(g++) ;;
lint) packages+=(make pkg-config liblua5.1-0-dev liblua5.3-dev liblua5.4-dev lua5.1 lua5.3 lua5.4 lua-check shellcheck) ;;
test)
    packages+=(
        make pkg-config
        lua5.1 lua5.3 lua5.4 liblua5.1-0-dev liblua5.3-dev liblua5.4-dev
        slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-plugins
        slurm-wlm-mysql-plugin munge mariadb-server libfaketime
    )
    ;;
*)
    echo "usage: $0 build|lint|test|fuzz" >&2
    exit 2
    ;;
esac

# The programs that stand for the packages where there is no dpkg.
programs() {
    case $what in
    build) echo cc ;;
    fuzz) echo cc c++ ;;
    lint) echo cc make luac5.1 luac5.3 luac5.4 luacheck shellcheck ;;
    test) echo cc make pkg-config lua5.1 lua5.3 lua5.4 slurmctld slurmd slurmdbd sbatch munged mariadbd ;;
    esac
}

missing=()
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing+=("$package")
    done
else
    for program in $(programs); do
        command -v "$program" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null ||
            missing+=("$program")
    done
fi

if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "these programs are missing, install the packages that hold them: ${missing[*]}" >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "packages are missing; as root:" >&2
        echo "    apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    # Debian starts a service when its package is installed, unless this says no.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f -- "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    echo "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt_get() { apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -qq "$@" </dev/null; }
    apt_get update
    apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "$what" = test ] && [ "$(id -u)" -ne 0 ]; then
    echo "the real-Slurm tests start daemons and run jobs as several users: they need root" >&2
    echo "(a container will do; 'make test-unit test-lua test-loom test-install' needs none)" >&2
    exit 1
fi
echo "everything that '$what' needs is there"
