#!/usr/bin/env bats
# Trainings of twelve steps against PyTorch's in double precision: tests/golden/golden.py has what is computed, and by which rules.
#
# The limit is 1e-6 of the weights' norm. Floats with 24 bits round by at most 6e-8 each; twelve steps leave 1e-7 to 4e-7 here.
# Each case is at least 0.05 away from the one that lacks what it is about.

load helpers

GOLDEN=$REPO/tests/golden

# A case of golden.py, the one that lacks what it is about, and ranks: 2 where the rule is that of an exchange. (That ranks train as
# one says numbers.bats, and layers.bats for Adam.)
cases() {
    cat <<'END'
conv start-conv 1
conv-adam conv 1
conv-decay conv 2
conv-lars conv-decay 2
mlp start-mlp 1
mlp-adam mlp 2
mlp-adam-clip mlp-adam 2
mlp-adam-decay mlp-adam 1
mlp-adam-delayed mlp-adam 2
mlp-burn-in mlp-momentum 1
mlp-clip mlp-decay 2
mlp-decay mlp-momentum 2
mlp-delayed mlp-decay 2
mlp-lars mlp-decay 2
mlp-momentum mlp 1
mlp-passes mlp-momentum 1
mlp-poly mlp-momentum 1
mlp-steps mlp-momentum 1
norm start-norm 2
norm-adam norm 1
norm-clip norm-decay 2
norm-decay norm 1
norm-lars norm-decay 2
END
}

@test "each golden case ends with PyTorch's weights" {
    local case without ranks
    enter_folder
    mkdir out
    cp "$GOLDEN"/*.pgm .
    printf '%s\n' ./*.pgm >train.list
    printf 'class-%d\n' 0 1 2 3 >labels.txt
    printf '%s\n' classes=4 train=train.list labels=labels.txt backup=out >small.data
    while read -r case without ranks; do
        assert_far "$GOLDEN/$case.weights" "$GOLDEN/$without.weights" 0.05
        darknet_on "$ranks" classifier train small.data "$GOLDEN/$case.cfg" "$GOLDEN/start-${case%%-*}.weights" -clear -cmn -cmn_validate 0 \
            -cmn_sync_bn 1 >train.log 2>&1 || { cat train.log; false; }
        assert_close "$GOLDEN/$case.weights" "out/$case.weights" 1e-6
    done < <(cases)
    diff <(printf '%s\n' "$GOLDEN"/*.cfg | sed 's|.*/||; s/\.cfg$//' | sort) <(cases | cut -d ' ' -f 1 | sort)
}
