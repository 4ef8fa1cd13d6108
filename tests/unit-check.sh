#!/bin/bash
# Checks etc/sjpd.service: what must stand in it, what must not, and, where
# systemd-analyze is there, that systemd takes it.
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
unit=etc/sjpd.service
status=0
fail() {
    echo "$unit: $*" >&2
    status=1
}

for line in Type=notify NotifyAccess=main 'ExecReload=/bin/kill -HUP $MAINPID' User=slurm \
    RuntimeDirectory=sjp NoNewPrivileges=yes ProtectSystem=strict CapabilityBoundingSet=; do
    grep -qxF -- "$line" "$unit" || fail "no line '$line'"
done
grep -q '^WatchdogSec=' "$unit" || fail "no WatchdogSec="
# slurmctld opens the table through /proc/PID/fd of sjpd: the kernel allows that
# to a process of the same user and group, in the same PID and user namespace.
for key in Group DynamicUser PrivateUsers PrivatePIDs AmbientCapabilities SetCredential; do
    if grep -q "^$key=" "$unit"; then fail "$key= keeps slurmctld from the table"; fi
done

if command -v systemd-analyze >/dev/null; then
    dir=$(mktemp -d)
    trap 'rm -rf -- "$dir"' EXIT
    # The program is not installed where the check runs.
    sed 's|^ExecStart=/usr/sbin/sjpd |ExecStart=/bin/true |' "$unit" >"$dir/sjpd.service"
    # It exits 0 in spite of unknown keys: anything it says about the unit counts.
    said=$(systemd-analyze verify --man=no "$dir/sjpd.service" 2>&1 || true)
    if said=$(grep -F sjpd.service <<<"$said"); then fail "$said"; fi
    checked="systemd-analyze takes it"
else
    checked="systemd-analyze is not here, so systemd has not seen it"
fi
[ $status -eq 0 ] && echo "$unit: $checked"
exit $status
