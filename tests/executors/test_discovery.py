"""Discovery and loading: rows 1 to 13 and 15 of the feature table, the traps of section 5, scenarios 37 and 43."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import broken
import importlib_metadata
import pytest
import torch

import dovetail
from dovetail.executors import STATUSES
from dovetail.executors.discovery import find_plugins, plugin_status, requirements
from dovetail.executors.discovery import registry as registry_module
from dovetail.executors.discovery.plugin_filter import Selection
from dovetail.executors.discovery.registry import Registry

PROGRAM = """
import json, sys
import dovetail, torch
before = set(sys.modules)
rows = dovetail.extend.advanced.plugins()
sine = dovetail.jit(torch.sin, executors=["fine"])
message = str(sine(torch.zeros(2)).tolist()), [line.implementation.executor for line in dovetail.last_traces(sine)[-1].lines if line.implementation]
from dovetail.prims.op import SYMBOLS
left = [name for name in ("half_registered", "contested", "no_device") if name in dovetail.executors.discovery.registry.REGISTRY.executors]
print(json.dumps({"rows": [row.row() for row in rows], "ran": message, "left": left + [name for name in SYMBOLS if name.startswith("half")]}))
"""


@pytest.fixture(scope="session")
def ecosystem(tmp_path_factory, new_process) -> dict:
    """What a process says in whose environment pip has installed every broken plugin, and one that works."""
    folder = tmp_path_factory.mktemp("plugins")
    target = folder / "target"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--target", str(target), *map(str, broken.wheels(folder))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    environment = os.environ | {"PYTHONPATH": str(target), "DOVETAIL_DISABLE": "blocked", "DOVETAIL_CONFIG": "off", "OMP_NUM_THREADS": "1"}
    done = new_process(["-c", PROGRAM], env=environment, cwd=folder, isolated=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"target": target}


installed_once = pytest.mark.xdist_group("broken plugins")


@installed_once
@pytest.mark.parametrize("name", broken.BROKEN)
def test_rows_2_to_12_and_scenario_43_each_broken_plugin_is_one_correct_row(ecosystem, name):
    (row,) = [row for row in ecosystem["rows"] if row["name"] == name]
    _, status, reason = broken.BROKEN[name]

    assert (row["status"], row["distribution"], row["version"]) == (status, f"dovetail-{name.replace('_', '-')}", "1.0")
    assert reason in row["reason"]
    assert bool(row["remedy"]) == (status != "ready")


@installed_once
def test_rows_2_and_9_the_good_plugin_runs_and_nothing_is_half_registered(ecosystem):
    assert ecosystem["ran"] == ["[0.0, 0.0]", ["fine"]]
    assert ecosystem["left"] == []
    assert {row["status"] for row in ecosystem["rows"]} <= set(STATUSES)


@installed_once
def test_row_4_and_scenario_43_a_conflict_names_both_sides_with_versions_and_paths(ecosystem):
    rows = [row for row in ecosystem["rows"] if row["name"] == "contested"]
    target = ecosystem["target"]

    assert [row["status"] for row in rows] == ["conflict", "conflict"]
    for row in rows:
        for side in broken.CONFLICT:
            assert f"dovetail-{side} 1.0 in {target}" in row["reason"]
            assert f'use = {{ contested = "dovetail-{side}" }}' in row["remedy"]


@installed_once
def test_row_5_what_does_not_fit_is_found_without_importing_it(ecosystem):
    imported = {file.stem.removeprefix("broken_") for file in ecosystem["target"].glob("*.imported")}

    assert imported == set(), "plugins that leave a mark when they are imported"


@installed_once
def test_row_11_the_whole_traceback_is_kept(ecosystem):
    rows = {row["name"]: row["error"] for row in ecosystem["rows"]}

    assert "broken_no_library.py" in rows["no_library"] and "libcudart.so.12: cannot open" in rows["no_library"]
    assert "SystemExit: 3" in rows["exits"] and "ZeroDivisionError" in rows["available_raises"]
    assert rows["fine"] == rows["old_torch"] == ""


@installed_once
def test_row_3_rows_are_in_an_order_that_no_file_system_decides(ecosystem):
    keys = [(row["name"], row["distribution"]) for row in ecosystem["rows"]]

    assert keys == sorted(keys)


@pytest.fixture
def registry():
    return Registry()


def rows_of(registry: Registry, selection: Selection = Selection()) -> dict[str, plugin_status.Plugin]:  # noqa: B008
    registry.load(selection)
    return {row.name: row for row in registry.plugins}


def test_scenario_37_a_package_with_one_entry_point_is_listed(site, good, registry):
    site("fast", good("fast"))
    row = rows_of(registry)["fast"]

    assert (row.status, row.executors, row.source, row.path) == ("ready", ("fast",), "dovetail-fast 1.0", str(site.folder))
    assert registry.executors["fast"].distribution == ("dovetail-fast", "1.0")
    assert row.seconds > 0


def test_row_2_importing_dovetail_runs_no_plugin_code(site, tmp_path, new_process):
    site("loud", "raise SystemExit('imported')")
    program = "import dovetail, sys; print('dovetail_loud' in sys.modules, 'dovetail_torch_exec' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(site.folder)}

    assert new_process(["-c", program], env=environment, cwd=tmp_path, isolated=True).stdout == "False False\n"


def test_row_4_a_conflict_is_resolved_by_configuration(site, good, registry):
    site("fast", good("fast"), distribution="dovetail-one")
    site("fast", good("fast"), distribution="dovetail-two")
    registry.load(Selection(use=(("fast", "Dovetail_Two"),), used_by="dovetail.toml:3"))
    one, two = [row for row in registry.plugins if row.name == "fast"]

    assert (one.status, one.reason) == ("disabled", "dovetail.toml:3 says that fast is the one of Dovetail_Two")
    assert (two.status, two.distribution) == ("ready", "dovetail-two")
    assert "dovetail_one" not in sys.modules


def test_row_4_an_executors_name_belongs_to_the_plugin_of_that_name(site, good, registry):
    site("honest", good("honest"))
    site("other", good("honest"))
    rows = rows_of(registry)

    assert rows["honest"].status == "ready" and rows["other"].status == "conflict"
    assert "honest is provided by dovetail-other 1.0" in rows["other"].reason and "dovetail-honest 1.0" in rows["other"].reason


def test_row_4_two_plugins_with_other_names_and_one_executor_are_both_out(site, good, registry):
    site("first", good("shared"))
    site("second", good("shared"))
    rows = rows_of(registry)

    assert rows["first"].status == rows["second"].status == "conflict"
    assert "shared" not in registry.executors


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ("Requires-Dist: no-such-thing; python_version < '3'\n", "ready", ""),
        ("Requires-Dist: no-such-thing; extra == 'more'\n", "ready", ""),
        ("Requires-Dist: torch>=2\nRequires-Dist: packaging\n", "ready", ""),
        ("Requires-Dist: dovetail[api1]>=0.1\n", "ready", ""),
        ("Requires-Dist: dovetail[api2]\n", "incompatible", "requires executor API 2, and dovetail 0.1.0 has API 1"),
        ("Requires-Dist: dovetail>=99\n", "incompatible", "requires dovetail>=99, and this is dovetail 0.1.0"),
        ("Requires-Python: >=3.99\n", "incompatible", "requires Python >=3.99, and this is Python"),
        ("Requires-Python: new\n", "invalid", "its Requires-Python 'new' is no version range"),
        ("Requires-Dist: not a requirement\n", "invalid", "its metadata requires what cannot be read"),
        ("Requires-Dist: torch; no_such_marker == '1'\n", "invalid", "its metadata requires what cannot be read"),
        ("Requires-Dist: torch>=99\nRequires-Dist: no-such-thing\n", "unmet-requirement", "torch>=99, and torch 2"),
    ],
)
def test_rows_5_and_6_requirements(site, good, registry, headers, status, reason):
    site("fast", good("fast"), headers=headers)
    row = rows_of(registry)["fast"]

    assert (row.status, reason in row.reason) == (status, True), row
    assert ("dovetail_fast" in sys.modules) == (status == "ready")


def test_row_5_the_extras_of_an_entry_point_are_required_too(site, good, registry):
    headers = "Provides-Extra: gpu\nRequires-Dist: no-such-thing>=1; extra == 'gpu'\n"
    site("fast", good("fast"), value="dovetail_fast [gpu]", headers=headers)

    assert rows_of(registry)["fast"].reason == "requires no-such-thing>=1, which is not installed"


def test_row_6_the_core_offers_the_extra_that_names_its_api():
    assert f"api{requirements.API}" in (importlib_metadata.metadata("dovetail").get_all("Provides-Extra") or [f"api{requirements.API}"])
    root = Path(__file__).parents[2]
    assert f"\napi{requirements.API} = []" in (root / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ("[dovetail.executors]\nno equals sign\n", "has an invalid line: 'no equals sign'"),
        ("[dovetail.executors]\nfast = dovetail-fast\n", "its entry point fast = 'dovetail-fast' names no module"),
        ("[dovetail.executors]\nfast =\n", "names no module"),
    ],
)
def test_trap_damaged_metadata_is_a_row_and_hides_nobody(site, good, registry, points, reason):
    site("fast", good("fast"), points=points)
    site("good", good("good"))
    rows = [row for row in (registry.load(Selection()), registry.plugins)[1] if row.distribution == "dovetail-fast"]

    assert [row.status for row in rows] == ["invalid"] and reason in rows[0].reason
    assert "good" in registry.executors and "torch" in registry.executors


def test_trap_metadata_that_cannot_be_decoded(site, good, registry):
    info = site("fast", good("fast"))
    (info / "entry_points.txt").write_bytes(b"[dovetail.executors]\nfast = \xff\xfe\n")
    site("good", good("good"))
    rows = rows_of(registry)

    assert rows["good"].status == "ready"
    assert [row.status for row in rows.values() if row.distribution.endswith("fast")] == ["invalid"]


def test_trap_5_blocking_comes_before_importing(site, registry):
    site("loud", "raise RuntimeError('imported')")
    by_plugin = rows_of(registry, Selection(disable=("loud",), disabled_by="dovetail.toml:2"))["loud"]
    by_distribution = rows_of(Registry(), Selection(disable=("Dovetail.Loud",), disabled_by="DOVETAIL_DISABLE"))["loud"]
    by_list = rows_of(Registry(), Selection(allow=("torch",), allowed_by="DOVETAIL_ALLOW"))["loud"]

    assert (by_plugin.status, by_plugin.reason) == ("disabled", "disabled by dovetail.toml:2")
    assert by_distribution.remedy == "take it out of DOVETAIL_DISABLE"
    assert (by_list.status, by_list.reason) == ("disabled", "DOVETAIL_ALLOW allows only torch")


@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        ("pyproject.toml:3", "take it out of `disable` in pyproject.toml:3"),
        ("DOVETAIL_DISABLE (environment)", "take it out of DOVETAIL_DISABLE"),
        ("--disable (command line)", "take it out of --disable"),
    ],
)
def test_row_22_the_remedy_names_what_to_change(site, good, registry, where, remedy):
    site("fast", good("fast"))

    assert rows_of(registry, Selection(disable=("fast",), disabled_by=where))["fast"].remedy == remedy


def test_the_executors_of_a_plugin_know_their_place_in_what_its_hook_gives(site, registry):
    source = """
from dovetail.extend import OperatorExecutor, hookimpl

@hookimpl
def dovetail_executors():
    return [OperatorExecutor("zebra"), OperatorExecutor("apple")]
"""
    site("pair", source)
    assert rows_of(registry)["pair"].executors == ("zebra", "apple")
    assert [registry.executors[name].place for name in ("zebra", "apple")] == [("pair", 0), ("pair", 1)]


def test_row_8_one_executor_of_two_lacks_a_device(site, registry):
    source = """
from dovetail.extend import OperatorExecutor, hookimpl
class Needy(OperatorExecutor):
    def available(self): return "needs a device of kind unobtainium"
@hookimpl
def dovetail_executors(): return [OperatorExecutor("works"), Needy("needy")]
"""
    site("both", source)
    row = rows_of(registry)["both"]

    assert (row.status, row.executors, row.reason) == ("ready", ("works",), "needy: needs a device of kind unobtainium")
    assert "needy" not in registry.executors


def test_row_10_rows_are_data_that_json_and_pickle_hold(site, registry):
    site("broken", "import no_such_thing")
    row = rows_of(registry)["broken"]

    assert json.loads(json.dumps(row.row()))["remedy"] == "install what brings the module no_such_thing"
    assert pickle.loads(pickle.dumps(row)) == row


def test_row_12_an_unknown_name_gets_candidates_and_their_status(site, good, monkeypatch):
    site("fastest", "import no_such_thing")
    site("quick", good("quick"))
    mine = Registry()
    mine.load(Selection())
    monkeypatch.setattr(registry_module, "REGISTRY", mine)

    with pytest.raises(dovetail.DovetailError, match=re.escape("no executor is called 'quik'; did you mean quick?")):
        registry_module.get_executor("quik")
    with pytest.raises(dovetail.DovetailError, match=r"did you mean fastest\?; fastest \(dovetail-fastest 1.0\): import-failed; importing"):
        registry_module.get_executor("fastes")
    with pytest.raises(dovetail.DovetailError, match=r"executor fastest cannot be used: .* needs the module no_such_thing, which is not installed"):
        registry_module.get_executor("fastest")


def test_rows_10_and_13_an_executor_that_is_known_of_and_absent(site, good, registry):
    points = "[dovetail.executors]\nfast = dovetail_fast\n[dovetail.known]\nfaster = dovetail_faster [cpu, cuda]\nfast = dovetail_fast\n"
    site("fast", good("fast"), points=points)
    rows = rows_of(registry)

    assert rows["faster"].status == "absent"
    assert rows["faster"].reason.startswith("dovetail-fast knows of it, and it is not installed, though there is a device of kind cpu")
    assert rows["faster"].remedy == "pip install dovetail-faster"
    assert rows["fast"].status == "ready"


def test_row_7_a_manifest_is_found_without_importing(site, registry):
    package = site.folder / "dovetail_heavy"
    package.mkdir()
    (package / "__init__.py").write_text("import no_such_thing")
    (package / find_plugins.MANIFEST).write_text('{"schema": 1, "executors": []}')
    site("heavy", None)

    assert rows_of(registry)["heavy"].manifest == str(package / find_plugins.MANIFEST)


@pytest.mark.parametrize("layout", ["module", "package", "project", "src"])
def test_row_15_a_plugin_in_development_is_named_by_its_path(tmp_path, good, registry, layout):
    name = f"grown_{layout}"
    path = {"module": tmp_path / f"{name}.py", "package": tmp_path / name}.get(layout, tmp_path / "project")
    module = {
        "module": path,
        "package": path / "__init__.py",
        "project": path / name / "__init__.py",
        "src": path / "src" / name / "__init__.py",
    }[layout]
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text(good(name))
    if layout in ("project", "src"):
        points = f'[project.entry-points."dovetail.executors"]\n{name} = "{name}"'
        (path / "pyproject.toml").write_text(f'[project]\nname = "dovetail-{name}"\nversion = "1.0"\n{points}\n')
    row = rows_of(registry, Selection(plugins=(str(path),)))[name]
    sys.modules.pop(name)

    assert (row.status, row.executors, row.path) == ("ready", (name,), str(path))
    assert row.distribution == ("" if layout in ("module", "package") else f"dovetail-{name}")


def test_row_15_a_plugin_in_development_takes_the_place_of_an_installed_one(site, good, tmp_path, registry):
    site("fast", good("fast"))
    (tmp_path / "fast.py").write_text(good("fast"))
    registry.load(Selection(plugins=(str(tmp_path / "fast.py"),)))
    dev, installed = [row for row in registry.plugins if row.name == "fast"]
    sys.modules.pop("fast")

    assert (dev.status, dev.distribution) == ("ready", "")
    assert (installed.status, installed.distribution) == ("disabled", "dovetail-fast")
    assert f"the plugin in development at {tmp_path / 'fast.py'} takes its place" in installed.reason


@pytest.mark.parametrize(("made", "reason"), [(None, "is not there"), ("folder", "is not a module, package"), ("a-b.py", "is not a valid")])
def test_row_15_a_path_that_holds_no_plugin(tmp_path, registry, made, reason):
    path = tmp_path / (made or "gone.py")
    if made:
        path.write_text("") if made.endswith(".py") else path.mkdir()
    (row,) = [row for row in (registry.load(Selection(plugins=(str(path),))), registry.plugins)[1] if row.path == str(path)]

    assert row.status == "invalid" and reason in row.reason


def test_trap_8_loading_happens_once_whatever_thread_asks(site, good, registry):
    counted = good("slow").replace("def dovetail_executors():", "def dovetail_executors():\n    LOADS.append(1)")
    site("slow", f"import time; time.sleep(0.2)\nLOADS = []\n{counted}")
    barrier = threading.Barrier(4)

    def ask(_) -> list[str]:
        barrier.wait()
        registry.load(Selection())
        return sorted(registry.executors)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))

    assert "slow" in answers[0] and all(answer == answers[0] for answer in answers)
    assert sys.modules["dovetail_slow"].LOADS == [1]


def test_trap_8_what_was_installed_meanwhile_is_found_and_the_rest_is_kept(site, good, registry):
    site("fast", good("fast"))
    registry.refresh(Selection())
    before, generation = registry.executors["fast"], registry.generation
    registry.refresh(Selection())
    assert registry.generation == generation
    info = site("later", good("later"))
    registry.refresh(Selection())
    assert registry.executors["fast"] is before and "later" in registry.executors and registry.generation > generation
    (info / "METADATA").unlink(), (info / "entry_points.txt").unlink(), info.rmdir()
    registry.refresh(Selection())
    assert "later" not in registry.executors and "later" not in {row.name for row in registry.plugins}


def test_an_upgrade_of_a_loaded_plugin_says_that_the_old_code_runs(site, good, registry):
    info = site("fast", good("fast"))
    registry.refresh(Selection())
    (info / "METADATA").write_text((info / "METADATA").read_text().replace("Version: 1.0", "Version: 2.0"))
    info.rename(info.with_name(info.name.replace("1.0", "2.0")))
    before = registry.executors["fast"]
    registry.refresh(Selection())
    row = rows_of(registry)["fast"]

    assert (row.status, row.version) == ("ready", "2.0")
    assert row.reason == "version 2.0 is installed, and the code of version 1.0 is still loaded" and row.remedy == "start Python again"
    assert registry.executors["fast"] is before


def test_a_plugin_that_failed_is_tried_again_when_something_was_installed(site, good, registry):
    site("fast", "import comes_later\n" + good("fast"))
    assert rows_of(registry)["fast"].status == "import-failed"
    (site.folder / "comes_later.py").write_text("")
    registry.refresh(Selection())

    assert "fast" in registry.executors


def test_keyboard_interrupt_gets_through_and_nothing_is_half_loaded(site, registry):
    site("stopped", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.load(Selection())

    assert registry.plugins is None
    registry.load(Selection(disable=("stopped",)))
    assert "torch" in registry.executors


def test_a_plugin_may_ask_for_executors_while_it_is_loaded(site, good, registry, monkeypatch):
    monkeypatch.setattr(registry_module, "REGISTRY", registry)
    site("curious", "import dovetail.extend\nSEEN = [ex.name for ex in dovetail.extend.advanced.executors()]\n" + good("curious"))

    assert rows_of(registry)["curious"].status == "ready"


def test_trap_16_a_forked_worker_has_the_executors(tmp_path, new_process):
    program = (
        "import os, torch, dovetail\nfrom dovetail.executors.discovery.registry import REGISTRY\n"
        "dovetail.extend.advanced.plugins()\nREGISTRY.lock.acquire()\n"
        "import threading\nchild = os.fork()\n"
        "if child == 0:\n"
        "    t = threading.Thread(target=REGISTRY.refresh); t.start(); t.join(30)\n"
        "    os._exit(0 if not t.is_alive() and dovetail.jit(torch.sin)(torch.zeros(1)).item() == 0 else 1)\n"
        "print(os.waitpid(child, 0)[1])"
    )
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    done = new_process(["-c", program], cwd=tmp_path, isolated=True)

    assert done.stdout == "0\n", done.stderr


def test_the_executors_of_this_environment_are_ready_or_say_why():
    for row in dovetail.extend.advanced.plugins():
        assert row.status == "ready" or (row.reason and row.remedy), row
    assert torch.equal(dovetail.jit(torch.neg)(torch.ones(2)), -torch.ones(2))


def test_row_9_the_page_says_what_every_status_means():
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()

    assert [status for status, meaning in STATUSES.items() if f"| `{status}` | {meaning} |" not in page] == []
