#!/usr/bin/env bash
# Everything that needs a GPU, in under nine minutes: installs from the working tree without network, runs the Triton executor's tests and
# its conformance on CUDA side by side, and then, alone on the device, the benchmark.
#
#     benchmarks/gpu_check.sh [FOLDER [WHEELS]]
#
# FOLDER gets gpu.json, gpu.md, a report conformance-*.json for each family of operations that was done in time, and the logs
# (benchmarks/results by default).  WHEELS is a folder of wheels for what the machine lacks; it needs PyTorch for CUDA, triton and pytest.
# The exit status counts the steps that failed.
set -u
cd "$(dirname "$0")/.."
OUT=$(mkdir -p "${1:-benchmarks/results}" && cd "${1:-benchmarks/results}" && pwd)
WHEELS=${2:-}
[ -n "$WHEELS" ] && WHEELS=$(cd "$WHEELS" && pwd)
SITE=$(mktemp -d)
PYTHON=${PYTHON:-python3}
WORKERS=${WORKERS:-10}
TOGETHER=210 # seconds for tests and conformance
export PYTHONPATH="$SITE" PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore XDG_CACHE_HOME="$SITE/cache" TRITON_CACHE_DIR="$SITE/triton" OMP_NUM_THREADS=2
unset TRITON_INTERPRET
FAILED="$SITE/failed"
: >"$FAILED"

# Runs a step for at most some seconds, keeps its output, and counts it where it fails.
step() {
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    if timeout --kill-after=5 "$limit" "$@" >"$OUT/$name.log" 2>&1; then
        echo "== $name: $((SECONDS - began)) s; $(tail -n 1 "$OUT/$name.log")"
    else
        echo "== $name failed after $((SECONDS - began)) s; the end of $name.log:"
        tail -n 15 "$OUT/$name.log"
        echo "$name" >>"$FAILED"
    fi
}

install() {
    mkdir "$SITE/tree" && cp -r ./*.toml ./*.md ./LICENSE* core plugins conformance "$SITE/tree" || return 1 # building writes beside what it builds
    cd "$SITE/tree" || return 1
    if [ -n "$WHEELS" ]; then
        "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$SITE" "$WHEELS"/*.whl || return 1
    fi
    local distributions=(. ./plugins/torch_exec ./plugins/triton_exec ./plugins/nvfuser_exec ./conformance)
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-build-isolation --no-compile --target "$SITE" "${distributions[@]}" || return 1
    "$PYTHON" - <<'CHECK'
import importlib.util, sys
import torch
names = ("triton", "pytest", "pluggy", "packaging", "platformdirs", "importlib_metadata", "rich", "click", "scipy", "numpy", "jsonschema", "hypothesis")
missing = [name for name in names if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("not installed here: " + ", ".join(missing) + "; put their wheels into a folder and name it as the second argument")
import dovetail, triton
device = torch.cuda.get_device_name() if torch.cuda.is_available() else sys.exit("PyTorch sees no CUDA device; check nvidia-smi")
print(device, "torch", torch.__version__, "triton", triton.__version__, dovetail.__file__)
CHECK
}
export -f install
export WHEELS SITE PYTHON

DOVETAIL=("$PYTHON" -c "from dovetail.cli import main; main()")
HELD=("${DOVETAIL[@]}" conformance triton cross_entropy_triton --level core --device cuda -n "$WORKERS" --timeout 60)
PYTEST=("$PYTHON" -m pytest -q --import-mode=importlib -p no:cacheprovider)

# One family after the other, the most telling first, so that what was done in time has its report.
conformance() {
    local family end=$((SECONDS + TOGETHER))
    for family in scaled_dot_product_attention cross_entropy softmax norm embedding gelu dropout program prims torch.nn torch; do
        [ $((end - SECONDS)) -gt 10 ] || break
        step "conformance-$family" $((end - SECONDS)) "${HELD[@]}" -k "$family" --json "$OUT/conformance-$family.json"
    done
}

step install 60 bash -c install
[ -s "$FAILED" ] && exit 1
step executors 30 "${DOVETAIL[@]}" executors
conformance &
step tests "$TOGETHER" "${PYTEST[@]}" plugins/triton_exec/tests/test_values.py plugins/triton_exec/tests/test_cross_entropy.py
wait
if "$PYTHON" -c "import nvfuser_direct" 2>/dev/null; then
    lane=plugins/nvfuser_exec/tests
    step nvfuser 60 "${PYTEST[@]}" $lane/test_on_device.py $lane/test_goldens.py $lane/test_lifetime.py $lane/test_layouts.py
fi
step benchmark 225 "$PYTHON" benchmarks/gpu.py --out "$OUT" --seconds 205
[ -f "$OUT/gpu.md" ] && cat "$OUT/gpu.md"
failed=$(wc -l <"$FAILED")
rm -rf "$SITE"
echo "$failed steps failed"
exit "$failed"
