#!/usr/bin/env bash
# faults.sh [FAULT...]: lets each fault happen to a training under plain mpiexec TRIES times, at random moments. Measures how long it
# takes to the message and to the end of all processes, and notes mpiexec's status and what is left. Asserts nothing.
#
#   ctrl-c   SIGINT to mpiexec         kill   SIGKILL of a rank         link      a node's link is cut (emulated nodes; root)
#   term     SIGTERM to mpiexec        stop   SIGSTOP of a rank         launcher  SIGKILL of mpiexec
#
# Usage: make bench-faults [TRIES=20]
set -euo pipefail
cd "$(dirname "$0")/.."

TRIES=${TRIES:-20}
# In a mount namespace of its own, the script has made everything in /dev/shm itself.
if [[ -z ${FAULTS_ALONE:-} && $(id -u) -eq 0 ]] && unshare --mount true 2>/dev/null; then
    FAULTS_ALONE=1 exec unshare --mount --propagation private "$0" "$@"
fi
[[ -z ${FAULTS_ALONE:-} ]] || mount -t tmpfs -o mode=1777 none /dev/shm

. bench/common.bash
. tests/hosts/cluster.bash
(($#)) || set -- ctrl-c term kill stop link launcher
# The time between SIGTERM and SIGKILL is mpiexec's default, and not the Makefile's.
unset OMPI_MCA_odls_base_sigkill_timeout
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
DARKNET=$(realpath "$DARKNET")
mnist_of 6000
awk '/^cmn_epochs/ { next } /^max_batches/ { print "max_batches=10000000"; next } { print }' cfg/mnist_mlp.cfg >"$work/x.cfg"
ln -s "$PWD/data" "$work/data"
cd "$work"
training=("$DARKNET" classifier train bench.data x.cfg -cmn -cmn_seed 1 -cmn_validate 0 -cmn_timeout 3 -cmn_checkpoint 20)
keepalive=(--mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 5)

now() {
    echo $((${EPOCHREALTIME/[^0-9]/} / 1000))
}

# seconds FILE: prints the median and the most, and of how many tries where these are not all.
seconds() {
    sort -n "$1" | awk -v tries="$TRIES" '{ x[NR] = $1 } END {
        if (NR) printf "%.2f, %.2f", x[int((NR + 1) / 2)] / 1000, x[NR] / 1000
        if (NR && NR < tries) printf "; %d of %d", NR, tries }'
}

# Prints the process numbers of the ranks.
ranks() {
    local pid
    if [[ $fault == link ]]; then
        # shellcheck disable=SC2016  # expanded by the inner shell
        cluster_run sh -c 'ps -A -o pid=,comm= | sed -n "s/ darknet\$//p"'
    else
        grep -lsz "^FAULTS_RUN=$work\$" /proc/[0-9]*/environ 2>/dev/null | sed 's|/proc/||; s|/environ||' | while read -r pid; do
            [[ $(readlink "/proc/$pid/exe") != "$DARKNET" ]] || echo "$pid"
        done
    fi
}

alive() {
    local pid
    for pid in "$@"; do
        ! grep -qs '^State:.[^ZX]' "/proc/$pid/status" || return 0
    done
    return 1
}

# Succeeds if mpiexec or a rank runs. A cluster has process numbers of its own.
any_runs() {
    if [[ $fault == link ]]; then
        alive "$started" || [[ -n $(cluster_left) ]]
    else
        alive "$started" "${running[@]}"
    fi
}

start() {
    local words job=()
    rm -rf out
    read -ra words <<<"$MPIEXEC -n 2"
    if [[ $fault == link ]]; then
        cluster_job 1+1
        words=("${job[@]}" "${keepalive[@]}")
    fi
    FAULTS_RUN=$work "${words[@]}" "${training[@]}" >out.log 2>err.log &
    started=$!
    until compgen -G 'out/*.checkpoint' >/dev/null; do
        kill -0 "$started" || { cat err.log >&2; exit 1; }
        sleep .05
    done
    # The watchdogs of several nodes connect in two seconds.
    sleep "$([[ $fault != link ]] || echo 2).$((RANDOM % 1000))"
    mapfile -t running < <(ranks)
}

hit() {
    local one=${running[RANDOM % ${#running[@]}]}
    case $fault in
        ctrl-c) kill -INT "$started" ;;
        term) kill -TERM "$started" ;;
        kill) kill -KILL "$one" ;;
        stop) kill -STOP "$one" ;;
        link) cluster_run ip -n node2 link set eth0 down ;;
        launcher) kill -KILL "$started" ;;
    esac
}

declare -A message=(
    [ctrl-c]='asked to stop' [term]='asked to stop'
    [kill]='exited on signal|has died|all its processes have ended|rank [01]@?.* (ended|died)' [stop]='is stopped'
    [link]='does not answer|lost communication' [launcher]='nobody is left to say it'
)

leftovers() {
    local pid newest
    case $fault in
        link)
            cluster_left | sed 's/.*/a process/' >>left
            cluster_run find /run/cluster -path '*/shm/*' -type f | sed 's/.*/a file in \/dev\/shm/' >>left
            cluster_run find /run/cluster -maxdepth 1 \( -name 'ompi.*' -o -name 'prte*' \) | sed "s/.*/Open MPI's session folder/" >>left
            ;;
        *)
            for pid in "${running[@]}"; do ! alive "$pid" || echo 'a process' >>left; done
            find /dev/shm -type f 2>/dev/null | sed 's|.*|a file in /dev/shm|' >>left
            find "$TMPDIR" -mindepth 1 -maxdepth 1 | sed "s/.*/Open MPI's session folder/" >>left
            ;;
    esac
    find out -name '*.part' | sed 's/.*/a half-written file/' >>left
    newest=$(find out -name '*.checkpoint' | sort -t - -k 2 -n | tail -n 1)
    ! "$DARKNET" cmn checkpoint "$newest" >/dev/null 2>&1 || echo checkpoint >>intact
    [[ ! -s out/x.weights ]] || echo weights >>intact
}

clear() {
    kill -KILL "$started" 2>/dev/null || true
    wait "$started" 2>/dev/null || true
    if [[ $fault == link ]]; then
        cluster_down
    else
        kill -KILL "${running[@]}" 2>/dev/null || true
        find /dev/shm "$TMPDIR" -mindepth 1 -delete 2>/dev/null || true
    fi
}

try() {
    local began said='' ended='' status=0
    if [[ $fault == link ]]; then
        cluster_up 2 || { echo "link: $cluster_why" >&2; return 1; }
    fi
    start
    began=$(now)
    hit
    while (($(now) - began < 60000)); do
        if [[ -z $said ]] && grep -aEq -- "${message[$fault]}" err.log; then
            said=$(($(now) - began))
        fi
        if ! any_runs; then
            ended=$(($(now) - began))
            break
        fi
        sleep .01
    done
    if [[ -z $said ]] && grep -aEq -- "${message[$fault]}" err.log; then
        said=$ended
    fi
    [[ -z $said ]] || echo "$said" >>said
    [[ -z $ended ]] || echo "$ended" >>ended
    if ! alive "$started"; then
        wait "$started" || status=$?
        echo "$status" >>status
    fi
    sleep .3
    leftovers
    clear
}

counts() {
    sort "$1" | uniq -c | awk -v tries="$TRIES" '{ n = $1; sub(/^ *[0-9]+ /, ""); printf "%s%s", (NR > 1 ? ", " : ""), $0
        if (n != tries) printf " (%d)", n } END { if (!NR) printf "nothing" }'
}

for fault; do
    : >said; : >ended; : >status; : >left; : >intact
    for ((i = 0; i < TRIES; i++)); do
        try || continue 2
    done
    row fault "$fault" 'message after, s (median, most)' "$(seconds said)" 'all ended after, s' "$(seconds ended)" \
        status "$(counts status)" intact "$(counts intact)" 'left (times)' "$(counts left)"
done
results faults TRIES
