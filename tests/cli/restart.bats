#!/usr/bin/env bats
# shellcheck disable=SC2030,SC2031,SC2154  # tests are functions that shellcheck takes for subshells
# shellcheck disable=SC2016  # lines for a stand-in
# cmn-run: when it starts a job again, and from what. These tests run over a stand-in for mpiexec, which ends as it is told; what follows
# from each end is a row in tests/unit/run/diagnosis.c, and real jobs are in restart_jobs.bats.

load helpers
load restart

setup() {
    enter_folder
    lost='printf "%s\n" "mpiexec noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed)." >&2; exit 137'
    crash='printf "%s\n" "mpiexec noticed that process rank 1 with PID 7 on node b exited on signal 11 (Segmentation fault)." >&2; exit 139'
}

# stand_in LINE...: an mpiexec that runs a line of bash for each attempt, in turn. `machines` lists those that do not answer.
stand_in() {
    mkdir -p fake
    printf '%s\n' "$@" >plan
    : >machines
    cat >fake/mpiexec <<'END'
#!/bin/bash
set -euo pipefail
if [[ ${*: -2} == 'sleep 1' ]]; then
    [[ $* =~ -host\ ([^:]*):1 ]]
    if grep -qx "${BASH_REMATCH[1]}" machines; then
        printf -- '-----\n\nno route to %s\n' "${BASH_REMATCH[1]}" >&2
        exit 255
    fi
    exit 0
fi
n=$(($(cat attempts 2>/dev/null || echo 0) + 1))
echo "$n" >attempts
printf '%s\n' "$*" >"words-$n"
printf '%s\n' "${OMPI_CMN_REACHED-}" >"reached-$n"
eval "$(sed -n "${n}p" plan)"
END
    echo 'exit 1' >fake/darknet
    chmod +x fake/mpiexec fake/darknet
    rm -f attempts words-* reached-* cmn-run.log
}

# event KIND RANK@HOST ITERATION TEXT: bash that writes what a rank writes for cmn-run.
event() {
    printf "printf 'cmn-event:%%s {\"kind\":\"%s\",\"rank\":%d,\"host\":\"%s\",\"phase\":\"forward\",\"iteration\":%d,\"text\":\"%s\"}\\\\n' \"\$OMPI_CMN_EVENT_TOKEN\" >&2; " \
        "$1" "${2%@*}" "${2#*@}" "$3" "$4"
}

# from N: the event of a training that resumes from the checkpoint of iteration N.
from() {
    event resume 0@a "$1" "out/x-$1.checkpoint"
}

# restarts STATUS TRIES ARGUMENTS...: cmn-run over the stand-in ends so, after so many attempts.
restarts() {
    local status=0 expected=$1 attempts=$2
    shift 2
    PATH=$PWD/fake:$PATH timeout --kill-after=5 "$HANG_LIMIT" "$CMN_RUN" "$@" >run.out 2>run.err || status=$?
    cat run.err cmn-run.log 2>/dev/null || true
    echo "status $status after $(cat attempts 2>/dev/null || echo 0) attempts"
    [[ $status -eq $expected && $(cat attempts 2>/dev/null || echo 0) -eq $attempts ]]
}

# refused PATTERN ARGUMENTS...: one line that matches, status 1, and nothing is started.
refused() {
    local pattern=$1 status=0
    shift
    PATH=$PWD/fake:$PATH timeout 200 "$CMN_RUN" "$@" >run.out 2>run.err || status=$?
    cat run.err
    [[ $status -eq 1 && $(wc -l <run.err) -eq 1 && ! -e attempts ]]
    grep -Eq -- "^cmn-run: $pattern" run.err
}

train=(-- darknet classifier train x.data x.cfg -cmn -cmn_checkpoint 5)

# ends STATUS TRIES LINE...: two ranks over a stand-in of these lines; `options` stand before the command, and `keys` behind it.
ends() {
    stand_in "${@:3}"
    # shellcheck disable=SC2086  # words, or none
    restarts "$1" "$2" -n 2 ${options:-} "${train[@]}" ${keys:-}
}

@test "what fails is started again, from the checkpoint; what would end the same way is not" {
    ends 0 3 "$lost" "$(from 5)exit 75" "$(from 10)exit 0"
    grep -Eq '^20[0-9-]*T[0-9:.]*Z cmn-run\[[0-9]+\] start +attempt 1, 2 ranks: mpiexec .*--mca odls_base_sigkill_timeout 0 -n 2 darknet classifier' cmn-run.log
    grep -Eq 'failure +status 137: rank 1 on b ended by signal 9' cmn-run.log
    grep -Eq 'resume +from out/x-10.checkpoint, iteration 10$' cmn-run.log
    grep -Eq 'done +3 attempts, status 0' cmn-run.log
    ends 1 1 'exit 1'
    ends 1 1 "$(event error 1@b -1 'x.data: No such file')exit 143"
    # A rank that somebody has ended by hand.
    ends 143 1 'echo "mpirun noticed that process rank 0 with PID 7 on node b exited on signal 15 (Terminated)." >&2; exit 143'
    grep -qx 'cmn-run: rank 0 on b ended by signal 15 (Terminated)' run.err
    ends 66 1 'printf "%s\n" "prterun was unable to find the specified executable file, and therefore did" "   Node:       b" "   Executable: /x/dark net" >&2; exit 66'
    grep -q '^cmn-run: b: /x/dark net is not there, or may not be executed: ' run.err
    ends 1 1 'echo "[mpiexec@a] match_arg (utils/args/args.c:163): unrecognized argument mca" >&2; exit 255'
    [[ $(grep -c '^cmn-run: ' run.err) -eq 1 ]]
    grep -q "^cmn-run: mpiexec is not Open MPI's, .*: start the training by mpiexec itself$" run.err
    # A machine that is cut off may hold the backup folder until it notices; a job of somebody else is another matter.
    still="$(event locked 0@a -1 'process 7 on c')$(event error 0@a -1 'out: process 7 on c may train x there: wait')exit 1"
    ends 0 3 "$lost" "$still" 'exit 0'
    ends 1 1 "$still"
    # Open MPI 5 breaks its sentences into lines, and ends its boxes with a zero byte.
    ends 0 2 'printf "%s\n" ---- "prterun noticed that process rank 1 with PID 7 on node" "a-name-that-is-longer exited on" "signal 9 (Killed)." ---- >&2; exit 137' 'exit 0'
    grep -Eq 'fault +rank 1 on a-name-that-is-longer ended by signal 9 \(Killed\)$' cmn-run.log
    ends 0 2 'printf "%s\n\0" "-----" >&2; printf "%s\n" "[a:00000] *** An error occurred in Socket closed" "[a:00000] *** on a NULL communicator" >&2; exit 14' 'exit 0'
    grep -Eq 'failure +status 14: a rank or a machine failed: MPI says that the connection to a rank broke$' cmn-run.log
    ends 0 2 'kill -KILL $$' 'exit 0'
}

@test "what could not be started for a moment, or could be before, is started again as often as others" {
    version="printf 'The Slurm process starter requires a minimum Slurm version level\nof v17.11. The detected version being used here is:\n\n  Major: 0\n  Minor: 0\n' >&2; exit 250"
    # Nothing was started that -clear would lose.
    options='-retries 2' keys=-clear ends 75 3 "$version" "$version" "$version" 'exit 0'
    grep -Eq 'failure +status 250: mpiexec could not use Slurm: no version could be read$' cmn-run.log
    # A machine that came back may lack its network folders for a while.
    folder='printf "%s\n" "mpiexec was unable to launch the specified application as it could not" "change to the specified working directory:" "" "Working directory: /net/my own" "Node: b" >&2; exit 135'
    ends 0 3 "$lost" "$folder" 'exit 0'
    grep -Eq 'failure +status 135: b: /net/my own is not there' cmn-run.log
    ends 135 1 "$folder" 'exit 0'
    grep -Eq '^cmn-run: b: /net/my own is not there, or may not be executed: the program and the current folder have to lie at the same path on all machines$' run.err
    # Whatever mpiexec says; and not for ever.
    options='-retries 2' ends 75 3 "$lost" 'echo "An internal error has occurred in ORTE:" >&2; exit 213' 'exit 1' 'exit 0'
    # Not where ranks had begun.
    ends 3 2 "$lost" "$(event start 0@a -1 '')exit 3" 'exit 0'
}

@test "retries count attempts without a new checkpoint; the same crash twice is enough" {
    local options='-retries 1'
    ends 75 2 "$lost" "$lost" "$lost"
    grep -Eq 'give-up +2 attempts without a new checkpoint' cmn-run.log
    ends 75 4 "$(from 5)$lost" "$(from 10)$lost" "$(from 15)$lost" "$(from 15)$lost" "exit 0"
    ends 75 3 "$(event checkpoint 0@a 5 'r 120 5 a')$lost" "$(event checkpoint 0@a 9 'r 216 9 a')$lost" "$lost" "exit 0"
    options=
    ends 139 2 "$(from 5)$crash" "$(from 5)$crash" "exit 0"
    grep -Eq 'give-up +2 times in a row the same end' cmn-run.log
    stall="$(event start-timeout 1@b -1 'nothing moved for 60 s in: the start of MPI')exit 75"
    ends 75 2 "$stall" "$stall" "exit 0"
    grep -Eq 'failure +status 75: MPI did not come up on all ranks; rank 1 on b: nothing moved' cmn-run.log
    ends 0 3 "$(from 5)$crash" "$(from 10)$crash" "exit 0"
}

# It may lie on a disk that no longer answers.
@test "cmn-run never looks into the backup folder" {
    strace -o trace true 2>/dev/null || skip 'no strace here'
    printf 'backup = out\n' >x.data
    printf '[net]\ncmn_checkpoint=5\n' >x.cfg
    mkdir -p out
    stand_in "$(event checkpoint 0@a 5 'r 120 5 a')$lost" 'exit 0'
    PATH=$PWD/fake:$PATH strace -o trace -e trace=%file "$CMN_RUN" -n 2 -- darknet classifier train x.data x.cfg -cmn 2>run.err
    grep -q '"x.cfg"' trace
    run -1 grep '"out' trace
}

@test "an mpiexec that does not end after a fault is ended" {
    ends 0 2 "$(event failure 0@a 7 'nothing came from rank 2')trap '' TERM; while :; do sleep 0.2; done" 'exit 0'
    grep -Eq 'hung +mpiexec does not end' cmn-run.log
    grep -Eq 'failure +status 137: .*: rank 0 on a: nothing came' cmn-run.log
}

# It was seen in a log that a rank printed.
@test "a sentence of mpiexec's that a rank prints does not end a healthy job" {
    said="$(event start 0@a -1 '')echo 'ORTE has lost communication with a remote daemon.' >&2; "
    ends 0 1 "${said}for i in 1 2 3 4 5; do sleep 5; $(event alive 0@a 7 '')done; $(event end 0@a 9 '')exit 0" 'exit 0'
    grep -Eq 'alive +the ranks continue' cmn-run.log
}

@test "a stop that mpiexec drops, as while it starts the ranks, is asked again until the ranks have heard it" {
    # Twice it is dropped; then there would be time for two more.
    ends 143 1 'heard() { n=$((n + 1)); echo USR1 >>heard; ((n < 3)) || { '"$(event stop 0@a 7 '')"'}; }; n=0; trap heard USR1; kill -TERM $PPID; for ((i = 0; i < 400 && n < 3; i++)); do sleep 0.5; done; for ((i = 0; i < 10; i++)); do sleep 0.5; done; exit 143' 'exit 0'
    [[ $(grep -c USR1 heard) -eq 3 ]]
    [[ $(grep -c 'asked to save' cmn-run.log) -eq 1 ]]
    # A rank that does not know the signal yet dies of it; the others miss it.
    ends 130 1 'trap : USR1; kill -INT $PPID; until grep -qs "asked to save" cmn-run.log; do sleep 0.1; done; echo "mpiexec noticed that process rank 1 with PID 7 on node b exited on signal 10 (User defined signal 1)." >&2; '"$(event failure 0@a 7 'rank 1 is gone')"'exit 75' 'exit 0'
    # A rank that is killed while it saves is another matter.
    ends 137 1 'trap : USR1; kill -TERM $PPID; until grep -qs "asked to save" cmn-run.log; do sleep 0.1; done; '"$(event stop 0@a 7 '')$lost" 'exit 0'
    grep -qx 'cmn-run: rank 1 on b ended by signal 9 (Killed): not all was saved' run.err
}

@test "a stop before the job began is no success, though mpiexec says so" {
    stand_in 'trap "exit 0" USR1; touch knows; while :; do sleep 0.1; done'
    PATH=$PWD/fake:$PATH timeout "$HANG_LIMIT" "$CMN_RUN" -n 2 "${train[@]}" >run.out 2>run.err 3>&- &
    started=$!
    wait_for 'an attempt that knows the signal' test -e knows
    kill -USR1 "$(pgrep -P "$started")"
    status=0
    wait "$started" || status=$?
    cat cmn-run.log
    [[ $status -eq 138 ]]
}

@test "an mpiexec that somebody stops is named" {
    stand_in 'kill -STOP $$; exit 0'
    PATH=$PWD/fake:$PATH timeout "$HANG_LIMIT" "$CMN_RUN" -n 2 "${train[@]}" >run.out 2>run.err 3>&- &
    started=$!
    wait_for 'the line about it' grep -Eq '^cmn-run: mpiexec is stopped by signal 19 .*: continue it with kill -CONT [0-9]+$' run.err
    kill -CONT "$(sed -n 's/.*kill -CONT \([0-9]*\)$/\1/p' run.err)"
    wait "$started"
    [[ $(grep -c 'is stopped by' cmn-run.log) -eq 1 ]]
}

@test "nohup: SIGHUP that is ignored stays ignored" {
    stand_in 'until [[ -e go ]]; do sleep 0.1; done; exit 0'
    (trap '' HUP && PATH=$PWD/fake:$PATH exec "$CMN_RUN" -n 2 "${train[@]}" >run.out 2>run.err 3>&-) &
    started=$!
    wait_for 'the first attempt' test -e attempts
    kill -HUP "$started"
    touch go
    wait "$started"
    run -1 grep -E ' stop ' cmn-run.log
}

@test "events: what a terminal or mpiexec --tag-output puts before them does not matter, and people see none of them" {
    ends 0 3 "printf 'half a line \r\\033[K' >&2; $(event failure 0@a 7 'nothing came from rank 2')echo 'the other half' >&2; exit 75" \
        "printf '[1,0]<stderr>:' >&2; $(event resume 0@a 10 out/x-10.checkpoint)printf '[1,1]<stderr>:cn\\n[1,1]<stderr>:' >&2; $(event failure 1@b 12 'a \\\"gone\\\" rank')exit 75" 'exit 0'
    grep -Eq 'fault +rank 0 on a: nothing came from rank 2$' cmn-run.log
    grep -Eq 'resume +from out/x-10.checkpoint, iteration 10$' cmn-run.log
    grep -Eq 'failure +status 75: .*rank 1 on b: a "gone" rank$' cmn-run.log
    grep -Fq $'half a line \r\033[Kthe other half' run.err
    [[ $(grep -c '^\[1,0\]<stderr>:$' run.err) -eq 1 && $(grep -c '^\[1,1\]<stderr>:cn$' run.err) -eq 1 ]]
    run -1 grep -e cmn-event -e kind run.err
}

# shows LINE...: what people have seen, except for cmn-run's own lines.
shows() {
    diff <(printf '%s\n' "$@") <(grep -v '^cmn-run: ' run.err)
}

@test "a box of mpiexec about how ranks ended is shown only where nobody else says it" {
    dashes=------------------------------------------------------------
    boxed() { printf %s "for line in $dashes '$1' 'more of it' $dashes; do echo \"\$line\" >&2; done; "; }
    primary='Primary job  terminated normally, but 1 process returned'
    aborted='MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD'
    killed='prterun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed).'
    lost='ORTE has lost communication with a remote daemon.'
    code='mpiexec detected that one or more processes exited with non-zero status, thus causing'
    other='There are not enough slots available in the system to satisfy the 2'
    local ends=(
        "$(boxed "$primary")$(boxed "$other")$(boxed "$killed")$(boxed "$lost")"
        "$(event failure 0@a 7 'rank 1 is gone')$(boxed "$other")$(boxed "$aborted")$(boxed "$code")"
        "kill -INT \$PPID; until grep -qs 'asked to save' cmn-run.log; do sleep 0.1; done; $(boxed "$primary")$(boxed "$other")"
        "$(event stop 0@a 7 '')$(boxed "$code")$(boxed "$other")"
    )
    for said in "${ends[@]}"; do
        stand_in "trap : USR1; echo first >&2; ${said}echo last >&2; exit 143"
        status=0
        PATH=$PWD/fake:$PATH timeout "$HANG_LIMIT" "$CMN_RUN" -n 2 -retries 0 "${train[@]}" 2>run.err || status=$?
        cat run.err
        shows first "$dashes" "$other" 'more of it' "$dashes" last
    done
    # Nobody says it, and other text between lines of dashes is shown at once.
    ends 3 1 "echo $dashes >&2; $(boxed "$code")echo $dashes >&2; echo mine >&2; echo last >&2; exit 3"
    shows "$dashes" "$dashes" mine last "$dashes" "$code" 'more of it' "$dashes"
    # A box that is too long, or has no end.
    ends 3 1 "printf '%s\n' $dashes '$primary' >&2; seq -f '%0100g' 50 >&2; echo $dashes >&2; exit 3"
    [[ $(wc -l <run.err) -eq 53 ]]
    ends 3 1 "printf '%s\n' $dashes '$primary' >&2; exit 3"
    shows "$dashes" "$primary"
    # With a fault, too: a rank may have said it.
    options='-retries 0' ends 75 1 "$(event failure 0@a 7 'rank 1 is gone')printf '%s\n' $dashes '$primary' mine >&2; exit 75"
    shows "$dashes" "$primary" mine
    # A good end is not explained.
    ends 0 1 "$(boxed "$lost")$(event end 0@a 7 '')" 'exit 0'
    shows "$dashes" "$lost" 'more of it' "$dashes"
}

@test "sentences and other tokens are no events: people see them, and nothing is decided by them" {
    options='-retries 1' ends 75 2 "echo 'cmn: resumed from out/x-5.checkpoint, iteration 5' >&2; echo 'cmn: first checkpoint on the disk' >&2; $lost" \
        "OMPI_CMN_EVENT_TOKEN=00000000000000000001; $(from 7)$lost" 'exit 0'
    run -1 grep resume cmn-run.log
    grep -q '^cmn-event:00000000000000000001 {"kind":"resume"' run.err
    ends 1 1 'printf "cmn-event:%s {\"kind\":\"resume\", other text\n" "$OMPI_CMN_EVENT_TOKEN" >&2; exit 1'
    grep -q '^{"kind":"resume", other text$' run.err
    # Two runs have two tokens.
    ends 0 1 'echo "$OMPI_CMN_EVENT_TOKEN" >>token; exit 0'
    rm attempts
    restarts 0 1 -n 2 "${train[@]}"
    [[ $(sort -u token | grep -cE '^[0-9]{20}$') -eq 2 ]]
}

@test "a warning of a rank stands in the journal" {
    ends 0 1 "$(event warning 0@a 20 'checkpoint of iteration 20 not written: out: No space left on device')exit 0"
    grep -Eq 'warning +checkpoint of iteration 20 not written: out: No space left' cmn-run.log
}

@test "a terminal with stty tostop does not stop the job" {
    command -v script >/dev/null || skip 'script (bsdutils) is not installed'
    stand_in 'echo a row of the table; exit 0'
    command=$(printf '%q ' "$CMN_RUN" -n 2 "${train[@]}")
    PATH=$PWD/fake:$PATH timeout "$HANG_LIMIT" script -qec "stty tostop; $command" screen.txt </dev/null >/dev/null 3>&- || true
    cat screen.txt
    grep -q 'a row of the table' screen.txt
    grep -Eq 'done +1 attempt, status 0' cmn-run.log
}

@test "orphans of a job that have ended do not stay as zombies, while it runs and while machines are asked" {
    # Twenty processes lose their parent and end, here and in the question. Each is gone after that, at once or in a moment.
    stand_in '(for i in {1..20}; do (sleep 0.2 & echo $! >>orphans); done); ./zombies; exit 0'
    cat >zombies <<'END'
#!/bin/bash
for i in $(<orphans); do
    for ((n = 0; n < 600; n++)); do [[ -e /proc/$i ]] || break; sleep 0.1; done
    [[ ! -e /proc/$i ]] || echo "$i" >>left
done
END
    chmod +x zombies
    sed -i 's/^if .* == .sleep 1. .*/&\n    (for i in {1..20}; do (sleep 0.2 \& echo $! >>orphans); done)/' fake/mpiexec
    sed -i 's/^    exit 0$/    .\/zombies; exit 0/' fake/mpiexec
    restarts 0 1 -hosts a:2 "${train[@]}"
    [[ $(wc -l <orphans) -eq 40 && ! -e left ]]
}

@test "a process that outlives mpiexec and writes for ever is ended, and a stop that comes meanwhile counts" {
    writes='(for ((i = 0; i < 1000; i++)); do echo still here >&2; sleep 0.1; done) & '
    ends 0 2 "${writes}sleep 1; $lost" 'exit 0'
    grep -Eq 'left +[12] process' cmn-run.log
    ends 143 1 "${writes}(until grep -qs ' fault ' cmn-run.log; do sleep 0.1; done; sleep 1; kill -TERM \$PPID) & sleep 1; $lost" 'exit 0'
}

state_is() {
    grep -q "^State:.$2" "/proc/$1/status"
}

@test "Ctrl-Z stops cmn-run also while nothing runs: machines are asked, or awaited" {
    stand_in 'exit 0'
    echo b >machines
    PATH=$PWD/fake:$PATH "$CMN_RUN" -hosts a:2,b:3 -wait 300 "${train[@]}" 2>run.err 3>&- &
    started=$!
    wait_for 'the wait' grep -qs 'gone .*waiting' cmn-run.log
    kill -TSTP "$started"
    wait_for 'its stop' state_is "$started" T
    [[ ! -e attempts ]]
    : >machines
    kill -CONT "$started"
    wait "$started"
    # A question that is not answered.
    sed -i 's/^if .* == .sleep 1. .*/&\n    touch asked; sleep 15/' fake/mpiexec
    PATH=$PWD/fake:$PATH "$CMN_RUN" -hosts a:2 "${train[@]}" 2>run.err 3>&- &
    started=$!
    wait_for 'the question' test -e asked
    kill -TSTP "$started"
    wait_for 'its stop' state_is "$started" T
    kill -CONT "$started"
    kill -TERM "$started"
    status=0
    wait "$started" || status=$?
    [[ $status -eq 143 ]]
}

@test "what cannot be started again for a moment is a failure, and not the end" {
    [[ -z $SAN ]] || skip 'sanitizers open files of their own'
    for place in '-n 2' '-hosts a:2'; do
        # cmn-run has room for no further file after its first attempt, until it has said so.
        stand_in "echo \$PPID >pid; prlimit --pid \$PPID --nofile=5:1024; $lost" 'exit 0'
        (wait_for 'the failure' grep -qs 'failure .*could not be started' cmn-run.log && prlimit --pid "$(<pid)" --nofile=1024:1024) 3>&- &
        # shellcheck disable=SC2086  # two words
        restarts 0 2 $place "${train[@]}"
        grep -Eq 'cmn-run: .* cannot be .*: Too many open files' run.err
    done
    # After a move, too, it counts: the limit stays.
    stand_in "$(event start 0@a -1 '')$(event stop 0@a 7 '')$(event leave 1@b 7 '')prlimit --pid \$PPID --nofile=5:1024; exit 143"
    restarts 75 1 -retries 1 -hosts a:2,b:3 "${train[@]}"
    grep -Eq 'gone +b:3 was asked to end: continuing without it' cmn-run.log
}

@test "background jobs of a script that ends with exec cmn-run are left alone" {
    # The second one is in a process group of its own, the third becomes a child of cmn-run when its parent ends.
    cat >script <<'END'
set -m
sleep 300 &
echo $! >>others
set +m
sleep 300 &
echo $! >>others
(sleep 300 & echo $! >>others; sleep 1) &
exec "$@"
END
    stand_in 'sleep 2; (sleep 299 & echo $! >left); exit 1'
    status=0
    PATH=$PWD/fake:$PATH timeout --kill-after=5 "$HANG_LIMIT" bash script "$CMN_RUN" -n 2 "${train[@]}" 3>&- || status=$?
    cat cmn-run.log
    started="$(xargs <others) $(<left)"
    [[ $status -eq 1 && $(wc -l <others) -eq 3 ]]
    for pid in $(<others); do
        ! gone "$pid" || return 1
    done
    gone "$(<left)"
    grep -Eq 'left +1 process' cmn-run.log
}

@test "each attempt is told which training it continues, and how far that has come; what -clear means then is the ranks' to know" {
    keys=-clear ends 0 4 "$(event start 0@a -1 '')$lost" "$(event training 0@a -1 'r 0 -1 a')$lost" "$(event checkpoint 0@a 5 'r 120 5 a')$lost" "$(from 5)exit 0"
    [[ $(cat reached-*) == $'\n\nr 0 -1 a\nr 120 5 a' ]]
    [[ $(grep -l -- '-clear' words-* | xargs) == 'words-1 words-2 words-3 words-4' ]]
}

@test "-clear is not repeated where no rank has said whether it wrote checkpoints, unless none was started" {
    keys=-clear ends 75 1 "$lost" 'exit 0'
    grep -q '^cmn-run: no rank has reported .*OMPI_CMN_EVENT_TOKEN.* -clear' run.err
    keys=-clear ends 0 2 'echo "ORTE was unable to reliably start one or more daemons." >&2; exit 255' 'exit 0'
    [[ $(<words-2) == *-clear* ]]
}

# says TEXT: what the stand-in says of b when it is asked whether it answers; it does not, then.
says() {
    printf '%b\n' "$1" >says
    grep -q 'cat says' fake/mpiexec || sed -i 's/^if .* == .sleep 1. .*/&\n    [[ ! -e says || $* != *"-host b:"* ]] || { cat says >\&2; exit 255; }/' fake/mpiexec
}

# All that ssh and shells say is in tests/unit/run/diagnosis.c; tests/hosts/ssh.bats has real ones.
@test "a machine that a person has to set up is not waited for: one line, status 1" {
    stand_in 'exit 0'
    while IFS='|' read -r text line; do
        says "Welcome to b\n\0$text\n-----\nORTE was unable to reliably start one or more daemons."
        restarts 1 0 -hosts a:2,b:3 -wait 30 "${train[@]}"
        [[ $(wc -l <run.err) -eq 1 ]]
        grep -Eq "^cmn-run: b: $line" run.err
    done <<'END'
Host key verification failed.|its host key is not known here: log in once by hand
Permission denied, please try again.\r\nroot@b: Permission denied (publickey,password).\r|ssh may not log in there without a password: .*ssh-copy-id
END
    # The same where mpiexec finds the machines itself.
    refused='printf "%s\n" "Host key verification failed." "PRTE has lost communication with a remote daemon." "  Remote daemon: [prterun-a-7@0,1] on node b" >&2; exit 255'
    ends 1 1 "$refused" 'exit 0'
    [[ $(grep '^cmn-run: ' run.err) == 'cmn-run: b: its host key is not known here: '* ]]
    ends 0 3 "$lost" "$refused" 'exit 0'
}

@test "a machine that may be there in a moment is waited for, whatever stands before what ssh says" {
    stand_in 'exit 0'
    says '[a:00066] plm:ssh: Warning: setpgid(69,69) failed\nWelcome to b\nssh: Could not resolve hostname b: Temporary failure in name resolution'
    (wait_for 'the wait' grep -qs 'gone .*(ssh: Could not resolve.*waiting' cmn-run.log && rm says) 3>&- &
    restarts 0 1 -hosts a:2,b:3 -wait 60 "${train[@]}"
    # One that starts lets nobody in for a while.
    stand_in "echo 'root@b: Permission denied (publickey).' >says; $lost" 'exit 0'
    says ''
    rm says
    restarts 0 2 -hosts a:2,b:3 "${train[@]}"
    [[ $(<words-2) == *' -host a:2 -n 2 '* ]]
}

@test "a rank that is too young to know a signal dies of it: for a machine that is to be left, and for a move, that is no failure" {
    dies_of() { echo "echo \"mpiexec noticed that process rank 1 with PID 7 on node $1 exited on signal $2 (of it).\" >&2; exit $((128 + $2))"; }
    stand_in "$(dies_of b 15)" 'exit 0'
    restarts 0 2 -hosts a:2,b:3 "${train[@]}"
    [[ $(<words-2) == *' -host a:2 -n 2 '* ]]
    grep -Eq 'gone +b:3 was asked to end: continuing without it' cmn-run.log
    run -1 grep -E ' (failure|pause) ' cmn-run.log
    stand_in "$(dies_of a 15)"
    restarts 143 1 -hosts a:2 "${train[@]}"
    # The list has another name for it, or an address that begins alike.
    stand_in "$(event stop 0@c 7 '')$(event leave 0@c 7 '')exit 143"
    restarts 143 1 -hosts a:2,b:3 "${train[@]}"
    grep -qx 'cmn-run: c was asked to end, and has another name in the list, or none: this ends the job' run.err
    stand_in "$(dies_of 10.0.0.2 15)" 'exit 0'
    restarts 0 2 -hosts 10.0.0.1:2,10.0.0.2:3 "${train[@]}"
    [[ $(<words-2) == *' -host 10.0.0.1:2 -n 2 '* ]]
    printf '%s slots=2\n' a b >hostfile
    stand_in "$(event start 0@a -1 '')$(event training 0@a 5 'x 5')trap '$(dies_of a 10)' USR1; echo 'a slots=2' >hostfile; while :; do sleep 0.1; done" 'exit 0'
    restarts 0 2 -hostfile hostfile -interval 1 "${train[@]}"
    [[ $(<words-2) == *' -host a:2 -n 2 '* ]]
    run -1 grep -E ' (failure|pause) ' cmn-run.log
    # Another order of the same machines is no move.
    stand_in "$(event start 0@a -1 '')$(event training 0@a 5 'x 5')trap 'exit 138' USR1; until ((\$(wc -l <asked) > 3)); do sleep 0.1; done; exit 0" 'exit 0'
    restarts 0 1 -discover 'echo >>asked; printf "%s slots=1\n" a b | if [ $(($(wc -l <asked) % 2)) = 0 ]; then tac; else cat; fi' -interval 1 "${train[@]}"
}

@test "machines that are gone are left out, or waited for, and come back" {
    stand_in "echo b >machines; $lost" "$(from 5): >machines; $lost" 'exit 0'
    restarts 0 3 -hosts a:2,b:3 -mpi '--mca  odls_base_sigkill_timeout 2' "${train[@]}"
    [[ $(<words-1) == *'--mca oob_tcp_keepalive_time 5 '*' --mca odls_base_sigkill_timeout 2 -host a:2,b:3 -n 5 darknet '* ]]
    [[ $(<words-2) == *' --mca odls_base_sigkill_timeout 2 -host a:2 -n 2 darknet '* ]]
    [[ $(<words-3) == *' --mca odls_base_sigkill_timeout 2 -host a:2,b:3 -n 5 darknet '* ]]
    grep -Eq 'gone +b:3 .*no route to b' cmn-run.log
    grep -Eq 'ranks +2 ranks from here on, 5 before: cmn_batch=global keeps the batch and the result' cmn-run.log
    stand_in "echo b >machines; $lost" 'exit 0'
    restarts 0 2 -hosts a:2,b:3 "${train[@]}" -cmn_batch per_rank
    grep -Eq 'ranks +2 ranks from here on, 5 before: with cmn_batch=per_rank' cmn-run.log
    stand_in "echo b >machines; $lost" 'exit 0'
    printf 'a slots=1 # one\n\n# none\nb slots=3\r\0a slots=1\n' >hostfile
    (wait_for 'the wait' grep -qs 'gone .*waiting' cmn-run.log && : >machines) 3>&- &
    restarts 0 2 -hostfile hostfile -wait 60 "${train[@]}"
    [[ $(<words-2) == *' -host a:2,b:3 -n 5 '* ]]
    grep -Eq 'back +all machines answer' cmn-run.log
    # Meanwhile another list ends the wait for a machine that is not in it.
    stand_in "echo b >machines; $lost" 'exit 0'
    printf '%s slots=1\n' a b >hostfile
    (wait_for 'the wait' grep -qs 'gone .*waiting' cmn-run.log && printf '%s slots=1\n' a c >hostfile) 3>&- &
    restarts 0 2 -hostfile hostfile -wait 60 -interval 1 "${train[@]}"
    [[ $(<words-2) == *' -host a:1,c:1 -n 2 '* ]]
    stand_in "printf 'a\nb\n' >machines; $lost" 'exit 0'
    restarts 75 1 -hosts a:2,b:3 "${train[@]}"
    stand_in 'exit 0'
    echo b >machines
    restarts 1 0 -hosts a:2,b:3 "${train[@]}"
    [[ $(wc -l <run.err) -eq 1 ]]
    grep -q '^cmn-run: b:3 cannot be used (no route to b): at the first start .* -wait SECONDS$' run.err
    grep -Eq 'give-up +at the first start all machines must be there$' cmn-run.log
    restarts 1 0 -discover 'exec sleep 100' "${train[@]}"
    [[ $(<run.err) == 'cmn-run: -discover exec sleep 100: it has not answered within 20 s' ]]
    stand_in "echo b >machines; $lost" 'exit 0'
    restarts 0 2 -hosts a:1,b:3 "${train[@]}"
    grep -Eq 'ranks +1 rank from here on, 4 before: ' cmn-run.log
    stand_in 'exit 0'
    # However many there are.
    many=$(printf 'a-machine-with-a-name-that-is-longer-than-others-%d:1,' {1..100})
    restarts 0 1 -hosts "${many%,}" "${train[@]}"
    [[ $(<words-1) == *" -host ${many%,} -n 100 darknet "* ]]
}

@test "-wait does not look at the clock that people set" {
    [[ -z $SAN ]] || skip 'a sanitizer wants to be the first library'
    "${CC:-gcc}" -O1 -shared -fPIC -o still.so "$REPO/tests/patches/fixed_time.c"
    stand_in 'exit 0'
    echo b >machines
    LD_LIBRARY_PATH=$PWD LD_PRELOAD=still.so restarts 1 0 -hosts a:2,b:3 -wait 1 "${train[@]}"
}

@test "what cannot work is refused in one line" {
    stand_in 'exit 0'
    refused '-retries 1: .*no checkpoints.*-cmn_checkpoint' -n 2 -retries 1 -- darknet classifier train x.data x.cfg -cmn
    refused '-cmn is missing' -n 2 -- darknet classifier train x.data x.cfg -cmn_checkpoint 5
    refused '-cmn is missing' -n 2 -- nice ./darknet-gpu detector map x.data x.cfg x.weights
    refused 'the command is missing' -n 2
    refused 'the command is missing' -n 2 --
    refused 'nothing: no program of this name in PATH' -n 2 -- nothing -cmn
    refused './nothing: no such file here' -n 2 -- ./nothing -cmn
    refused './fake: no such file here, or it may not be executed' -n 2 -- ./fake -cmn
    refused '-n x: write a number from 1' -n x "${train[@]}"
    refused '-n: the machines say' -n 2 -hosts a:2 "${train[@]}"
    refused '-wait: SECONDS is missing' -n 2 -wait "${train[@]}"
    refused '-retries: an option of cmn-run stands before the command' -n 2 "${train[@]}" -retries 3
    SLURM_RESTART_COUNT=1 refused '-clear in a job that Slurm has requeued .SLURM_RESTART_COUNT=1. would throw away' -n 2 "${train[@]}" -clear
    refused '--dry-run: an option of cmn-run stands before the command' nice ./darknet-gpu cmn check --dry-run
    refused "-mpi -x A='b c: a quote is not closed" -n 2 -mpi "-x A='b c" "${train[@]}"
    refused "-mpi '-n ...': cmn-run itself tells mpiexec: give it -n" -n 2 -mpi '--bind-to none -n 3' "${train[@]}"
    refused "-mpi '--np ...': cmn-run itself tells mpiexec: give it -hosts" -mpi '--np 3' -hosts a:2 "${train[@]}"
    refused "-mpi '-app ...': cmn-run itself tells mpiexec" -n 2 -mpi '--mca a -n -x -np -app file' "${train[@]}"
    refused "-mpi '-host ...': cmn-run itself tells mpiexec: give it -hosts" -mpi '-host a:3' -hosts a:2 "${train[@]}"
    refused '-retry: no such option; cmn-run -help lists them' -n 2 -retry 2 "${train[@]}"
    refused '-retries: K is missing' -n 2 -retries
    refused '8: no program of this name in PATH' -n 2 8 "${train[@]}"
    refused "--oversubscribe: no such option; .*, and those of mpiexec go into -mpi" -n 2 --oversubscribe -- darknet classifier train x.data x.cfg -cmn
    refused '-hosts a:2,-oProxy:1: write NAME:RANKS' -hosts a:2,-oProxy:1 "${train[@]}"
    echo 'a' >hostfile
    refused 'hostfile:1: say how many ranks a takes: slots=N' -hostfile hostfile "${train[@]}"
    refused '-hostfile none: No such file' -hostfile none "${train[@]}"
    refused 'journal hostfile: this file holds something else' -journal hostfile -n 2 "${train[@]}"
    mkfifo pipe
    refused '-hostfile pipe: no regular file' -hostfile pipe "${train[@]}"
    refused '-hostfile .: no regular file' -hostfile . "${train[@]}"
    refused 'journal pipe: this is a pipe, which may block: name another' -journal pipe -n 2 "${train[@]}"
    refused 'journal no/log: No such file' -journal no/log -n 2 "${train[@]}"
    mkdir only
    cp fake/darknet only
    PATH=$PWD/only run -1 "$CMN_RUN" -n 2 -retries 0 "${train[@]}"
    grep -q 'mpiexec cannot be started: No such file' <<<"$output"
}

# on_one_core COMMAND...: a batch system may have started the tests.
on_one_core() {
    local first
    first=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
    env -u SLURM_JOB_ID -u SLURM_JOB_NUM_NODES PATH="$PWD/fake:$PATH" taskset -c "$first" "$@"
}

# prints LINE ARGUMENTS...: -dry-run on one core prints this line behind mpiexec's options of always, and starts nothing.
prints() {
    local line=$1
    shift
    on_one_core "$CMN_RUN" -dry-run "$@" >run.out 2>run.err
    cat run.out run.err
    [[ $(sed 's/ --allow-run-as-root//' run.out) == "$line" && ! -e attempts && ! -e cmn-run.log ]]
}

@test "what cmn-run chooses for mpiexec, and what of it a word of -mpi takes away" {
    stand_in 'exit 0'
    always='--bind-to none --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0'
    several='--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 5'
    prints "mpiexec $always -n 1 darknet cmn check" -- darknet cmn check
    grep -qx 'cmn-run: 1 rank, as this machine has so many cores (-n N: another number)' run.err
    prints "mpiexec $always -n 1 darknet cmn check" -n 1 darknet cmn check
    [[ ! -s run.err ]]
    prints "mpiexec --oversubscribe $always -n 2 darknet cmn check" -n 2 darknet cmn check
    grep -qx 'cmn-run: 2 ranks share the 1 core of this machine' run.err
    prints "mpiexec $always $several -host a:2,b:3 -n 5 darknet cmn check" -hosts a:2,b:3 darknet cmn check
    prints "mpiexec $always --host a,b darknet cmn check" -mpi '--host a,b' darknet cmn check
    PBS_JOBID=7 prints "mpiexec $always darknet cmn check" darknet cmn check
    prints 'mpiexec --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0 --map-by core:OVERSUBSCRIBE -n 3 darknet cmn check' \
        -mpi '--map-by core:OVERSUBSCRIBE' -n 3 darknet cmn check
    mine='--bind-to core --mca mpi_yield_when_idle 0 --mca odls_base_sigkill_timeout 9'
    prints "mpiexec $mine -n 1 darknet cmn check" -mpi "$mine" -n 1 darknet cmn check
    prints "mpiexec $always --oversubscribe -n 2 darknet cmn check" -mpi '--oversubscribe' -n 2 darknet cmn check
    prints "mpiexec $always -n 1 darknet --version" -n 1 darknet --version
    # Quotes keep blanks together.
    prints "mpiexec $always --mca plm_rsh_args '-p 2222' -x 'A=b \"c' '' -n 1 darknet cmn check" \
        -mpi "--mca plm_rsh_args '-p 2222'" -mpi " -x A=\"b \"'\"c'  '' " -n 1 darknet cmn check
    # Root has a word more, once.
    on_one_core "$CMN_RUN" --dry-run -n 1 darknet cmn check >run.out
    [[ $(grep -c -- ' --allow-run-as-root ' run.out) -eq $(($(id -u) == 0)) ]]
    on_one_core "$CMN_RUN" -dry-run -n 1 -mpi --allow-run-as-root darknet cmn check >run.out
    [[ $(grep -o allow-run-as-root run.out | wc -l) -eq 1 ]]
    nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    if "${nobody[@]}" test -x "$CMN_RUN"; then
        on_one_core "${nobody[@]}" "$CMN_RUN" -dry-run -n 1 true >run.out
        run -1 grep allow-run-as-root run.out
    fi
}

@test "what -dry-run prints a shell takes as it was given" {
    stand_in 'printf "%s\n" "$@" >words'
    words=(darknet 'classifier train' "it's \"here\"" '$HOME' '' 'a;b' '*' -cmn)
    PATH=$PWD/fake:$PATH "$CMN_RUN" -dry-run -n 2 -- "${words[@]}" >line
    [[ $(wc -l <line) -eq 1 ]]
    PATH=$PWD/fake:$PATH bash line
    diff <(printf '%s\n' "${words[@]}") <(tail -n ${#words[@]} words)
}

@test "a standard output that takes nothing of -dry-run, -list or -help is an error" {
    stand_in 'exit 0'
    for option in -dry-run -list -help; do
        status=0
        PATH=$PWD/fake:$PATH "$CMN_RUN" "$option" -n 2 "${train[@]}" >/dev/full 2>err.txt || status=$?
        [[ $status -eq 1 && $(<err.txt) == 'cmn-run: the output cannot be written: No space left on device' ]]
    done
}

@test "one command: without checkpoints there is one attempt, and a training is told so in a line" {
    stand_in "$lost" 'exit 0'
    restarts 75 1 -n 2 darknet classifier train x.data x.cfg -cmn
    grep -q '^cmn-run: this training makes no checkpoints, so a failure ends it (with -cmn_checkpoint 500 ' run.err
    grep -q '^cmn-run: rank 1 on b ended by signal 9' run.err
    [[ $(grep -c '^cmn-run: ' run.err) -eq 2 ]]
    # Neither has an evaluation, and what is not Darknet; the first is not told so.
    stand_in "$lost" 'exit 0'
    restarts 75 1 -n 2 darknet detector map x.data x.cfg x.weights -cmn
    run -1 grep checkpoint run.err
    stand_in 'exit 3'
    restarts 3 1 -n 2 hostname
    # With checkpoints there are three more.
    ends 75 4 "$lost" "$lost" "$lost" "$lost" 'exit 0'
    run -1 grep 'no checkpoints' run.err
}

@test "a journal on a disk that no longer answers hangs no run" {
    [[ -z $SAN ]] || skip 'the sanitizers must be loaded first'
    cat >calls.c <<'END'
#define _GNU_SOURCE
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int fd, const void *bytes, size_t n)
{
    struct stat st;

    while (!fstat(fd, &st) && S_ISREG(st.st_mode) && memmem(bytes, n, "Z cmn-run[", 10)) {
        pause();
    }
    return syscall(SYS_write, fd, bytes, n);
}
END
    ${CC##* } -O1 -fPIC -shared -o calls.so calls.c
    stand_in "$lost" 'exit 0'
    LD_PRELOAD=$PWD/calls.so restarts 0 2 -journal dead.log -n 2 "${train[@]}"
    [[ ! -s dead.log ]]
    started=$(pgrep -f "^$CMN_RUN -journal dead.log")
    kill -KILL "$started"
}

@test "a journal that cannot be written is no reason not to start, unless it was asked for" {
    stand_in 'exit 0'
    echo 'my own file' >cmn-run.log
    PATH=$PWD/fake:$PATH run -0 "$CMN_RUN" -n 2 "${train[@]}"
    [[ $output == *'cmn-run: no journal is kept: cmn-run.log: this file holds something else (-journal FILE names another one)' ]]
    [[ $(<cmn-run.log) == 'my own file' ]]
    rm cmn-run.log
    mkfifo cmn-run.log
    PATH=$PWD/fake:$PATH run -0 timeout $((200 * SLOW)) "$CMN_RUN" -n 2 "${train[@]}"
    [[ $output == *'cmn-run: no journal is kept: cmn-run.log: this is a pipe, which may block (-journal FILE names another one)' ]]
}

@test "help and the manual have the options that -list prints for the man page and completion" {
    "$CMN_RUN" -list >options
    "$CMN_RUN" -help >help
    [[ $(wc -l <options) -ge 9 ]]
    run -1 grep -vE $'^-[a-z-]+\t[^\t]*\t[^\t]+$' options
    while IFS=$'\x1f' read -r name value help; do
        grep -qE -- "^ +$name +${value:+$value +}[^ ]" help
        grep -qF "  $help" help
        echo "| \`$name${value:+ $value}\` | $help |"
    done < <(tr '\t' '\037' <options) >rows # `read` takes two tabs for one
    diff rows <(grep '^| `-[^-]' "$REPO/docs/use/cmn-run.md")
}

@test "nobody reads its standard error: neither cmn-run nor the job waits for that" {
    stand_in "trap : USR1; head -c 2000000 /dev/zero | tr '\\0' x >&2; touch written; until [[ -e go ]]; do sleep .1; done; exit 138"
    mkfifo pipe
    exec 8<>pipe
    # With --kill-after, timeout would kill it so long after the signal that it hands on.
    PATH=$PWD/fake:$PATH timeout "$HANG_LIMIT" "$CMN_RUN" -n 2 "${train[@]}" 2>pipe 3>&- 8>&- &
    started=$!
    wait_for 'the text is taken' test -e written
    kill -TERM "$started"
    wait_for 'it hears the signal' grep -q ' stop ' cmn-run.log
    timeout "$HANG_LIMIT" sed '/were left out/q' <&8 >got &
    touch go
    status=0
    wait "$started" || status=$?
    [[ $status -eq 143 ]]
    wait $!
    n=$(sed -n 's/^cmn-run: \([0-9]*\) bytes were left out, as nobody read them$/\1/p' got)
    [[ $n -ge 800000 && $(tr -cd x <got | wc -c) -ge $((2000000 - n)) ]]
    exec 8>&-
}
