#!/usr/bin/env bash
# install.sh install|check PURPOSE...: looks for what the named purposes need (setup/packages) by using it: a program is on PATH, a
# library links. Whose package it is from, or whether it is from one, does not matter. `install` installs what is missing (Debian
# and Ubuntu), `check` says so and fails. Prints nothing when nothing is missing, otherwise one line: what, why, and what to run.
# CC, MPICC, MPIEXEC, CFLAGS, LDFLAGS, PKG_CONFIG and PKG_CONFIG_PATH are the build's.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
: "${CC:=gcc}" "${CFLAGS:=}" "${LDFLAGS:=}" "${OS_RELEASE:=/etc/os-release}"

# These arrays have an entry for each package that is wanted, in the table's order; `name` is this distribution's.
packages=()
declare -A name proof why

# Sets the table's column for this machine, and how one installs there.
distribution() {
    local ids
    ids=$(sed -nE 's/^ID(_LIKE)?=//p' "$OS_RELEASE" 2>/dev/null | tr -d "\"'" | xargs)
    case " $ids " in
        *' debian '* | *' ubuntu '*) column=debian command='apt-get install --no-install-recommends' ;;
        *' fedora '* | *' rhel '*) column=fedora command='dnf install' ;;
        *' arch '*) column=arch command='pacman -S --needed' ;;
        *) column=debian command= ;;
    esac
}

read_table() {
    local debian purposes fedora arch when reason purpose
    # shellcheck disable=SC2034  # the distribution's column is read by its name
    while read -r debian purposes fedora arch when reason; do
        [[ -z $debian || $debian == \#* ]] && continue
        for purpose in "$@"; do
            if [[ ",$purposes," == *",$purpose,"* && -z ${proof[$debian]:-} ]]; then
                packages+=("$debian")
                name[$debian]=${!column} proof[$debian]=$when why[$debian]=$reason
            fi
        done
    done <"$here/packages"
}

# Succeeds if the program is on PATH; CC and MPIEXEC may name others. Some programs lie where not every shell looks.
program_there() {
    case $1 in
        gcc) set -- "$CC" ;;
        mpiexec) set -- "${MPIEXEC:-mpiexec}" ;;
    esac
    PATH=$PATH:/usr/sbin:/sbin command -v "${1%% *}" >/dev/null
}

# links PROOF...: succeeds if a program compiles that uses all these headers and libraries.
links() {
    local kind library header symbol libraries=() compile link
    {
        # cmocka.h expects these headers before it.
        printf '#include <%s>\n' stdarg.h stddef.h stdint.h setjmp.h
        for kind in "$@"; do
            IFS=: read -r kind library header symbol <<<"$kind"
            [[ $kind == library ]] || { printf '#include <%s>\n' "$library"; continue; }
            libraries+=("$library")
            printf '#include <%s>\nvoid *of_%s(void) { return (void *)%s; }\n' "$header" "$symbol" "$symbol"
        done
        printf 'int main(void) { return 0; }\n'
    } >"$work/try.c"
    compile=$("$here/flags.sh" compile ${libraries[@]+"${libraries[@]}"}) &&
        link=$("$here/flags.sh" link ${libraries[@]+"${libraries[@]}"}) || return 1
    # shellcheck disable=SC2086  # several words each
    $CC -w $compile $CFLAGS -o "$work/try" "$work/try.c" $LDFLAGS -Wl,--no-as-needed $link
} 2>/dev/null

there() {
    local kind
    for kind in ${1//,/ }; do
        case $kind in
            header:* | library:*) ! links "$kind" || return 0 ;;
            /*) ! compgen -G "$kind" >/dev/null || return 0 ;;
            *) ! program_there "$kind" || return 0 ;;
        esac
    done
    return 1
}

# find_missing PACKAGE...: sets the array missing. All libraries are tried at once first, because they are there as a rule.
find_missing() {
    local package compiled=() all=0
    for package in "$@"; do
        [[ ${proof[$package]} != header:* && ${proof[$package]} != library:* ]] || compiled+=("${proof[$package]}")
    done
    ! links "${compiled[@]}" || all=1
    missing=()
    for package in "$@"; do
        case $all${proof[$package]} in
            1header:* | 1library:*) ;;
            *) there "${proof[$package]}" || missing+=("$package") ;;
        esac
    done
    # A library that links may still not be found when a program starts.
    if ((all)) && ! "$work/try" 2>"$work/said" && grep -q 'shared librar' "$work/said"; then
        echo "set-up: a program that is linked here does not start: $(sed 's/.*libraries: //; q' "$work/said"); put its folder into" \
            "LD_LIBRARY_PATH, or into LDFLAGS as -Wl,-rpath,FOLDER" >&2
        exit 1
    fi
}

# apt asks nothing and takes nothing from our stdin, which may belong to a pipe.
apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$work/log" 2>&1
}

main() {
    [[ $# -gt 1 && ($1 == install || $1 == check) ]] || { echo "usage: $0 install|check PURPOSE... (build, mnist, demo, tensorboard, onednn, test, suite, bench, simulate, fuzz)" >&2; exit 2; }
    local action=$1 column command package reasons='' elsewhere='without root: docs/start/install.md'
    shift
    distribution
    read_table "$@"
    [[ ${#packages[@]} -gt 0 ]] || { echo "$0: nothing has the purpose '$*'" >&2; exit 2; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT

    local missing
    find_missing "${packages[@]}"
    [[ ${#missing[@]} -gt 0 ]] || exit 0

    for package in "${missing[@]}"; do
        reasons+="${reasons:+, }${name[$package]} (${why[$package]})"
        [[ " $command " == *" ${name[$package]} "* || -z $command ]] || command+=" ${name[$package]}"
    done
    case $command in
        '') echo "set-up: missing, by Debian's names: $reasons; install their counterparts; $elsewhere" >&2 && exit 1 ;;
        apt-get*) ;;
        *) echo "set-up: missing: $reasons; as root, run: $command ($elsewhere)" >&2 && exit 1 ;;
    esac
    if [[ $action == check ]]; then
        echo "set-up: missing: $reasons; run: make deps FOR='$*' ($elsewhere)" >&2
        exit 1
    fi

    if [[ $(id -u) -eq 0 ]]; then
        as_root=()
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 && -t 2 ]]; }; then
        as_root=(sudo)
    else
        echo "set-up: missing: $reasons, and no right to install; as root, run: $command ($elsewhere)" >&2
        exit 1
    fi

    echo "set-up: installing $reasons"
    # The package lists may be absent (container images) or old, so a failed first try is worth one update.
    if ! apt install -y --no-install-recommends "${missing[@]}"; then
        if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; then
            echo "set-up: apt-get failed ($(grep -m1 '^E:' "$work/log" || echo 'no reason given')); as root, try: apt-get update && $command" >&2
            exit 1
        fi
    fi
    find_missing "${missing[@]}"
    if [[ ${#missing[@]} -gt 0 ]]; then
        echo "set-up: installed, and still not found: ${missing[*]}; are CC, MPICC, MPIEXEC, CFLAGS and LDFLAGS right?" >&2
        exit 1
    fi
}

main "$@"
