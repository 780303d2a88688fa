#!/usr/bin/env bash
# The Triton lane: triton beside what `make install` installed, and the plugin's tests there: kernels interpreted on the CPU where there is no
# GPU, and those of the test models compiled for two, with their registers and spills.
#
#     plugins/triton_exec/lane.sh [FOLDER [PYTEST ARGUMENTS...]]
#
# FOLDER holds the environment, about 700 MB for each version (.triton-lane by default); it is made once, and again for another version:
# LANE_TRITON=3.6.0, the least that the plugin takes, by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PLUGIN=plugins/triton_exec
FOLDER=${1:-.triton-lane}
shift $(($# > 0 ? 1 : 0))
VERSION=${LANE_TRITON:-3.6.0}
BASE=${LANE_BASE:-.venv/bin/python}
PYTHON="$FOLDER/bin/python"

if [ "$(cat "$FOLDER/.installed" 2>/dev/null)" != "$VERSION" ]; then
    if ! "$BASE" -c 'import dovetail, torch' 2>/dev/null; then
        echo "The Triton lane lies on top of the environment of \`make install\`; run that first, or name another one's Python with LANE_BASE=..." >&2
        exit 1
    fi
    echo "Installing triton $VERSION into $FOLDER: some 200 MB to download."
    "$BASE" -m venv --clear --without-pip "$FOLDER"
    site=$("$BASE" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    own=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    echo "import site; site.addsitedir('$site')" >"$own/base.pth"
    pip=("$BASE" -m pip --disable-pip-version-check --no-input --python "$PYTHON" install --quiet --quiet --no-deps)
    "${pip[@]}" "triton==$VERSION"
    "${pip[@]}" --no-build-isolation --editable "$PLUGIN"
    echo "$VERSION" >"$FOLDER/.installed"
fi
OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} "$PYTHON" -m pytest -p no:cacheprovider "$PLUGIN/tests" "$@"
