#!/bin/bash
# Proves about the series of patches, as TAP: every patch applies with no fuzz,
# the series builds without the hooks and with them, the patches
# before the hooks change no result of a correct run of upstream, and with cmn off
# the hooks change no result of the series.
# Environment: PATCHES (folder of the series, patches/pjreddie); CC; DARKNET (the program
# with these patches, or none); BUILD (folder with libcmn.a), CMN_LIBS (its libraries), SAN.
set -euo pipefail
export LC_ALL=C OPENBLAS_NUM_THREADS=1

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
work=$root/build/check-patches
rigs=$root/tests/patches
folder=${PATCHES:-$root/patches/pjreddie}
compiler=${CC:-gcc}
count=0
failed=0

ok() {
    count=$((count + 1))
    echo "ok $count - $1"
}

# not_ok NAME [LOG]: the end of LOG says why.
not_ok() {
    count=$((count + 1))
    failed=$((failed + 1))
    echo "not ok $count - $1"
    if [ -f "${2:-}" ]; then tail -n 12 "$2" | sed 's/^/#   /'; fi
}

skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

bail() {
    echo "Bail out! $1"
    exit 1
}

# Every object follows its headers, so a prefix recompiles only what its patch
# touches. Relative names alone, because make knows no path with spaces.
write_makefile() {
    cat >"$work/objects.mk" <<'EOF'
UNUSED := src/compare.c $(patsubst %,examples/%.c,attention dice rnn_vid swag voxel writing)
OBJ := $(patsubst %.c,$(OUT)/%.o,$(filter-out $(UNUSED),$(wildcard src/*.c examples/*.c)))
OWN := $(if $(wildcard src/own.h),-include src/own.h)
all: $(OBJ)
$(OUT)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) -Wall -Wno-unused-result -Wno-unknown-pragmas -Wfatal-errors -fPIC -MMD -MP -Iinclude -Isrc $(OWN) $(FLAGS) -c -o $@ $<
-include $(OBJ:.o=.d)
EOF
}

# compile TREE OUT [HOW...]; the log goes to OUT.log
compile() {
    local tree=$1 out=$2
    shift 2
    make -C "$work/$tree" -f ../objects.mk -s -j"$(nproc)" CC="$compiler" OUT="../$out" "$@" all >"$work/$out.log" 2>&1
}

# link OUT PROGRAM [FLAG...]
link() {
    local out=$1 program=$2
    shift 2
    "$compiler" -o "$work/bin/$program" "$work/$out"/src/*.o "$work/$out"/examples/*.o "$@" -lm -pthread >"$work/$out.log" 2>&1
}

# The folder of the library may contain spaces, which CMN_LIBS cannot quote:
# only its options are taken.
library_flags() {
    local word
    hook_flags=("$BUILD/libcmn.a")
    for word in ${CMN_LIBS:-}; do
        case $word in -*) hook_flags+=("$word") ;; esac
    done
}

apply() {
    patch -d "$work/tree" -p1 -F0 --no-backup-if-mismatch <"$1" >"$work/apply.log" 2>&1
}

check_series() {
    local i name broken=
    for i in "${!patches[@]}"; do
        name=${patches[i]}
        if [ -n "$broken" ]; then
            not_ok "$name applies (not tried after $broken)"
        elif ! apply "$folder/$name"; then
            broken=$name
            not_ok "$name applies with no fuzz" "$work/apply.log"
        elif [ "${patches[i + 1]:-}" = "$first_hook" ]; then
            check_builds "$name applies, and the series without hooks builds" build_prefix series
            cp -a "$work/tree" "$work/series"
        elif [ -z "${patches[i + 1]:-}" ]; then
            check_builds "$name applies, and the whole series compiles" compile tree prefix FLAGS="-O0 -I../../../cmn"
        else
            ok "$name applies"
        fi
    done
}

build_prefix() {
    compile tree prefix FLAGS=-O0 && link prefix "$1"
}

# check_builds NAME COMMAND...
check_builds() {
    if "${@:2}"; then
        ok "$1"
    else
        not_ok "$1" "$work/prefix.log"
    fi
}

write_cfg() {
    local channels=$1 net=$2
    cat <<EOF
[net]
$net
width=12
height=12
channels=$channels
learning_rate=0.05
momentum=0.9
decay=0.0005
max_batches=30
EOF
    if [ "$channels" = 1 ]; then
        printf '\n[connected]\noutput=16\nactivation=relu\n'
    else
        printf 'angle=7\naspect=.75\nhue=.1\nsaturation=.75\nexposure=.75\nmin_crop=10\nmax_crop=16\n'
        printf '\n[convolutional]\nfilters=4\nsize=3\nstride=1\npad=1\nbatch_normalize=1\nactivation=leaky\n'
        printf '\n[maxpool]\nsize=2\nstride=2\n'
    fi
    printf '\n[connected]\noutput=2\nactivation=linear\n\n[softmax]\n'
}

# Everything is named relative to $work/data, where the programs run.
prepare_data() {
    local c tool=$work/make_images
    "$compiler" -O1 -std=c11 -isystem "$work/tree/src" "$rigs/make_images.c" -o "$tool" -lm
    "$compiler" -O1 -std=c11 -shared -fPIC "$rigs/fixed_time.c" -o "$work/fixed_time.so"
    mkdir -p "$work/data"
    cd "$work/data"
    for c in 1 3; do
        mkdir "images$c"
        "$tool" "images$c" 40 12 "$c"
        printf '%s\n' "images$c"/*.png >"list$c"
        printf 'classes=2\ntrain=list%s\nvalid=list%s\nlabels=labels\nbackup=backup\ntop=1\n' "$c" "$c" >"$c.data"
    done
    printf 'class0\nclass1\n' >labels
    write_cfg 1 $'batch=8\nsubdivisions=2\nthreads=1\nflip=0' >grey.cfg
    write_cfg 3 $'batch=8\nsubdivisions=2\nthreads=1' >colour.cfg
    # With one image per step only one of upstream's 32 loader threads draws.
    write_cfg 3 $'batch=1\nsubdivisions=1' >plain.cfg
    cd "$root"
}

# train PROGRAM CFG CHANNELS: leaves PROGRAM.CFG.{weights,out,valid}
train() {
    local program=$1 cfg=$2 channels=$3 name=$1.$2 shim=$work/fixed_time.so
    rm -rf "$work/data/backup"
    mkdir "$work/data/backup"
    (
        cd "$work/data"
        # A preload list is split at spaces, so the shim is named from here.
        LD_LIBRARY_PATH=.. LD_PRELOAD=$(basename "$shim") "../bin/$program" \
            classifier train "$channels.data" "$cfg.cfg" >train.out 2>"../$name.log" || exit 1
        "../bin/$program" classifier valid "$channels.data" "$cfg.cfg" "backup/$cfg.weights" \
            >valid.out 2>>"../$name.log" || exit 1
        cp "backup/$cfg.weights" "../$name.weights"
        sed -E 's/[0-9]+\.[0-9]+ seconds/T seconds/g' train.out >"../$name.out"
        cp valid.out "../$name.valid"
    )
}

# compare OLD NEW CFG CHANNELS
compare() {
    local old=$1 new=$2 cfg=$3 what=
    if ! train "$old" "$cfg" "$4"; then
        not_ok "$cfg.cfg trains with $old" "$work/$old.$cfg.log"
        return
    fi
    if ! train "$new" "$cfg" "$4"; then
        not_ok "$cfg.cfg trains with $new" "$work/$new.$cfg.log"
        return
    fi
    for what in weights out valid; do
        cmp -s "$work/$old.$cfg.$what" "$work/$new.$cfg.$what" && continue
        diff "$work/$old.$cfg.out" "$work/$new.$cfg.out" >"$work/compare.log" || true
        not_ok "$cfg.cfg: $new gives the $what of $old" "$work/compare.log"
        return
    done
    ok "$cfg.cfg: $new gives the weights, lines and validation of $old"
}

# The same flags as the real program, because -Ofast lets the compiler reorder.
check_hooks() {
    local flags=-Ofast libs=() cfg channels
    if [ ! -f "${BUILD:-}/libcmn.a" ]; then
        skip "grey.cfg with hooks" "no libcmn.a: run it through make"
        skip "colour.cfg with hooks" "no libcmn.a: run it through make"
        return
    fi
    library_flags
    case " ${CMN_LIBS:-} " in
    *" -lopenblas "*)
        flags="-Ofast -DCBLAS"
        libs=(-lopenblas)
        ;;
    esac
    # The program itself, where it is that of this series.
    if [[ -z ${PATCHES:-} && -x ${DARKNET:-} ]]; then ln -s "$DARKNET" "$work/bin/with-hooks"; fi
    if ! compile series plain FLAGS="$flags" || ! link plain without-hooks -Ofast "${libs[@]}"; then
        cfg=plain
    elif [[ -e $work/bin/with-hooks ]]; then
        compare without-hooks with-hooks grey 1
        compare without-hooks with-hooks colour 3
        return
    elif ! compile tree hooked FLAGS="$flags -I../../../cmn" || ! link hooked with-hooks -Ofast "${hook_flags[@]}"; then
        cfg=hooked
    else
        compare without-hooks with-hooks grey 1
        compare without-hooks with-hooks colour 3
        return
    fi
    not_ok "grey.cfg with hooks: builds" "$work/$cfg.log"
    not_ok "colour.cfg with hooks: builds" "$work/$cfg.log"
}

main() {
    if [ -n "${SAN:-}" ]; then
        echo "1..0 # SKIP the plain build checks the patches"
        exit 0
    fi
    [ -f "$folder/series" ] || bail "$folder has no series"
    mapfile -t patches < <(sed '/^#/d; /^$/d' "$folder/series")
    first_hook=$(printf '%s\n' "${patches[@]}" | grep -m 1 '^hooks/') || bail "$folder/series has no hooks"
    rm -rf "$work"
    mkdir -p "$work/bin"
    "$here/obtain.sh" --pristine "$work/tree" || bail "Darknet's source cannot be had"
    write_makefile
    echo "1..$((${#patches[@]} + 4))"
    check_builds 'upstream builds without any patch' build_prefix upstream
    check_series
    prepare_data
    compare upstream series plain 3
    check_hooks
    [ "$failed" = 0 ] || exit 1
    rm -rf "$work"
}

main "$@"
