#!/bin/sh
# Runs the tests that need a real Slurm on Debian 13's 24.11, inside a debootstrap
# folder, with the programs and modules built on this system (its glibc must not be
# newer than Debian 13's).
#
#   tests/debian13.sh            make the folder if it is not there, run the suite
#   tests/debian13.sh make       only make the folder
#   tests/debian13.sh test ARGS  the same as without, ARGS go to the test runner
#   tests/debian13.sh unmount    take down the mounts of /proc, /sys, /dev and the tests' folder
#   tests/debian13.sh remove     unmount and remove the folder; never remove it by hand
#                                while something is mounted in it
#
# SJP_DEBIAN_SUITE chooses another Debian than trixie: sid has the newest Slurm that is
# packaged (26.05 in November 2026). SJP_SLURM_ROOT names the folder (default
# /var/tmp/sjp-SUITE), SJP_DEBIAN_MIRROR the mirror. Needs root, debootstrap, and
# about 1 GB.
set -eu

suite=${SJP_DEBIAN_SUITE:-trixie}
dir=${SJP_SLURM_ROOT:-/var/tmp/sjp-$suite}
mirror=${SJP_DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages="slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-plugins
    slurm-wlm-mysql-plugin mariadb-server munge lua5.1"

mounted() {
    awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/self/mounts | sort -r
}

unmount() {
    for point in $(mounted); do
        umount "$point" || true
    done
    [ -z "$(mounted)" ]
}

make_folder() {
    if [ -e "$dir/made-by-debian13.sh" ]; then
        return
    fi
    if [ ! -x "$dir/usr/bin/apt-get" ]; then
        debootstrap --variant=minbase "$suite" "$dir" "$mirror"
    fi
    # No daemon is to be started by its package.
    printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
    chmod 755 "$dir/usr/sbin/policy-rc.d"
    printf '127.0.0.1 localhost %s\n' "$(hostname)" >"$dir/etc/hosts"
    mountpoint -q "$dir/proc" || mount --bind /proc "$dir/proc"
    run() {
        chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
            DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@"
    }
    # A mirror that lags behind will do.
    run apt-get -o Acquire::Check-Valid-Until=false update
    # shellcheck disable=SC2086 # a list of words
    run apt-get install -y --no-install-recommends $packages
    # With 11.8.9 of this client library slurmdbd's first query fails ("Number of
    # columns in result set execeeds maxmimum"), and slurmdbd does not start.
    # shellcheck disable=SC2016 # dpkg-query's own variables
    case $(run dpkg-query -W -f '${Version}' libmariadb3) in
    1:11.8.9*)
        deb=libmariadb3_11.8.6-0+deb13u1_$(run dpkg --print-architecture).deb
        curl -fsS -o "$dir/tmp/$deb" "$mirror/pool/main/m/mariadb/$deb"
        run dpkg -i "/tmp/$deb"
        ;;
    esac
    touch "$dir/made-by-debian13.sh"
}

run_suite() {
    # One run at a time: the end of one takes the mounts away from another.
    exec 9>"$dir.lock"
    flock 9
    make_folder
    trap unmount EXIT
    cd "$(dirname "$0")/.."
    export SJP_SLURM_ROOT="$dir"
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run -p sjp-tests "$@"
    else
        cargo test -p sjp-tests "$@"
    fi
}

case "${1:-test}" in
make)
    make_folder
    ;;
test)
    if [ $# -gt 0 ]; then shift; fi
    run_suite "$@"
    ;;
unmount)
    unmount
    ;;
remove)
    unmount
    rm -rf --one-file-system "$dir"
    ;;
*)
    echo "debian13.sh: what is '$1'? One of: make, test, unmount, remove" >&2
    exit 2
    ;;
esac
