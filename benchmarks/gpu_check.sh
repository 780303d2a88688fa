#!/usr/bin/env bash
# Everything that needs a GPU, in under nine minutes: installs from the working tree without network, runs the Triton executor's tests and
# its conformance on CUDA, then the benchmark.
#
#     benchmarks/gpu_check.sh [FOLDER [WHEELS]]
#
# FOLDER gets gpu.json, gpu.md, conformance.json and the logs (benchmarks/results by default).  WHEELS is a folder of wheels for what the
# machine lacks; it needs PyTorch for CUDA, triton and pytest.  The exit status counts the steps that failed.
set -u
cd "$(dirname "$0")/.."
OUT=$(mkdir -p "${1:-benchmarks/results}" && cd "${1:-benchmarks/results}" && pwd)
WHEELS=${2:-}
SITE=$(mktemp -d)
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$SITE" PYTHONUNBUFFERED=1 XDG_CACHE_HOME="$SITE/cache"
unset TRITON_INTERPRET
failed=0

# Runs a step for at most some seconds, keeps its output, and counts it where it fails.
step() {
    local name=$1 limit=$2
    shift 2
    echo "== $name"
    if ! timeout --kill-after=5 "$limit" "$@" >"$OUT/$name.log" 2>&1; then
        echo "   failed; the end of $name.log:"
        tail -n 15 "$OUT/$name.log"
        failed=$((failed + 1))
    fi
}

install() {
    local distributions=(. ./plugins/torch_exec ./plugins/triton_exec ./plugins/nvfuser_exec ./conformance)
    if [ -n "$WHEELS" ]; then
        "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$SITE" "$WHEELS"/*.whl || return 1
    fi
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-build-isolation --no-compile --target "$SITE" "${distributions[@]}" || return 1
    "$PYTHON" - <<'CHECK'
import importlib.util, sys
missing = [name for name in ("torch", "triton", "pytest", "pluggy", "packaging", "platformdirs", "importlib_metadata", "rich", "click", "scipy", "numpy",
    "jsonschema", "hypothesis") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit("not installed here: " + ", ".join(missing) + "; put their wheels into a folder and name it as the second argument")
CHECK
}
export -f install
export WHEELS SITE PYTHON

DOVETAIL=("$PYTHON" -c "from dovetail.cli import main; main()")
step install 90 bash -c install
step executors 30 "${DOVETAIL[@]}" executors
step tests 120 "$PYTHON" -m pytest -q -x --import-mode=importlib -p no:cacheprovider plugins/triton_exec/tests/test_values.py plugins/triton_exec/tests/test_cross_entropy.py
step conformance 150 "${DOVETAIL[@]}" conformance triton cross_entropy_triton --level core --device cuda -n 8 --timeout 60 --json "$OUT/conformance.json"
if "$PYTHON" -c "import nvfuser_direct" 2>/dev/null; then
    lane=plugins/nvfuser_exec/tests
    step nvfuser 120 "$PYTHON" -m pytest -q --import-mode=importlib -p no:cacheprovider $lane/test_on_device.py $lane/test_goldens.py $lane/test_lifetime.py $lane/test_layouts.py
    step nvfuser_conformance 150 env DOVETAIL_OPTIONS=nvfuser.least=1 "${DOVETAIL[@]}" conformance nvfuser --level core --device cuda -n 8 --timeout 60 --json "$OUT/nvfuser.json"
fi
step benchmark 145 "$PYTHON" benchmarks/gpu.py --out "$OUT" --seconds 130
[ -f "$OUT/gpu.md" ] && cat "$OUT/gpu.md"
rm -rf "$SITE"
echo "$failed steps failed"
exit "$failed"
