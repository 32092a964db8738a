# shellcheck shell=bash
# bench/simulate.sh and bench/simulate-check.sh share these functions. `simulations` is a folder for what they build.
#
#   simulation_compile COMPILER PROGRAM   compiles bench/simulate.c with what it needs of cmn/
#   simulation_layers NET FILE            writes the layers of NET: NAME:TENSORS:STEP_MS:MB has tensors of one size, NAME:CFG:STEP_MS[:MB]
#                                         the layers of a cfg, whose floats are scaled in proportion where MB says another sum
#   simulation_run RANKS PLATFORM HOSTS ARGUMENTS...   runs bench/simulate.c in simulated time

simulations=${BUILD:-build/cpu}/simulate
mkdir -p "$simulations"

simulation_needs() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "simulate: $program is not there: install libsimgrid-dev" >&2; exit 2; }
    done
}

simulation_compile() {
    "$1" -std=gnu11 -O2 -w -Icmn -o "$2" "${@:3}" bench/simulate.c cmn/transports/{sums,schedule,sum_tree}.c \
        cmn/mpi/{call,group}.c cmn/base/{log,fatal,memory,float16,reduce,status,job_stderr}.c -lm
}

simulation_layers() {
    local layers mb
    IFS=: read -r _ layers _ mb <<<"$1"
    if [[ $layers =~ ^[0-9]+$ ]]; then
        awk -v tensors="$layers" -v mb="$mb" 'BEGIN { for (i = 0; i < tensors; i++) print int(mb * 1e6 / 4 / tensors), 1 }'
    else
        awk -f bench/layers.awk "$layers" |
            awk -v mb="${mb:-0}" '{ n[NR] = $1; took[NR] = $2; all += $1 }
                END { for (i = 1; i <= NR; i++) print int(mb ? n[i] * mb * 1e6 / 4 / all : n[i]), took[i] }'
    fi >"$2"
}

# SimGrid's own factors come from a calibration of another network, and are replaced. EFFICIENCY is the payload's part of the link (1448 of
# 1538 bytes on an Ethernet wire), MESSAGE the microseconds that each rank spends on sending a message, and on receiving it. A test costs
# nothing: see cmn_simulated_yield.
simulation_run() {
    local ranks=$1 platform=$2 hosts=$3 each=${MESSAGE:-2}e-6
    shift 3
    smpirun -np "$ranks" -platform "$platform" -hostfile "$hosts" "$simulations/simulate" \
        --cfg=smpi/simulate-computation:no --cfg=smpi/test:0 --cfg=smpi/grow-injected-times:no \
        --cfg=network/crosstraffic:0 --cfg=smpi/bw-factor:"0:${EFFICIENCY:-0.94}" --cfg=smpi/lat-factor:0:1 \
        --cfg=smpi/os:"0:$each:0" --cfg=smpi/ois:"0:$each:0" --cfg=smpi/or:"0:$each:0" \
        --log=root.thres:critical "$@" 2>"$simulations/log" || { cat "$simulations/log" >&2; return 1; }
}
