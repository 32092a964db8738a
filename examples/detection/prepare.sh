#!/usr/bin/env bash
# prepare.sh CANVASES: draws data/detection from the idx files in data/mnist-idx. The folder appears complete or not at all.
set -euo pipefail

canvases=$(realpath "${1:?usage: prepare.sh CANVASES}")
cd "$(dirname "$0")/../.."
train=4000 valid=500 seed=1

rm -rf data/detection.new
trap 'rm -rf data/detection.new' EXIT
"$canvases" data/mnist-idx data/detection.new data/detection "$train" "$valid" "$seed"
# Says where the digits came from, and is what make looks at.
cp data/mnist/.source data/detection.new/.source
rm -rf data/detection
mv data/detection.new data/detection
