#!/usr/bin/env bash
# prepare.sh IDX2PNG: fetches MNIST and turns it into data/mnist. The folder appears complete or not at all.
set -euo pipefail

idx2png=$(realpath "${1:?usage: prepare.sh IDX2PNG}")
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

source=MNIST
if [[ -n ${MNIST_DIR:-} ]]; then
    source=$MNIST_DIR
fi
"$here/fetch.sh" data/mnist-idx

rm -rf data/mnist.new data/mnist.old
trap 'rm -rf data/mnist.new data/mnist.old' EXIT
"$idx2png" data/mnist-idx data/mnist.new data/mnist
# Says where the images came from, and is what make looks at.
printf '%s\n' "$source" >data/mnist.new/.source
if [[ -d data/mnist ]]; then
    mv data/mnist data/mnist.old
fi
mv data/mnist.new data/mnist
