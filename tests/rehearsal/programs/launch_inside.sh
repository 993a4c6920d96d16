#!/bin/bash
# A launcher inside a script, which looks at the machine first: launch_inside.sh BIN [ARGUMENT…]
set -e
cd "$(dirname "$0")"
test "$(nvidia-smi --list-gpus | wc -l)" = 8
"$1/torchrun" --standalone --nproc_per_node=gpu data_parallel.py "${@:2}"
echo "the script goes on"
