"""Plugins that are broken, one each, beside one that works: what is in them, and the row that each has to become.

`tests/executors/test_discovery.py` installs a distribution of each with pip.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

HOOK = "from dovetail.extend import OperatorExecutor, FusionExecutor, hookimpl\n"
ONE = HOOK + "@hookimpl\ndef dovetail_executors():\n    return [OperatorExecutor({name!r})]\n"
TRIPPED = "import pathlib\npathlib.Path(__file__).with_suffix('.imported').touch()\n"  # what may not be imported says when it was


FINE = (
    HOOK
    + """import torch
@hookimpl
def dovetail_executors():
    ex = OperatorExecutor("fine")
    ex.implements(torch.sin, lambda input: torch.sin(input))
    return [ex]
"""
)


def hook(body: str) -> str:
    return HOOK + f"@hookimpl\ndef dovetail_executors():\n    {body}\n"


# name -> (source, status, words of the reason); `project` and `point` change what the distribution says of itself
BROKEN: dict[str, tuple[str, str, str]] = {
    "no_dependency": (
        "import no_such_dependency\n" + hook("return []"),
        "import-failed",
        "needs the module no_such_dependency, which is not installed",
    ),
    "no_module": ("", "import-failed", "names the module gone_for_good, and there is no gone_for_good"),
    "no_attribute": (hook("return []") + "plugin = 1\n", "invalid", "has no plugins; did its author mean plugin?"),
    "no_library": ("raise OSError('libcudart.so.12: cannot open shared object file')", "import-failed", "OSError: libcudart.so.12: cannot open"),
    "exits": ("import sys\nsys.exit(3)", "import-failed", "called sys.exit(3)"),
    "panics": ("class PanicException(BaseException): pass\nraise PanicException('rust')", "import-failed", "PanicException: rust"),
    "syntax": ("def dovetail_executors(:\n", "import-failed", "SyntaxError"),
    "mute": ("class Mute(Exception):\n    def __str__(self): raise ValueError\nraise Mute", "import-failed", "its message cannot be printed"),
    "recursive": ("def f(): f()\nf()", "import-failed", "RecursionError"),
    "misspelt": (HOOK + "@hookimpl\ndef dovetail_executor():\n    return []\n", "invalid", "did its author mean dovetail_executors?"),
    "argument": (HOOK + "@hookimpl\ndef dovetail_executors(device):\n    return []\n", "invalid", "the hook takes no arguments"),
    "unmarked": ("def dovetail_executors():\n    return []\n", "invalid", "is not marked as a hook"),
    "empty": ("", "invalid", "does not implement the hook dovetail_executors"),
    "raises": (hook("raise ValueError('no tables today')"), "invalid", "its hook dovetail_executors raised ValueError: no tables today"),
    "late": (hook("import no_such_kernels"), "import-failed", "its hook dovetail_executors needs the module no_such_kernels"),
    "returns_none": (hook("return None"), "invalid", "returned None, where a list of executors is wanted"),
    "returns_names": (hook("return ['fast']"), "invalid", "gave an object of type str, which is no executor"),
    "returns_nothing": (hook("return []"), "invalid", "returned no executor"),
    "two_of_a_name": (hook("return [OperatorExecutor('same'), OperatorExecutor('same')]"), "invalid", "two executors called same"),
    "no_super": (HOOK + "class E(OperatorExecutor):\n    def __init__(self): pass\n" + hook("return [E()]"), "invalid", "its E has no name"),
    "no_fuse": (hook("return [FusionExecutor('halffusion')]"), "invalid", "has no can_fuse and no fuse"),
    "bad_name": (hook("return [OperatorExecutor('two words')]"), "invalid", "an executor's name is an identifier"),
    "no_device": (
        HOOK + "class E(OperatorExecutor):\n    def available(self): return 'needs a device of kind unobtainium'\n" + hook("return [E('no_device')]"),
        "unavailable",
        "needs a device of kind unobtainium",
    ),
    "no_reason": (
        HOOK + "class E(OperatorExecutor):\n    def available(self): return False\n" + hook("return [E('no_reason')]"),
        "unavailable",
        "no reason",
    ),
    "available_raises": (
        HOOK + "class E(OperatorExecutor):\n    def available(self): return 1 / 0\n" + hook("return [E('available_raises')]"),
        "invalid",
        "available() of available_raises raised ZeroDivisionError",
    ),
    "half": (
        HOOK + "from dovetail.extend import add_operator_executor, make_prim\nadd_operator_executor('half_registered', {})\n"
        "make_prim('half.prim', 'prim', meta=lambda x: x)\nraise RuntimeError('after registering')",
        "import-failed",
        "after registering",
    ),
    "thief": (hook("return [OperatorExecutor('torch')]"), "conflict", "torch is provided by dovetail-thief 1.0"),
    "old_torch": (TRIPPED + ONE, "unmet-requirement", "requires torch>=99"),
    "no_requirement": (TRIPPED + ONE, "unmet-requirement", "requires no-such-distribution, which is not installed"),
    "by_extra": (TRIPPED + ONE, "unmet-requirement", "requires no-such-kernels>=2, which is not installed"),
    "old_api": (TRIPPED + ONE, "incompatible", "requires dovetail<0.1, and this is dovetail"),
    "other_api": (TRIPPED + ONE, "incompatible", "requires executor API 7"),
    "blocked": (TRIPPED + ONE, "disabled", "disabled by DOVETAIL_DISABLE"),
    "fine": (FINE, "ready", ""),
}
METADATA = {  # lines of a distribution's metadata
    "old_torch": ["Requires-Dist: torch>=99"],
    "no_requirement": ["Requires-Dist: no-such-distribution; python_version >= '3'", "Requires-Dist: other; python_version < '3'"],
    "by_extra": ["Requires-Dist: dovetail-fine[kernels]"],
    "fine": [
        *("Provides-Extra: kernels", "Requires-Dist: no-such-kernels>=2; extra == 'kernels'"),
        *("Provides-Extra: other", "Requires-Dist: nothing-of-this-name; extra == 'other'"),
    ],
    "other_api": ["Requires-Dist: dovetail[api7]"],
    "old_api": ["Requires-Dist: dovetail<0.1"],
}
POINTS = {  # the entry point, where it is not the module of the distribution
    "no_module": "gone_for_good",
    "no_attribute": "broken_no_attribute:plugins",
}
CONFLICT = ("left", "right")  # two distributions that both bring a plugin called `contested`


def wheels(folder: Path) -> list[Path]:
    """Write a wheel of every distribution; building each of them from source would take a minute."""
    modules = {name: (name, f"broken_{name}", source.replace("{name!r}", repr(name))) for name, (source, _, _) in BROKEN.items()}
    modules |= {side: ("contested", f"broken_{side}", TRIPPED + ONE.replace("{name!r}", repr("contested"))) for side in CONFLICT}
    return [_wheel(folder, *row, METADATA.get(name, []), f"dovetail_{name}", POINTS.get(name)) for name, row in modules.items()]


def _wheel(folder: Path, plugin: str, module: str, source: str, metadata: list[str], distribution: str, point: str | None) -> Path:
    info = f"{distribution}-1.0.dist-info"
    files = {
        f"{module}.py": source,
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", f"Name: {distribution.replace('_', '-')}", "Version: 1.0", *metadata, ""]),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[dovetail.executors]\n{plugin} = {point or module}\n",
    }
    path = folder / f"{distribution}-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    return path
