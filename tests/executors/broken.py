"""Plugins that are broken, one each, beside one that works: what is in them, and the row that each has to become.

`tests/executors/test_discovery.py` makes distributions of them and installs them with pip.
"""

from __future__ import annotations

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
    "returns_nothing": (hook("return []"), "invalid", "gave no executor"),
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
PROJECT = {  # lines of [project]
    "old_torch": 'dependencies = ["torch>=99"]',
    "no_requirement": "dependencies = [\"no-such-distribution; python_version >= '3'\", \"other; python_version < '3'\"]",
    "by_extra": 'dependencies = ["dovetail-fine[kernels]"]',
    "fine": 'optional-dependencies = { kernels = ["no-such-kernels>=2"], other = ["nothing-of-this-name"] }',
    "other_api": 'dependencies = ["dovetail[api7]"]',
    "old_api": 'dependencies = ["dovetail<0.1"]',
}
POINTS = {  # the entry point, where it is not the module of the distribution
    "no_module": "gone_for_good",
    "no_attribute": "broken_no_attribute:plugins",
}
CONFLICT = ("left", "right")  # two distributions that both bring a plugin called `contested`


def pyproject(distribution: str, module: str, name: str, project: str = "", point: str = "") -> str:
    """The pyproject.toml of a plugin that is one module."""
    return "\n".join(
        [
            '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"',
            f'[project]\nname = "{distribution}"\nversion = "1.0"\n{project}',
            f'[project.entry-points."dovetail.executors"]\n{name} = "{point or module}"',
            f'[tool.setuptools]\npy-modules = ["{module}"]\n',
        ]
    )


def projects() -> dict[str, dict[str, str]]:
    """The files of every distribution."""
    made = {}
    for name, (source, _, _) in BROKEN.items():
        module, distribution = f"broken_{name}", f"dovetail-{name.replace('_', '-')}"
        toml = pyproject(distribution, module, name, PROJECT.get(name, ""), POINTS.get(name, ""))
        made[distribution] = {"pyproject.toml": toml, f"{module}.py": source.replace("{name!r}", repr(name))}
    for side in CONFLICT:
        module = f"broken_{side}"
        source = TRIPPED + ONE.replace("{name!r}", repr("contested"))
        made[f"dovetail-{side}"] = {"pyproject.toml": pyproject(f"dovetail-{side}", module, "contested"), f"{module}.py": source}
    return made
