#!/usr/bin/env bash
# docs.sh: whether the documents are true. It reads every *.md that git does not ignore, or those whose name contains a PAGE, in this
# repository, or all in the folder DOCS.
#
#   tests/docs.sh links [PAGE...]   each relative link leads to a file, and each #anchor to a heading
#   tests/docs.sh marks [PAGE...]   each fenced block says behind its fence what becomes of it
#   tests/docs.sh run [PAGE...]     runs the blocks marked `run`, in a folder where networks, lists and trainings are small
#   tests/docs.sh slow [PAGE...]    runs the blocks marked `slow`, in a copy of the sources that they build
#
# The first word behind a fence is the language, which readers see as colours. They do not see the others:
#   text                      no commands: output, or a file
#   sh run, console run       commands; of a console those behind "$ ", and the rest is what they print
#   sh slow                   commands that take minutes: make test-docs
#   sh by=FILE                commands that this test runs
#   sh needs=WHAT             commands that cannot run in a test: needs() below has the reasons
# Behind `run` and `slow`: `hosts` runs the block where node1 and node2 are the nodes of a cluster, `fails` expects its last
# command to fail. my.data, my.cfg and my.weights are a detector's where the block names `detector`, else a classifier's.
#
# A block is good when each command ends with 0, no key or option is unknown, and a console prints the lines that the page shows,
# whatever their numbers. Prints a line for each block; exits 1 when one is bad.
set -euo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
: "${BUILD:=$repo/build/cpu}" "${DARKNET:=$BUILD/bin/darknet}" "${DOCS:=$repo}"

needs() {
    case $1 in
        root) echo 'it installs packages' ;;
        gpu) echo 'it needs a GPU' ;;
        machines) echo 'it needs other machines, and their passwords' ;;
        cluster) echo "it needs a cluster's modules or Slurm" ;;
        container) echo 'it needs podman, docker or apptainer' ;;
        network) echo 'it downloads' ;;
        simgrid) echo 'it needs SimGrid, and minutes' ;;
        graphviz) echo 'it needs Graphviz' ;;
        tensorboard) echo 'it needs TensorBoard, which Debian does not have' ;;
        *) return 1 ;;
    esac
}

# pages WORD...: the documents whose name contains one of the words, or all.
pages() {
    local page word
    { git ls-files --cached --others --exclude-standard '*.md' 2>/dev/null | grep . || find . -name '*.md' -not -path './build/*' -printf '%P\n'; } | sort | while read -r page; do
        (($#)) || echo "$page"
        for word in "$@"; do
            [[ $page != *"$word"* ]] || { echo "$page"; break; }
        done
    done
}

# prose PAGE: without fenced blocks and `words of code`.
prose() {
    # shellcheck disable=SC2016  # Markdown
    awk '/^ *```/ { inside = !inside; next } !inside' "$1" | sed -E 's/`[^`]*`//g'
}

# anchors PAGE: as GitHub makes them of headings. The second one of a name gets -1.
anchors() {
    awk '/^ *```/ { inside = !inside; next } !inside && /^#+ /' "$1" |
        LC_ALL=C.UTF-8 sed -E 's/^#+ +//; s/\[([^]]*)\]\([^)]*\)/\1/g; s/.*/\L&/; s/[^[:alnum:] _-]//g; s/ /-/g' |
        awk '{ print $0 (seen[$0] ? "-" seen[$0] : ""); seen[$0]++ }'
}

links() {
    local page link path i bad=0 at=() found=() paths=()
    local -A headings=()
    while read -r page; do
        while read -r link; do
            [[ ! $link =~ ^[a-z]+: ]] || continue
            at+=("$page") found+=("$link")
            path=./$page
            [[ $link == '#'* ]] || path=${path%/*}/${link%%#*}
            paths+=("$path")
        done < <(prose "$page" | grep -oE '\]\([^) ]+|^\[[^]]+\]: *[^ ]+|(src|href)="[^"]+' | sed -E 's/^\]\(|^\[[^]]+\]: *|^(src|href)="//')
    done < <(pages "$@")
    mapfile -t paths < <(realpath -m --relative-to=. -- "${paths[@]}")
    for i in "${!found[@]}"; do
        link=${found[i]} path=${paths[i]}
        if [[ ! -e $path ]]; then
            echo "${at[i]}: $link: $path is not there" && bad=1
        elif [[ $link == *'#'* ]]; then
            [[ -n ${headings[$path]:-} ]] || headings[$path]=$'\n'$(anchors "$path")$'\n'
            [[ ${headings[$path]} == *$'\n'"${link#*#}"$'\n'* ]] || { echo "${at[i]}: $link: $path has no such heading" && bad=1; }
        fi
    done
    echo "${#found[@]} links"
    return $bad
}

# blocks PAGE...: for each fenced block a line with page, line and words behind the fence; and its text in the file that
# the array text holds under "page:line".
declare -A text=()
blocks=()
read_blocks() {
    local page place line
    mkdir -p "$tmp/blocks"
    while read -r page; do
        while read -r place; do
            blocks+=("$place")
            line=${place%% *}
            text[$line]=$tmp/blocks/${page//\//-}-${line##*:}
        done < <(awk -v page="$page" -v to="$tmp/blocks/${page//\//-}-" '
            /^ *```/ { inside = !inside; if (inside) { indent = match($0, /`/) - 1; file = to FNR; words = $0; sub(/^ *```+ */, "", words)
                print page ":" FNR, words; printf "" >file } else close(file); next }
            inside { print substr($0, indent + 1) >file }' "$page")
    done < <(pages "$@")
}

# mark PLACE WORDS...: sets how (run, slow, left), why and also (hosts, fails); 1 when the words are no mark.
mark() {
    local word
    how='' why='' also=' '
    case ${1:-} in
        text | mermaid) how=left why='no commands' && return ;;
        sh | console | python) kind=$1 ;;
        *) return 1 ;;
    esac
    shift
    for word in "$@"; do
        case $word in
            run | slow) how=$word ;;
            by=?*) [[ -f $repo/${word#by=} ]] || return 1; how=left why="${word#by=} runs it" ;;
            needs=?*) why=$(needs "${word#needs=}") || return 1; how=left ;;
            hosts | fails) also+="$word " ;;
            *) return 1 ;;
        esac
    done
    [[ -n $how ]]
}

marks() {
    local place bad=0
    read_blocks "$@"
    for place in "${blocks[@]}"; do
        # shellcheck disable=SC2086  # words
        mark ${place#* } || { echo "${place%% *}: \`\`\`${place#"${place%% *}"}: not a mark that tests/docs.sh knows" && bad=1; }
    done
    echo "${#blocks[@]} blocks"
    return $bad
}

# ---- Where the blocks run ------------------------------------------------------------------------------------------

# As people have it who need no option of mpiexec: not root, and as many cores as ranks.
environment() {
    unset MAKEFLAGS MFLAGS MAKELEVEL OPENBLAS_NUM_THREADS OMPI_MCA_odls_base_sigkill_timeout
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
        PRTE_MCA_hwloc_default_binding_policy=none LC_ALL=C.UTF-8 HOME="$box/home" PATH="$box/shim:$box/bin:$PATH:/usr/sbin:/sbin"
    mkdir -p "$HOME"
}

# cut_list FROM N WORD: the first N lines, as a list of the sandbox.
cut_list() {
    sed -n "1,$2 p" "$repo/data/mnist/$1" >"data/mnist/$1"
}

# quietly COMMAND...: its output is shown when it fails.
quietly() {
    "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
}

# A make that only says whether it knows the target, and a program, data and results that are there.
sandbox() {
    local entry make
    make=$(command -v make)
    [[ -x $repo/build/cpu/canvases && -x $repo/build/cpu/sheet ]] || quietly make -s -C "$repo" build/cpu/canvases build/cpu/sheet
    mkdir "$box" && cd "$box"
    # What is of git alone: a command may write to what else lies there, such as cmn-run.log.
    for entry in $(cd "$repo" && { git ls-files 2>/dev/null | grep . || ls; } | cut -d / -f 1 | sort -u) build; do
        case $entry in
            bin | data | results | cfg | *.log) ;;
            *) ln -sfn "$repo/$entry" "$entry" ;;
        esac
    done
    mkdir -p shim bin data/mnist results/mnist results/detection fixtures/backup logs
    printf '#!/bin/sh\nexec %q -C %q SETUP=: -n "$@" >/dev/null\n' "$make" "$repo" >shim/make
    chmod +x shim/make
    ln -s "$DARKNET" bin/darknet
    ln -s "$(dirname "$DARKNET")/cmn-run" bin/cmn-run
    cp -r "$repo/cfg" .
    sed -i -E 's/^(max_batches)=.*/\1=6/; s/^(cmn_epochs)=.*/\1=1/; s/^(burn_in)=.*/\1=2/' cfg/*.cfg
    ln -s "$repo"/data/mnist/{train,valid,labels.txt} data/mnist/
    cut_list train.list 800
    cut_list valid.list 100
    ln -s "$repo/data/mnist-idx" data/
    printf 'node1 slots=4\nnode2 slots=4\n' >hosts
    environment
    quietly build/cpu/canvases data/mnist-idx data/detection data/detection 48 12 1
    quietly mpiexec -n 2 bin/darknet classifier train cfg/mnist.data cfg/mnist_mlp.cfg -cmn
    quietly mpiexec -n 2 bin/darknet detector train cfg/digits.data cfg/digits_yolo.cfg -cmn
    # Somebody's own networks, and a checkpoint of iteration 1000 on the way to 1200.
    mkdir -p fixtures/classifier fixtures/detector
    sed 's|^\(backup *\)=.*|\1= backup|' cfg/mnist.data >fixtures/classifier/my.data
    sed 's|^\(backup *\)=.*|\1= backup|' cfg/digits.data >fixtures/detector/my.data
    cp cfg/digits_yolo.cfg fixtures/detector/my.cfg
    cp results/detection/digits_yolo_final.weights fixtures/detector/my.weights
    printf '%s\n' '[net]' batch=8 subdivisions=1 height=28 width=28 channels=1 min_crop=28 max_crop=28 flip=0 threads=1 \
        learning_rate=0.01 policy=constant max_batches=1200 '[connected]' output=10 activation=linear '[softmax]' >fixtures/classifier/my.cfg
    use classifier
    CMN_DEBUG_CHECKPOINT_KEEP=9 quietly mpiexec -n 2 bin/darknet classifier train my.data my.cfg -cmn -cmn_checkpoint 1000 -cmn_validate off
    cp backup/my.weights fixtures/classifier/
    cp backup/my-1000.checkpoint fixtures/backup/
}

# use KIND: my.data, my.cfg and my.weights are of that kind, and its backup folder is as after 1000 iterations.
use() {
    rm -rf backup
    cp -r fixtures/backup backup
    ln -sf "fixtures/$1"/my.* .
    ln -sf my.cfg other.cfg
}

# sources: what git knows, with nothing built.
sources() {
    mkdir "$box" && cd "$box"
    (cd "$repo" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$box")
    mkdir build data
    [[ ! -d $repo/build/upstream ]] || cp -r "$repo/build/upstream" build/
    [[ ! -d $repo/data/mnist-idx ]] || cp -r "$repo/data/mnist-idx" data/
    environment
}

# commands FILE: of a console the lines behind "$ ".
commands() {
    if [[ $kind == console ]]; then sed -n 's/^\$ //p' "$1"; else cat "$1"; fi
}

# plain: numbers, hosts and columns are no matter.
plain() {
    sed -E "s/\b$(hostname)\b|\bnode[0-9]+\b/HOST/g; s/\b(0x)?[0-9a-f]{16}\b/N/g; s/[0-9]+([.,-][0-9]+)*/N/g; s/[ \t]+/ /g; s/ \$//"
}

# shown PRINTED FILE: of a console, the lines that the page shows and that were not printed. "…" stands for anything.
shown() {
    local line
    plain <"$1" >"$tmp/plain"
    # shellcheck disable=SC2016  # characters of patterns
    grep -v '^\$ ' "$2" | grep -vxE ' *(…)? *' | plain | sed -E 's/[][\\.*^$()+?{}|]/\\&/g; s/…/.*/g' | while IFS= read -r line; do
        grep -qxE -- "$line" "$tmp/plain" || echo "$line"
    done
}

# bad BLOCK LIMIT: prints why it is, or nothing.
bad() {
    local file=$1 status=0 ended words=(bash -euo pipefail "$tmp/block.sh")
    commands "$file" >"$tmp/block.sh"
    # shellcheck disable=SC2119  # words of a cluster
    [[ $also != *' hosts '* ]] || cluster_words "${words[@]}"
    timeout --kill-after=5 "$2" "${words[@]}" </dev/null >"$tmp/printed" 2>&1 3>&- || status=$?
    ended=ok
    ((status == 0)) || ended=failed
    if [[ $also == *' fails '* ]]; then
        [[ $ended == failed && $status -ne 124 ]] || echo "status $status, and the page says that it fails"
    else
        [[ $ended == ok ]] || echo "status $status"
        grep -E 'unknown (key|option|command|argument)|did you mean|ha(s|ve) no effect' "$tmp/printed" || true
    fi
    # Open MPI 5's mpiexec words its own lines in another way.
    if [[ $kind == console ]] && { ! grep -qE 'mpiexec|cmn-run|make' "$tmp/block.sh" || mpiexec --version | grep -q OpenRTE; }; then
        shown "$tmp/printed" "$file" | sed 's/^/not printed: /'
    fi
}

# run_blocks HOW
run_blocks() {
    local place file reason limit=600 all=0
    local -A ran=()
    [[ $1 == run ]] || limit=1200
    for place in "${blocks[@]}"; do
        # shellcheck disable=SC2086  # words
        mark ${place#* } || { echo "${place%% *}: no mark" && all=1 && continue; }
        [[ $how == "$1" ]] || { [[ -z $why || $why == 'no commands' || $1 == slow ]] || echo "${place%% *}: left out: $why"; continue; }
        if [[ $also == *' hosts '* && -z ${cluster_holder:-} ]] && ! cluster_up 2; then
            echo "${place%% *}: left out: $cluster_why"
            continue
        fi
        file=${text[${place%% *}]}
        if [[ $1 == slow && -n ${ran[$(<"$file")]:-} ]]; then
            echo "${place%% *}: the same as ${ran[$(<"$file")]}"
            continue
        fi
        ran[$(<"$file")]=${place%% *}
        [[ $1 == slow ]] || if grep -q detector "$file"; then use detector; else use classifier; fi
        reason=$(bad "$file" "$limit")
        if [[ -n $reason ]]; then
            all=1
            printf '%s: BAD\n' "${place%% *}"
            printf '    %s\n' "$reason"
            sed 's/^/    > /' "$file"
            tail -n 40 "$tmp/printed" | sed 's/^/    | /'
        else
            echo "${place%% *}: $SECONDS s"
        fi
    done
    return $all
}

# shellcheck source=tests/hosts/cluster.bash
. tests/hosts/cluster.bash
trap '[[ -z ${tmp:-} ]] || { cluster_down; rm -rf "$tmp"; }' EXIT
tmp=$(mktemp -d "${CMN_TEST_TMP:-${TMPDIR:-/tmp}}/docs-XXXXXX")
box=$tmp/darknet-cmn
cd "$DOCS"
what=${1:-}
shift || true
case $what in
    links | marks) "$what" "$@" ;;
    run | slow)
        read_blocks "$@"
        if [[ $what == run ]]; then sandbox; else sources; fi
        run_blocks "$what"
        ;;
    *) sed -n '/^# docs.sh/,/^$/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
