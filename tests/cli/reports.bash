# shellcheck shell=bash
# What the tests of reports and logs share.

setup() {
    enter_folder
    small_data 200 50
    mlp_cfg batch=40 max_batches=10 cmn_batch=global >mlp.cfg # 5 iterations an epoch, 2 epochs
}

# train ARGUMENTS...: on one rank, or `ranks`; output and messages go to files named out.txt and err.txt.
train() {
    darknet_on "${ranks:-1}" classifier train small.data mlp.cfg -cmn -cmn_seed 7 -cmn_report_every 2 "$@" >out.txt 2>err.txt ||
        { cat err.txt; return 1; }
}

needs() {
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

json_iterations() {
    jq -r '[.[].iteration | tostring] | join(" ")' "$1"
}

# half_weights: half.weights, of iteration 5.
half_weights() {
    mlp_cfg batch=40 max_batches=5 >half.cfg
    darknet_on 1 classifier train small.data half.cfg -cmn -cmn_seed 7 -cmn_validate 0 >out.txt 2>err.txt || { cat err.txt; return 1; }
    mv "out/half$FINAL.weights" half.weights
    empty_out
}
