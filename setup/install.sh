#!/usr/bin/env bash
# install.sh install|check PURPOSE...: installs what the named purposes (see setup/packages) need and this machine lacks, or
# says so and fails. Prints nothing when nothing is missing; otherwise says in one line what is missing and why.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
wanted=()
declare -A why

read_table() {
    local package purposes reason purpose
    while read -r package purposes reason; do
        [[ -z $package || $package == \#* ]] && continue
        for purpose in "$@"; do
            if [[ ",$purposes," == *",$purpose,"* && -z ${why[$package]:-} ]]; then
                wanted+=("$package")
                why[$package]=$reason
            fi
        done
    done <"$here/packages"
}

# The packages of `wanted` that dpkg does not report as installed, one per line. dpkg-query complains and fails about
# names that it has never seen; here that only means "missing".
missing_packages() {
    local package
    local -A installed
    # shellcheck disable=SC2016  # the ${...} are dpkg's
    local format='${db:Status-Status} ${Package}\n'
    while read -r package; do
        installed[$package]=1
    done < <(dpkg-query -W -f "$format" "${wanted[@]}" 2>/dev/null | sed -n 's/^installed //p')
    for package in "${wanted[@]}"; do
        [[ -n ${installed[$package]:-} ]] || printf '%s\n' "$package"
    done
}

# apt asks nothing and takes nothing from our stdin, which may belong to a pipe.
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$log" 2>&1
}

main() {
    [[ $# -gt 1 && ($1 == install || $1 == check) ]] || { echo "usage: $0 install|check PURPOSE... (build, mnist, demo, test, suite, bench, fuzz)" >&2; exit 2; }
    local action=$1
    shift
    read_table "$@"
    [[ ${#wanted[@]} -gt 0 ]] || { echo "$0: no package has the purpose '$*'" >&2; exit 2; }

    # Without dpkg the machine is no Debian: its owner provides the tools, and the build says what is absent.
    if ! command -v dpkg-query >/dev/null; then
        command -v "${CC:-gcc}" >/dev/null && command -v mpicc >/dev/null && exit 0
        echo "set-up: not a Debian or Ubuntu machine; install the counterparts of: ${wanted[*]}" >&2
        exit 1
    fi

    local missing package reasons=
    mapfile -t missing < <(missing_packages)
    [[ ${#missing[@]} -gt 0 ]] || exit 0

    for package in "${missing[@]}"; do
        reasons+="${reasons:+, }$package (${why[$package]})"
    done

    if [[ $action == check ]]; then
        echo "set-up: missing: $reasons; run: make deps FOR='$*'" >&2
        exit 1
    fi

    local command="apt-get install --no-install-recommends ${missing[*]}"
    if [[ $(id -u) -eq 0 ]]; then
        as_root=()
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
        as_root=(sudo)
    else
        echo "set-up: missing: $reasons, and no right to install; as root, run: $command" >&2
        exit 1
    fi

    echo "set-up: installing $reasons"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # The package lists may be absent (container images) or old, so a failed first try is worth one update.
    if ! apt install -y --no-install-recommends "${missing[@]}"; then
        if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
            echo "set-up: apt-get failed ($(grep -m1 '^E:' "$log" || echo 'no reason given')); as root, try: apt-get update && $command" >&2
            exit 1
        fi
    fi
}

main "$@"
