#!/usr/bin/env bash
# Everything that needs a GPU, in under nine minutes: installs from the working tree without network, runs the Triton executor's tests and
# its conformance on CUDA side by side, and then, alone on the device, the benchmark.
#
#     benchmarks/gpu_check.sh [FOLDER [WHEELS]]
#
# FOLDER gets gpu.json, gpu.md, a report conformance-*.json for each family of operations that was done in time, and the logs
# (benchmarks/results by default): what was found so far, whenever a step is cut off.  It needs PyTorch for CUDA, triton and pytest; WHEELS is
# a folder of wheels for what else the machine lacks, which the first step names.  The exit status counts the steps that failed.
set -u
cd "$(dirname "$0")/.."
OUT=$(mkdir -p "${1:-benchmarks/results}" && cd "${1:-benchmarks/results}" && pwd)
WHEELS=${2:-}
[ -n "$WHEELS" ] && WHEELS=$(cd "$WHEELS" && pwd)
SITE=$(mktemp -d)
PYTHON=${PYTHON:-python3}
WORKERS=${WORKERS:-10}
END=${END:-525} # seconds for all of it
TOGETHER=210 # for tests and conformance
BENCHMARK=225 # for the benchmark, which is what the others leave time for
export PYTHONPATH="$SITE" PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore XDG_CACHE_HOME="$SITE/cache" TRITON_CACHE_DIR="$SITE/triton" OMP_NUM_THREADS=2
unset TRITON_INTERPRET
FAILED="$SITE/failed" CUT="$SITE/cut"
: >"$FAILED" >"$CUT"

# The lesser of two numbers, and at least 1.
least() { local n=$(($1 < $2 ? $1 : $2)) && echo $((n > 1 ? n : 1)); }

# How many seconds are left before the last so many.
left() { echo $((END - SECONDS - ${1:-0})); }

# Runs a step for at most some seconds, which end it with the signal $STOP; keeps its output, and counts it where it fails or is cut off.
step() {
    local name=$1 limit=$2 began=$SECONDS code
    shift 2
    timeout --signal="${STOP:-TERM}" --kill-after=5 "$limit" env --default-signal=INT "$@" >"$OUT/$name.log" 2>&1
    code=$?
    if [ $code -eq 0 ]; then
        echo "== $name: $((SECONDS - began)) s; $(grep -m 1 passed "$OUT/$name.log" || tail -n 1 "$OUT/$name.log")"
    elif [ $code -eq 124 ] || [ $code -eq 137 ]; then
        echo "== $name cut off after $((SECONDS - began)) s; the end of $name.log:"
        tail -n 3 "$OUT/$name.log"
        echo "$name" >>"$CUT"
    else
        echo "== $name failed after $((SECONDS - began)) s; the end of $name.log:"
        tail -n 15 "$OUT/$name.log"
        echo "$name" >>"$FAILED"
    fi
}

# Unpacks the wheels, and puts packages of the working tree beside them with what `pip install` would say of them: no builder is needed.
install() {
    "$PYTHON" - "$SITE" "$WHEELS" . plugins/torch_exec plugins/triton_exec plugins/nvfuser_exec conformance <<'INSTALL' || return 1
import shutil, sys, tomllib, zipfile
from pathlib import Path

site, wheels, *folders = sys.argv[1:]
for wheel in sorted(Path(wheels).glob("*.whl")) if wheels else ():
    zipfile.ZipFile(wheel).extractall(site)
for folder in map(Path, folders):
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    shutil.copytree("core" if name == "dovetail" else folder / name, Path(site, name), ignore=shutil.ignore_patterns("__pycache__"))
    info = Path(site, f"{name}-{project['version']}.dist-info")
    info.mkdir()
    about = [("Metadata-Version", "2.4"), ("Name", project["name"]), ("Version", project["version"])]
    about += [("Requires-Python", project["requires-python"]), *(("Requires-Dist", each) for each in project["dependencies"])]
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in about))
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    rows = [row for group, points in groups.items() for row in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()), "")]
    (info / "entry_points.txt").write_text("\n".join(rows))
INSTALL
    "$PYTHON" - <<'CHECK'
import importlib, sys

names = ("torch", "triton", "pytest", "pluggy", "packaging", "platformdirs", "importlib_metadata", "rich", "click", "scipy", "numpy", "jsonschema")
missing = []
for name in (*names, "hypothesis"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(f"{name} ({error})")
if missing:
    sys.exit("not installed here: " + ", ".join(missing) + "; put wheels of them into a folder and name it as the second argument")
import dovetail, torch, triton
device = torch.cuda.get_device_name() if torch.cuda.is_available() else sys.exit("PyTorch sees no CUDA device; check nvidia-smi")
print(device, "torch", torch.__version__, "triton", triton.__version__, dovetail.__file__)
CHECK
}
export -f install
export WHEELS SITE PYTHON

DOVETAIL=("$PYTHON" -c "from dovetail.cli import main; main()")
HELD=("${DOVETAIL[@]}" conformance triton cross_entropy_triton --level core --device cuda -n "$WORKERS" --timeout 60)
PYTEST=("$PYTHON" -m pytest -vv --import-mode=importlib -p no:cacheprovider) # a line for each test, when it is done
if "$PYTHON" -c "import xdist" 2>/dev/null; then PYTEST+=(-n 4); fi
FAMILIES=(cross_entropy softmax norm program 'prims.[a-f]*' 'prims.[g-r]*' 'prims.[s-z]*' 'torch.nn*' 'torch.[a-e]*' 'torch.[f-m]*')
FAMILIES+=('torch.n[a-mo-z]*' 'torch.[o-s]*' 'torch.[t-z]*' 'torch.Tensor*' operator)

# One family after the other, the most telling first, so that what was done in time has its report.
conformance() {
    local end=$((SECONDS + TOGETHER)) dtype family name
    for dtype in float32 bfloat16; do
        for family in "${FAMILIES[@]}"; do
            [ $((end - SECONDS)) -gt 10 ] || return
            name="conformance-$dtype-${family//[^A-Za-z_.-]/}"
            step "$name" $((end - SECONDS)) "${HELD[@]}" -k "$family" --dtype "$dtype" --json "$OUT/$name.json"
        done
    done
}

step install 45 bash -c install
[ -s "$FAILED" ] || [ -s "$CUT" ] && exit 1
step executors 30 "${DOVETAIL[@]}" executors
TOGETHER=$(least $TOGETHER "$(left $BENCHMARK)")
conformance &
STOP=INT step tests "$TOGETHER" "${PYTEST[@]}" plugins/triton_exec/tests/test_values.py plugins/triton_exec/tests/test_cross_entropy.py
wait
if "$PYTHON" -c "import nvfuser_direct" 2>/dev/null; then
    lane=plugins/nvfuser_exec/tests
    STOP=INT step nvfuser "$(least 60 "$(left 150)")" \
        "${PYTEST[@]}" $lane/test_on_device.py $lane/test_goldens.py $lane/test_lifetime.py $lane/test_layouts.py
fi
BENCHMARK=$(least $BENCHMARK "$(left 10)")
step benchmark "$BENCHMARK" "$PYTHON" benchmarks/gpu.py --out "$OUT" --seconds $((BENCHMARK - 20))
[ -f "$OUT/gpu.md" ] && cat "$OUT/gpu.md"
failed=$(wc -l <"$FAILED")
cut=$(wc -l <"$CUT")
rm -rf "$SITE"
echo "$failed steps failed, $cut were cut off, after $SECONDS s"
exit "$failed"
