#!/usr/bin/env bats
# darknet cmn check and darknet cmn bench on one node.
# shellcheck disable=SC2154  # mpiexec: helpers.bash

load helpers

setup() {
    enter_folder
}

# check_on N ARGUMENTS...: what it says goes to report.txt.
check_on() {
    darknet_on "$1" cmn check "${@:2}" >report.txt 2>err.txt || { local status=$?; cat report.txt err.txt; return $status; }
}

# bench_on N ARGUMENTS...: table.txt has the rows without comments.
bench_on() {
    darknet_on "$1" cmn bench "${@:2}" >bench.txt 2>err.txt || { local status=$?; cat bench.txt err.txt; return $status; }
    grep -v '^#' bench.txt >table.txt || true
}

communicators() {
    "$DARKNET" cmn list -tsv | awk -F '\t' '$1 == "communicators" { print $2 }'
}

# spoiled ARGUMENTS...: darknet on 2 ranks, with an MPI_Allreduce that adds 1 to one float of many, on rank 1.
spoiled() {
    printf '%s\n' '#include <mpi.h>' \
        'int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)' '{' \
        '    int rank, code = PMPI_Allreduce(in, out, n, type, op, comm);' \
        '    MPI_Comm_rank(comm, &rank);' \
        '    if (rank == 1 && type == MPI_FLOAT && n > 900) ((float *)out)[777] += 1;' \
        '    return code;' '}' >spoil.c
    mpicc -shared -fPIC -o spoil.so spoil.c
    # A space would end the name in LD_PRELOAD, where a path without a slash is looked up in LD_LIBRARY_PATH, which may hold one.
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 2 -x LD_LIBRARY_PATH="$PWD" -x "LD_PRELOAD=spoil.so:${LD_PRELOAD:-}" "$DARKNET" "$@"
}

@test "check: a line for each rank, what was tried, a diagnosis, status 0" {
    for n in 1 2 3; do
        check_on "$n"
        cat report.txt
        grep -qE "^darknet-cmn [0-9.]+, $n ranks? on 1 node$" report.txt
        [[ $(grep -cE "^[0-9]+ +0 +[0-9]+ +0 +no +[0-9]+ +CPU +$(hostname), [0-9,-]+ of [0-9]+$" report.txt) -eq $n ]]
        grep -qE "^node 0: $(hostname), $n ranks?$" report.txt
        grep -qE '^  program +darknet-cmn [0-9.]+, file [0-9a-f]{16}$' report.txt
        grep -qE '^  MPI +Open MPI v' report.txt
        grep -qE '^  CUDA .*; NCCL: ' report.txt
        grep -qE '^  network .*lo 127\.0\.0\.1/8' report.txt
        grep -qE '^  memory +[0-9.]+ GiB free; /dev/shm [0-9.]+ GiB, .* shared window of 64 MiB' report.txt
        grep -qE '^  MPI_Allreduce +works$' report.txt
        [[ $(grep -cE '^  ranks [0-9]+ and [0-9]+: [0-9.]+ us, [0-9.]+ GB/s$' report.txt) -eq $((n - 1)) ]]
        grep -q "^diagnosis: good: $n ranks\? can train together$" report.txt
        run -1 grep '^diagnosis: fault' report.txt
    done
    [[ $(tail -n 1 report.txt) == diagnosis:* ]]
    "$DARKNET" cmn check >report.txt
    grep -q '^diagnosis: good: 1 rank ' report.txt
    grep -q '^diagnosis: note: one rank: .*mpiexec -n N' report.txt
}

@test "check: every communicator works or says why not; what is chosen" {
    check_on 2
    while IFS= read -r name; do
        grep -qE "^  $name +(works$|not here: .)" report.txt
    done < <(communicators)
    grep -qE '^  chosen: [a-z_]+ \(auto: .+\)$' report.txt
    check_on 2 -cmn_communicator naive
    grep -q '^  chosen: naive (as asked)$' report.txt
}

@test "check with a cfg: images, gradients, communicator" {
    mlp_cfg batch=20 subdivisions=2 cmn_communicator=flat >mlp.cfg
    check_on 3 mlp.cfg
    tail -n 4 report.txt
    grep -q '^cfg mlp.cfg: 60 images a step; rank 0 computes 20 of them in 2 micro-batches$' report.txt
    grep -qE '^  gradients: 4 tensors, 50890 floats; 0\.2 MiB per rank; communicator flat ' report.txt
    [[ $(tail -n 1 report.txt) == 'diagnosis: good: the cfg can be trained here' ]]
    check_on 3 mlp.cfg -cmn_batch global
    grep -q '^cfg mlp.cfg: 20 images a step; rank 0 computes 6 of them in 1 micro-batch$' report.txt
    run -1 grep -q connected err.txt
}

@test "check with a cfg that cannot be trained: one line after the report" {
    mlp_cfg cmn_comunicator=flat >mlp.cfg
    fails_clearly_on 2 'unknown key cmn_comunicator.*cmn_communicator' cmn check mlp.cfg
    grep -q '^diagnosis: good' fails.out
    mlp_cfg cmn_communicator=single >mlp.cfg
    fails_clearly_on 2 'unknown communicator single' cmn check mlp.cfg
    fails_clearly_on 2 'nothing.cfg \(No such file' cmn check nothing.cfg
    mlp_cfg >odd.cfg
    printf '[nolayer]\n' >>odd.cfg
    fails_clearly_on 2 'nolayer' cmn check odd.cfg
}

@test "check and bench: arguments that they do not know" {
    fails_clearly_on 2 'cmn check: unknown argument -json; known are: ' cmn check -json
    fails_clearly_on 2 'one cfg.* a.cfg and b.cfg' cmn check a.cfg b.cfg
    fails_clearly_on 2 'unknown key cmn_timout: did you mean cmn_timeout' cmn check -cmn_timout 3
    fails_clearly_on 2 'cmn_timeout: the value is missing' cmn bench -cmn_timeout
    fails_clearly 'cmn_timeout=5: a blank stands between key and value: -cmn_timeout 5$' "$DARKNET" cmn bench -cmn_timeout=5
    fails_clearly_on 1 'cmn bench: -sizes: 4X is no size' cmn bench -sizes 4X
    fails_clearly_on 2 'unknown communicator flatt: did you mean flat' cmn bench -communicators flatt
    fails_clearly_on 2 'pure_nccl cannot be used here: .' cmn bench -communicators pure_nccl -nogpu
    fails_clearly_on 2 'cmn_communicator=flat: it takes a list: -communicators flat' cmn bench -cmn_communicator flat
}

@test "an unknown command names the nearest, once under mpiexec, also when the rank that speaks is late" {
    # shellcheck disable=SC2016  # the rank's shell expands it
    late=(sh -c '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 1; exec "$@"' late)
    fails_clearly 'given without -cmn' "${mpiexec[@]}" -n 3 "${late[@]}" "$DARKNET" classifier train a.data b.cfg -cmn_seed 7
    run -1 "${mpiexec[@]}" -n 3 "${late[@]}" "$DARKNET" cmn chek
    [[ $output == *'unknown command chek: did you mean check'* ]]
    [[ $(grep -c 'unknown command' <<<"$output") -eq 1 ]]
}

@test "check: processes that a launcher of another MPI started alone" {
    run -1 env PMI_SIZE=3 PMI_RANK=0 "$DARKNET" cmn check
    [[ $output == *'diagnosis: fault: the launcher started 3 processes, but each of them is alone'* ]]
    run -1 --separate-stderr env PMI_SIZE=3 PMI_RANK=1 "$DARKNET" cmn check
    [[ -z $output ]]
    fails_clearly 'started 2 processes, but each of them is alone' env MPI_LOCALNRANKS=2 MPI_LOCALRANKID=0 "$DARKNET" cmn bench
    mlp_cfg >mlp.cfg
    printf 'classes=10\n' >small.data
    fails_clearly 'started 3 processes, but each of them is alone' env PMI_SIZE=3 PMI_RANK=0 "$DARKNET" classifier train small.data mlp.cfg -cmn
}

@test "check: the launcher's numbers, not those of the daemons that Slurm started for it" {
    run -0 timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 1 env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$DARKNET" cmn check
    [[ $output == *'diagnosis: good: 1 rank '* ]]
}

@test "check: two ranks on one core, and status 1, without a word of ours on the standard error" {
    command -v taskset >/dev/null || skip 'taskset is not installed'
    (($(nproc --all) > 1)) || skip 'this machine has one core'
    core=$(taskset -cp $$ | sed 's/.*: *//; s/[^0-9].*//')
    status=0
    timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 3 taskset -c "$core" "$DARKNET" cmn check >report.txt 2>report.err || status=$?
    cat report.txt report.err
    grep -qE "^diagnosis: fault: ranks 0 and 1 on $(hostname) are bound to one core, number $core .*--bind-to none" report.txt
    run -1 grep 'diagnosis: good' report.txt
    own_lines report.err >report.own
    [[ $status -eq 1 && -f report.own && ! -s report.own ]]
}

@test "check: another program on one rank, and cmn-run hears of an error before the end" {
    cp "$DARKNET" other
    printf 'x' >>other
    # shellcheck disable=SC2016  # the rank's shell expands it
    OMPI_CMN_EVENT_TOKEN=7 run -1 timeout "$HANG_LIMIT" "${mpiexec[@]}" -n 3 sh -c '[ "$OMPI_COMM_WORLD_RANK" != 2 ] || set -- ./other cmn check; exec "$@"' - \
        "$DARKNET" cmn check
    [[ $output == *'diagnosis: fault: different programs: the file that rank 2 on '* ]]
    [[ $(grep -c '^cmn-event:7 {"kind":"error","rank":0,' <<<"$output") -eq 1 ]]
}

# differ PATTERN ARGUMENTS MORE: 2 ranks fail with that line; rank 1 gets MORE arguments. Open MPI 5.0.7's mpiexec crashes
# where a colon separates two commands.
differ() {
    local words more
    read -ra words <<<"$2"
    read -ra more <<<"$3"
    # shellcheck disable=SC2016  # the rank's shell expands it
    printf '%s\n' '#!/bin/sh' "[ \"\$OMPI_COMM_WORLD_RANK\" != 1 ] || set -- \"\$@\" ${more[*]}" 'exec "$@"' >apart.sh
    chmod +x apart.sh
    fails_clearly "$1" "${mpiexec[@]}" -n 2 ./apart.sh "$DARKNET" "${words[@]}"
}

@test "check and bench: other arguments on one rank" {
    differ '^cmn\[rank 1@.*command line differs.*"cmn check", this rank has "cmn check mlp.cfg"' 'cmn check' mlp.cfg
    differ '^cmn\[rank 1@.*command line differs.*"cmn_timeout = 300", this rank has "cmn_timeout = 99"' \
        'cmn bench -sizes 1K' '-cmn_timeout 99'
    differ '^cmn\[rank 1@.*command line differs.*-communicators shm", .*-communicators shm -iters 3"' \
        'cmn bench -sizes 1K -communicators shm' '-iters 3'
}

@test "a tool whose output cannot be written says so" {
    [[ -w /dev/full ]] || skip '/dev/full is missing'
    for tool in list 'list -md' 'list -tsv' help check 'bench -sizes 4 -communicators flat'; do
        echo "$tool"
        status=0
        # shellcheck disable=SC2086  # a tool and its arguments
        timeout "$HANG_LIMIT" "$DARKNET" cmn $tool >/dev/full 2>err.txt || status=$?
        cat err.txt
        [[ $status -eq 1 ]]
        grep -q 'the output cannot be written' err.txt
    done
}

@test "check: wrong sums are found" {
    [[ -z $SAN ]] || skip 'a sanitizer must come before any other library'
    run -1 spoiled cmn check -cmn_communicator naive
    echo "$output"
    grep -qE '^  MPI_Allreduce +FAILS: wrong sums on rank 1$' <<<"$output"
    [[ $output == *'diagnosis: fault: communicator naive: wrong sums on rank 1'* ]]
}

@test "check: a rank that never starts does not hang the others" {
    # shellcheck disable=SC2016  # expanded by the inner shell
    fails_clearly 'nothing moved for 3 s in: the start of MPI.*btl_tcp_if_include' "${mpiexec[@]}" -n 2 \
        sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec sleep 600; fi; exec "$@"' - "$DARKNET" cmn check -cmn_timeout 3
}

@test "bench: a row for each size and contestant, nothing wrong, bandwidths that fit" {
    bench_on 3 -sizes 4,1K,100000 -iters 3
    cat bench.txt err.txt
    for size in 4 1024 100000; do
        for name in MPI_Allreduce naive flat '(memory)'; do
            [[ $(awk -v size="$size" -v name="$name" '$1 == size && $2 == name' table.txt | wc -l) -eq 1 ]]
        done
    done
    # Every communicator is measured, or it is said why not.
    while IFS= read -r name; do
        [[ $(awk -v name="$name" '$2 == name' table.txt | wc -l) -eq 3 ]] || grep -q "^cmn: without $name: ." err.txt
    done < <(communicators)
    awk 'NF != 5 { exit 1 }
        $2 == "dummy" { if ($4 $5 != "--") exit 1; next }
        $2 == "(memory)" { if ($5 != "-") exit 1; next }
        $5 != "0" { exit 1 }
        # As far as figures of one and two decimals allow; busbw of 3 ranks is 4/3 of size / time.
        $3 > 0.05 && (4 / 3 * $1 / ($3 - 0.05) / 1000 + 0.0051 < $4 || 4 / 3 * $1 / ($3 + 0.05) / 1000 - 0.0051 > $4) { exit 1 }' table.txt
    grep -qE '^# +size \(B\) +communicator +time \(us\) +busbw \(GB/s\) +#wrong$' bench.txt
}

@test "bench: wrong sums are counted, and give status 1" {
    [[ -z $SAN ]] || skip 'a sanitizer must come before any other library'
    run -1 spoiled cmn bench -sizes 1K,1M -communicators MPI_Allreduce -iters 2
    echo "$output"
    # On one of two ranks one float of 1 MiB is wrong, and none of 1 KiB.
    grep -qE '^ +1024 +MPI_Allreduce .* 0$' <<<"$output"
    grep -qE '^ +1048576 +MPI_Allreduce .* 1$' <<<"$output"
}

@test "bench: more memory than there is, is refused before it is taken" {
    free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    ((free < 2 * 5 * 4096)) || skip 'this machine has too much memory for the largest size'
    fails_clearly_on 2 'MiB of memory are needed for [0-9]+ candidates on 2 ranks.*smaller -sizes' cmn bench -sizes 4G
}

@test "what a key rules out takes no part in check and bench either, as in training" {
    run -0 "${mpiexec[@]}" -n 2 "$DARKNET" cmn check -nogpu -cmn_compress fp16
    echo "$output"
    grep -qE '^  naive +not here: cmn_compress=.* does not go with communicator naive: .*: use flat' <<<"$output"
    grep -qE '^  shm +not here: cmn_compress=fp16 does not go with ranks on one node: .*flat' <<<"$output"
    (($(grep -cE '^  [a-z_]+ +works' <<<"$output") == 1))
    grep -qE '^  chosen: flat' <<<"$output"
    fails_clearly 'cmn_compress=bf16 does not go with communicator naive: it sends 32 bits: use flat' "${mpiexec[@]}" -n 2 "$DARKNET" cmn bench -nogpu -sizes 4K \
        -communicators naive -cmn_compress bf16
}
