#!/usr/bin/env bash
# on-suite.sh SUITE [COMMAND...]: runs a command (make test) on this checkout in another release of Debian, such as trixie.
#
# The release lies in $SUITES/SUITE (/var/tmp/darknet-cmn-suites) and is made by debootstrap where it is missing. It is kept,
# with what was installed and built in it, so that a second run only builds what has changed. What git knows of the
# checkout goes into it, changes that are not committed included. The command runs as root there, or as an ordinary user
# with AS_USER=1, with mounts and process numbers of its own: nothing that it started is left when it has ended.
#
# Prints what the command prints and exits as it does. Where such a tree cannot be made, prints
# `0 passed, 0 failed, 1 skipped` with the reason and exits 0.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${SUITES:=/var/tmp/darknet-cmn-suites}" "${AS_USER:=}"
[[ $# -gt 0 ]] || { echo "usage: $0 SUITE [COMMAND...]" >&2; exit 2; }
suite=$1
shift
(($#)) || set -- make test
tree=$SUITES/$suite

skip() {
    printf 'SKIP: no %s here: %s\n0 passed, 0 failed, 1 skipped\n' "$suite" "$1"
    exit 0
}

[[ $(id -u) -eq 0 ]] || skip 'debootstrap needs root'
git rev-parse --verify --quiet HEAD >/dev/null || skip 'the sources are not a git checkout'
for tool in debootstrap unshare; do
    command -v "$tool" >/dev/null || skip "$tool is not installed (make deps FOR=suite)"
done

if [[ ! -d $tree ]]; then
    # shellcheck disable=SC2016  # apt expands what is quoted
    # The mirror that this machine's own packages come from; debootstrap knows one where apt names none.
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
    mkdir -p "$SUITES"
    rm -rf "$tree.new"
    echo "$suite: making $tree"
    debootstrap --variant=minbase --include=make,git,ca-certificates "$suite" "$tree.new" ${mirror:+"$mirror"} \
        >"$tree.log" 2>&1 || skip "debootstrap failed: $(tail -n 1 "$tree.log") ($tree.log)"
    mv "$tree.new" "$tree"
fi

# The sources: git's own copy changes the times of those files alone that have changed.
there=$tree/srv/darknet-cmn
[[ ! -d $there ]] || chown -R 0:0 "$there"
[[ -d $there/.git ]] || git init -q "$there"
commit=$(git stash create)
git push -q --force "$there" "${commit:-HEAD}:refs/tests/on-suite"
# Changes of owner are none.
git -C "$there" update-index -q --refresh || true
git -C "$there" checkout -q --force --detach refs/tests/on-suite

# What every release would download again.
for kept in build/upstream data/mnist-idx; do
    [[ -d $kept && ! -d $there/$kept ]] || continue
    mkdir -p "$there/${kept%/*}"
    cp -R "$kept" "$there/${kept%/*}/"
done

if [[ -n $AS_USER ]]; then
    id=1000
    grep -q '^tester:' "$tree/etc/passwd" || chroot "$tree" useradd --create-home --uid "$id" tester
    chown -R "$id:$id" "$there"
    home=/home/tester
    as=(setpriv --reuid "$id" --regid "$id" --clear-groups env HOME="$home" USER=tester)
else
    home=/root
    as=(env HOME="$home" USER=root)
fi

# AlexeyAB's tree, where the tests there look for it.
cached=.cache/darknet-cmn/alexeyab-59596d78
from=${ALEXEYAB_TREE:-${XDG_CACHE_HOME:-$HOME/.cache}/${cached#*/}}
if [[ -d $from/src && ! -d $tree$home/$cached ]]; then
    mkdir -p "$tree$home/${cached%/*}"
    cp -R "$from" "$tree$home/$cached"
    [[ -z $AS_USER ]] || chown -R "$id:$id" "$tree$home/.cache"
fi

# One control group for all of it. Outside of one the kernel shares the processors among sessions (sched_autogroup_enabled),
# and Open MPI 5 begins a session for each node: ranks that wait there took the tests' whole share, for minutes.
for root in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    [[ -w $root/cgroup.procs ]] || continue
    mkdir -p "$root/darknet-cmn-tests"
    if echo $$ 2>/dev/null >"$root/darknet-cmn-tests/cgroup.procs"; then
        break
    fi
done

# shellcheck disable=SC2016  # expanded by the inner shells
exec unshare --mount --pid --fork --kill-child bash -c '
    set -euo pipefail
    tree=$1
    shift
    # A mount of its own, and the root of all: namespaces can be made in it, which a chroot forbids.
    mount --bind "$tree" "$tree"
    mount -t proc proc "$tree/proc"
    mount --rbind /sys "$tree/sys"
    mount --rbind /dev "$tree/dev"
    mount -t tmpfs -o mode=1777 shm "$tree/dev/shm"
    mount -t tmpfs -o mode=755 run "$tree/run"
    # Process numbers begin anew in each run, and prterun and make refuse files of an earlier process of their number.
    mount -t tmpfs -o mode=1777 tmp "$tree/tmp"
    cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
    cd "$tree"
    pivot_root . .
    umount --lazy .
    exec chroot . bash -c '\''cd /srv/darknet-cmn && "$@"'\'' - env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        TERM="${TERM:-dumb}" LC_ALL=C.UTF-8 "$@"' - "$tree" "${as[@]}" "$@"
