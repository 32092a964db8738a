#!/usr/bin/env bats
# Trainings of twelve steps against PyTorch's in double precision: tests/golden/golden.py has what is computed, and by which rules.
# Each case is one of that table, on 1 and on 3 ranks.
#
# The limit is 1e-6 of the weights' norm. Floats with 24 bits round by at most 6e-8 each; twelve steps leave 1e-7 to 4e-7 here.
# Each case is at least 0.05 away from the one that lacks what it is about.

load helpers

GOLDEN=$REPO/tests/golden

setup() {
    enter_folder
    mkdir -p out
    cp "$GOLDEN"/*.pgm .
    printf '%s\n' ./*.pgm >train.list
    printf 'class-%d\n' 0 1 2 3 >labels.txt
    printf '%s\n' classes=4 train=train.list labels=labels.txt backup=out >small.data
}

# trains CASE [MPIEXEC... -- KEYS...]
trains() {
    local case=$1 by=()
    shift
    while (($# > 0)) && [[ $1 != -- ]]; do
        by+=("$1")
        shift
    done
    timeout "$HANG_LIMIT" "${by[@]}" "$DARKNET" classifier train small.data "$GOLDEN/$case.cfg" "$GOLDEN/start-${case%%-*}.weights" \
        -clear -cmn -cmn_validate 0 "${@:2}" >train.log 2>&1 || { cat train.log; return 1; }
    assert_close "$GOLDEN/$case.weights" "out/$case.weights" 1e-6
    rm out/*
}

# as_golden CASE WITHOUT: CASE, which differs from WITHOUT, on 1 and on 3 ranks.
as_golden() {
    local keys=()
    assert_far "$GOLDEN/$1.weights" "$GOLDEN/$2.weights" 0.05
    trains "$1"
    mpiexec+=(-n 3)
    [[ $1 != norm* ]] || keys=(-cmn_sync_bn 1)
    trains "$1" "${mpiexec[@]}" -- "${keys[@]}"
}

@test "perceptron: the slope of each weight" { as_golden mlp start-mlp; }
@test "perceptron: momentum" { as_golden mlp-momentum mlp; }
@test "perceptron: decay, of weights alone" { as_golden mlp-decay mlp-momentum; }
@test "perceptron: subdivisions" { as_golden mlp-passes mlp-momentum; }
@test "perceptron: burn_in" { as_golden mlp-burn-in mlp-momentum; }
@test "perceptron: policy=steps" { as_golden mlp-steps mlp-momentum; }
@test "perceptron: policy=poly" { as_golden mlp-poly mlp-momentum; }
@test "perceptron: Adam" { as_golden mlp-adam mlp; }
@test "perceptron: Adam with decay" { as_golden mlp-adam-decay mlp-adam; }
@test "perceptron: LARS" { as_golden mlp-lars mlp-decay; }
@test "perceptron: clipping" { as_golden mlp-clip mlp-decay; }
@test "perceptron: Adam with clipping" { as_golden mlp-adam-clip mlp-adam; }
@test "perceptron: double buffering" { as_golden mlp-delayed mlp-decay; }
@test "perceptron: Adam with double buffering" { as_golden mlp-adam-delayed mlp-adam; }
@test "conv net: the slope of each weight" { as_golden conv start-conv; }
@test "conv net: momentum and decay" { as_golden conv-decay conv; }
@test "conv net: Adam" { as_golden conv-adam conv; }
@test "conv net: LARS" { as_golden conv-lars conv-decay; }
@test "batch normalisation: the slope of each weight" { as_golden norm start-norm; }
@test "batch normalisation: momentum and decay" { as_golden norm-decay norm; }
@test "batch normalisation: Adam" { as_golden norm-adam norm; }
@test "batch normalisation: clipping" { as_golden norm-clip norm-decay; }
@test "batch normalisation: LARS" { as_golden norm-lars norm-decay; }

@test "each golden case is tested" {
    cases=$(sed -n 's/.*{ as_golden \([a-z-]*\) .*/\1/p' "$BATS_TEST_FILENAME" | sort)
    diff <(printf '%s\n' "$GOLDEN"/*.cfg | sed 's|.*/||; s/\.cfg$//' | sort) - <<<"$cases"
}
