# shellcheck shell=bash disable=SC2034  # read by those who load it
# What the two trees of Darknet differ in for the tests that run over both. TREE is alexeyab where `make test TREE=alexeyab` runs
# them, and for those whose tag is alexeyab in each `make test`. What is skipped there, and why, is allowed by tests/skips.txt and
# stands in docs/use/alexeyab.md.

case $TREE in
    pjreddie)
        FINAL=          # what a training ends with: out/mlp$FINAL.weights
        CHANNELS=1      # of an image of MNIST
        ON_THE_WAY=1    # a classifier first saves out/mlp_1.weights, at the end of an epoch
        NO_WINDOW=()    # for a training without -cmn where there is no display
        ;;
    alexeyab)
        FINAL=_final
        CHANNELS=3      # its classifier reads all images in colour
        ON_THE_WAY=last # after 100 iterations
        NO_WINDOW=(-dont_show)
        ;;
    *) echo "TREE=$TREE: pjreddie or alexeyab" >&2; exit 1 ;;
esac

# pjreddies: the tree is pjreddie's. Before a part of a test that AlexeyAB's has nothing for.
pjreddies() {
    [[ $TREE == pjreddie ]]
}

# not_offered REASON: the test is about something that AlexeyAB's tree does not have with -cmn.
not_offered() {
    pjreddies || skip "AlexeyAB's tree: $1"
}

# saved CFG: the newest weights that a classifier's training has saved on its way: after an epoch, or every 100 iterations.
saved() {
    if pjreddies; then
        find out -name "$1_[0-9]*.weights" -printf '%f\n' | sort -t _ -k 2n | sed -n '$s|^|out/|p'
    else
        find out -name "$1_last.weights"
    fi
}
