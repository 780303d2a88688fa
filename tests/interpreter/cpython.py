"""Runs CPython's own test modules with each test method under `interpret`, and prints a table of those that do not pass.

    python tests/interpreter/cpython.py [--json] [--protocols | --tracker | --jit] [MODULE ...]

With --protocols what operators and attributes call is interpreted too; with --tracker the run is tracked: what is printed, and what is
written to outside objects, then waits for a replay that this script does not do, so that some methods cannot pass.  With --jit each method
is compiled and called, so all of them may pass; those that are refused say so, and have no reason of their own.  Modules as test_list,
test_deque and test_itertools say most there: C code calls what is interpreted.

Any Python of the supported versions will do, also one without torch.  A method counts when it passes natively; each runs in a process of
its own, where its body, and the Python that it calls, is interpreted.  The reasons why some do not pass are in `not_passing.py`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import signal
import sys
import time
import types
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "core"
TIMEOUT = 60  # seconds of processor time for one method, and ten times as many by the clock: the machine may be busy
WORLDS = {"--protocols": ("protocols", "Protocols"), "--tracker": ("tracking", "Tracker")}

_NAMES = """
    test_grammar test_generators test_with test_exceptions test_scope test_super test_dictcomps test_listcomps test_setcomps test_unpack
    test_unpack_ex test_call test_extcall test_class test_descr test_property test_decorators test_raise test_contextlib test_patma
    test_named_expressions test_positional_only_arg test_keywordonlyarg

    test_funcattrs test_global test_genexps test_dynamicclassattribute test_yield_from test_generator_stop
    test_except_star test_exception_group test_baseexception test_exception_variations test_exception_hierarchy
    test_metaclass test_subclassinit test_genericclass test_isinstance test_abc test_typechecks test_enum test_dataclasses
    test_augassign test_binop test_compare test_richcmp test_bool test_slice test_unary test_opcodes test_iter
    test_coroutines test_asyncgen test_contextlib_async
    test_fstring test_tstring test_string_literals test_type_annotations test_annotationlib test_pep646_syntax test_type_params test_type_aliases
    test_functools test_collections test_userdict test_userlist test_copy test_types test_operator test_enumerate test_dynamic
    test_builtin test_traceback test_typing test_inspect
"""
MODULES = _NAMES.split()
REQUIRED = MODULES[: MODULES.index("test_keywordonlyarg") + 1]


def load_interpreter() -> types.ModuleType:
    """`dovetail.frontend.interpreter` without what `dovetail` itself imports: the packages above it are made bare."""
    for name, folder in (("dovetail", CORE), ("dovetail.frontend", CORE / "frontend")):
        bare = types.ModuleType(name)
        bare.__path__ = [str(folder)]
        sys.modules[name] = bare
    return importlib.import_module("dovetail.frontend.interpreter")


def cases(module: str) -> Iterator[unittest.TestCase]:
    """The test methods and doctests of one of CPython's test modules."""
    rest: list = [unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module("test." + module))]
    while rest:
        item = rest.pop(0)
        if isinstance(item, unittest.TestSuite):
            rest[:0] = list(item)
        elif hasattr(item, "_testMethodName"):
            yield item


def run(case: unittest.TestCase, interpret) -> str:
    """ "ok", "skip", or why a method failed; with its body under `interpret` unless that is None."""
    name = case._testMethodName
    method = getattr(case, name, None)
    if interpret is not None and method is not None:
        interpreted = interpret(method)
        if inspect.iscoroutinefunction(method):
            setattr(case, name, _asynchronous(interpreted))
        else:
            setattr(case, name, interpreted)
    module = sys.modules[type(case).__module__]
    if hasattr(module, "setUpModule"):
        module.setUpModule()
    type(case).setUpClass()
    result = unittest.TestResult()
    case.run(result)
    if result.skipped:
        return "skip"
    if result.wasSuccessful():
        return "ok"
    failed = result.errors + result.failures
    return failed[0][1].strip() if failed else "unexpected success"


def _asynchronous(interpreted):
    async def run(*args):
        return await interpreted(*args)

    return run


def in_child(case: unittest.TestCase, interpret) -> str:
    """`run` in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
        signal.alarm(10 * TIMEOUT)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            message = run(case, interpret)
        except unittest.SkipTest:
            message = "skip"
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        os.write(write, message.encode(errors="replace")[-2000:])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    return message or "it crashed or took too long"


def check(module: str, interpret, not_run: set[str]) -> dict:
    """How many methods of a module pass natively, and those of them that do not pass interpreted, with the last line they say."""
    began, count, failing = time.perf_counter(), 0, {}
    for case in cases(module):
        name = f"{module}.{type(case).__name__}.{case._testMethodName}"
        if "__test__" in case.id() or "DocTest" in type(case).__name__:
            name = f"{module}.doctest.{case.id().rpartition('.')[2]}"
        message = "it is not run: it takes too long" if name in not_run else in_child(case, interpret)
        if message != "ok":
            if in_child(case, None) != "ok":
                continue
            failing[name] = message.splitlines()[-1].strip()
        count += 1
    return {"module": module, "count": count, "failing": failing, "seconds": round(time.perf_counter() - began, 1)}


def main(args: list[str]) -> int:
    warnings.filterwarnings("ignore")
    interpret = importlib.import_module("dovetail").jit if "--jit" in args else load_interpreter().interpret
    for flag, (module, world) in WORLDS.items():
        if flag in args:
            interpret = functools.partial(interpret, world=getattr(importlib.import_module("dovetail.frontend.interpreter." + module), world)())
    sys.path.insert(0, str(HERE))
    reasons = importlib.import_module("not_passing")
    total = passing = unknown = 0
    for module in [a for a in args if not a.startswith("-")] or MODULES:
        try:
            importlib.import_module("test." + module)
        except ImportError:
            continue  # this version has no such module
        found = check(module, interpret, reasons.NOT_RUN)
        total, passing = total + found["count"], passing + found["count"] - len(found["failing"])
        if "--json" in args:
            print(json.dumps(found), flush=True)
            continue
        print(f"{module}: {found['count'] - len(found['failing'])} of {found['count']} in {found['seconds']} s", flush=True)
        for name, message in found["failing"].items():
            unknown += name not in reasons.REASONS and "dovetail.errors.Unsupported" not in message
            print(f"    {name}: {reasons.REASONS.get(name, 'no reason is known: ' + message)}")
    if "--json" not in args:
        print(f"{passing} of {total} methods pass under Python {sys.version.split()[0]}: {100 * passing / max(total, 1):.2f} %")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
