#!/usr/bin/env bash
# The nvFuser lane: an environment of Python 3.12, torch 2.10 and the nvFuser that was built for it, and the plugin's tests in it.
#
#     plugins/nvfuser_exec/lane.sh [FOLDER [PYTEST ARGUMENTS...]]
#
# FOLDER holds the environment, about 8 GB (.nvfuser-lane by default); it is made once, and again when the versions change.  Python 3.12 has
# to be on the PATH, or named with LANE_PYTHON=...  Without a CUDA device definitions are built, validated and compared with the goldens;
# with one they run, too.  REGENERATE=1 writes the goldens anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PLUGIN=plugins/nvfuser_exec
FOLDER=${1:-.nvfuser-lane}
shift $(($# > 0 ? 1 : 0))
PYTHON="$FOLDER/bin/python"
CONSTRAINTS="$PLUGIN/lane-constraints.txt"

if ! cmp --silent "$CONSTRAINTS" "$FOLDER/.installed"; then
    base=${LANE_PYTHON:-python3.12}
    if ! "$base" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
        echo "The nvFuser lane needs Python 3.12, the one that Dovetail and nvFuser share; put python3.12 on the PATH or name it with LANE_PYTHON=..." >&2
        exit 1
    fi
    echo "Installing torch 2.10 and nvFuser into $FOLDER: several gigabytes, so the first time takes some minutes."
    [ -x "$PYTHON" ] || "$base" -m venv "$FOLDER"
    pip=("$PYTHON" -m pip --disable-pip-version-check --no-input install --quiet --quiet --constraint "$CONSTRAINTS")
    "${pip[@]}" torch nvfuser-cu128-torch210 setuptools pytest hypothesis expecttest
    "${pip[@]}" --no-build-isolation --editable . --editable plugins/torch_exec --editable "$PLUGIN" --editable conformance
    cp "$CONSTRAINTS" "$FOLDER/.installed"
fi
# faulthandler says where, if a value outlives its definition after all.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} "$PYTHON" -X faulthandler -m pytest -p no:cacheprovider "$PLUGIN/tests" "$@"
