"""Generates programs that call C code, changes one thing between two calls, and compares with eager Python.

    python tests/interpreter/generated.py [--programs 5000] [--seed 0] [--table docs/c_code.md] [--only TEXT] [--unseen]

A row of generated_calls.txt names a callable and an expression over `v`, a value of some kind.  A program takes one row, three values of its
kind, a nest of containers that `v` lies in, and a way by which it reaches the program: as an argument, a global, an attribute, a default,
through a descriptor, behind a star, changed in place, ...  A result may be eager's or a refusal, never another value.  The table counts both
for each callable.
"""

from __future__ import annotations

import argparse
import collections
import functools
import importlib.util
import random
import sys
import types
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

import dovetail
from dovetail.compiler.pipeline import ACQUIRE
from dovetail.errors import DovetailError
from dovetail.frontend.interpreter.tracebacks import is_own, is_stub

HERE = Path(__file__).resolve().parent
NESTS = {  # how `v` is put into containers, and how it is taken out
    "plain": ("{v}", "{a}"),
    "list": ("[{v}]", "{a}[0]"),
    "tuple": ("({v}, 1)", "{a}[0]"),
    "dict": ("dict(k={v})", "{a}['k']"),
    "named tuple": ("Pair({v}, 2)", "{a}.left"),
    "dataclass": ("Holder({v})", "{a}.value"),
    "slots": ("Slots({v})", "{a}.value"),
    "deque": ("collections.deque([{v}])", "{a}[-1]"),
    "ordered dict": ("collections.OrderedDict(k={v})", "{a}['k']"),
    "default dict": ("collections.defaultdict(list, k={v})", "{a}['k']"),
    "list subclass": ("Items([{v}])", "{a}[0]"),
    "dict subclass": ("Table(k={v})", "{a}['k']"),
    "partial": ("functools.partial(same, {v})", "{a}()"),
}
CALLS = (0, 1, 1, 2, 0)  # which value each call gets: a number that changes is a symbol of the second program, which the third value meets
PLACES = {  # way by which a value reaches a program: where the program reads it, and how it is put there
    "argument": ("a", ""),
    "keyword": ("a", ""),
    "in place": ("a", ""),
    "closure": ("a", "put(now)"),
    "global": ("a", "a = now"),
    "attribute": ("box.a", "box.a = now"),
    "class": ("Box.a", "Box.a = now"),
    "metaclass": ("Typed.a", "Typed.held = now"),
    "property": ("box.of_property", "box.held = now"),
    "descriptor": ("box.of_descriptor", "box.held = now"),
    "function": ("same.a", "same.a = now"),
    "default": ("a", "take.__defaults__ = (now,)"),
    "default by name": ("a", "take.__kwdefaults__ = {'a': now}"),
    "star": ("take(*pair)", "pair = (now, 1)"),
    "mapping": ("take(**named)", "named = {'a': now}"),
    "chain": ("chain['k']", "chain.maps[1]['k'] = now"),
    "proxy": ("proxy['k']", "behind['k'] = now"),
    "weak": ("weak().a", "box.a = now"),
    "context": ("variable.get()", "variable.set(now)"),
    "pattern": ("matched_first(box)", "box.a = now"),
    "cached": ("box.of_cached", "vars(box).pop('of_cached', None); box.held = now"),
}
TAKES = {"default": "a=None", "default by name": "*, a=None", "star": "a, *rest", "mapping": "a=None, **rest"}


class Program(NamedTuple):
    """One program: `source` defines f and call(i), which calls the function that it gets with value i of three."""

    name: str
    source: str
    text: str


@functools.cache
def rows() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("generated_rows", HERE / "generated_rows.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parsed() -> list[tuple[str, str, str]]:
    """Return (callable, kind of value, expression) for each row."""
    lines = [line.split(" | ", 2) for line in rows().TEXT.strip().splitlines() if line.strip() and not line.startswith("#")]
    return [(name.strip(), kind.strip(), expression.strip()) for name, kinds, expression in lines for kind in kinds.split(",")]


def generate(count: int, seed: int) -> list[Program]:
    """Return the first `count` of all programs, in an order that `seed` shuffles; each row comes up before any comes up twice."""
    drawn, table = random.Random(seed), parsed()
    made: dict[str, Program] = {}
    for turn in range(1000):
        order = list(table)
        drawn.shuffle(order)
        for row in order:
            program = _program(row, drawn, plain=not turn)
            made.setdefault(program.source, program)
            if len(made) >= count:
                return list(made.values())
    return list(made.values())


def _program(row: tuple[str, str, str], drawn: random.Random, plain: bool) -> Program:
    name, kind, expression = row
    pairs = rows().VALUES[kind]
    before, after = pairs[0] if plain else drawn.choice(pairs)
    if not plain and drawn.random() < 0.5:
        before, after = after, before
    third = drawn.choice([value for pair in pairs for value in pair if value not in (before, after)] or [before])
    depth = 0 if plain else drawn.choice((0, 1, 1, 2, 3))
    put, take = "{v}", "{a}"
    for _ in range(depth):
        inner, outer = NESTS[drawn.choice(list(NESTS))]
        put, take = inner.replace("{v}", put), take.replace("{a}", outer) if take != "{a}" else outer
    way = "argument" if plain else drawn.choice(list(PLACES))
    whole = depth and drawn.random() < 0.2 and name in rows().WHOLE
    value = "{a}" if whole else take
    text = f"{name}: {expression} | {kind} {before} -> {after} -> {third} | {put} | {way}{' | whole' if whole else ''}"
    place, put_there = PLACES[way]
    arguments = {"argument": "t, a", "in place": "t, a", "keyword": "t, *, a"}.get(way, "t")
    call = {"argument": "f(t, now)", "in place": "f(t, now)", "keyword": "f(t, a=now)"}.get(way, "f(t)")
    body = f"def f({arguments}):\n    v = {value.replace('{a}', place)}\n    return t, {expression}\n"
    if way in TAKES:
        body = f"def take({TAKES[way]}): return a\n" + (body if place != "a" else body.replace("    v = ", "    a = take()\n    v = "))
    if way == "closure":
        body = (
            "def make(a):\n    def f(t):\n"
            f"        v = {value.replace('{a}', 'a')}\n        return t, {expression}\n"
            "    def put(new):\n        nonlocal a\n        a = new\n    return f, put\n"
            "f, put = make(None)\n"
        )
    change = f"    global a, pair, named\n    {put_there}\n" if put_there else ""
    values = ", ".join([put.replace("{v}", value) for value in (before, after, third)])
    held = "held = None\n" if way == "in place" else ""
    replace = "    global held\n    now = held = changed(held, now)\n" if way == "in place" else ""
    source = f"{body}{held}def call(f, i):\n    t, now = T, ({values})[i]\n{replace}{change}    return {call}\n"
    return Program(name, source, text)


def prepared(program: Program) -> types.ModuleType:
    """Return a fresh module with the program in it."""
    sys.modules["generated_program"] = made = types.ModuleType("generated_program")
    vars(made).update(vars(rows().WORLD))
    vars(made).update(T=torch.ones(2), __name__="generated_program")
    exec(compile(program.source, f"<{program.name}>", "exec", dont_inherit=True), vars(made))
    return made


def outcome(call: Any, *args: Any) -> tuple[str, Any]:
    try:
        return "value", rows().shown(call(*args)[1])
    except DovetailError as error:
        raise error
    except Exception as error:
        return "raised", type(error)


def verdict(program: Program) -> str:
    """Return "right", "refused" with the reason, or "wrong" with both values."""
    eager, made = prepared(program), prepared(program)
    wanted = [outcome(eager.call, eager.f, i) for i in CALLS]
    compiled = dovetail.jit(made.f, executors=["torch"])
    for i, want in zip(CALLS, wanted, strict=True):
        try:
            got = outcome(made.call, compiled, i)
        except DovetailError as error:
            bug = "bug" in str(error)
            return f"{'wrong' if bug else 'refused'}: {' '.join(str(error).split())}"
        except BaseException as error:
            return f"wrong: {type(error).__name__}: {error}"
        if got != want:
            return f"wrong: call {i} gave {got}, expected {want}"
    return "right"


def native_calls(programs: list[Program]) -> list[str]:
    """List the functions of programs that run outside of the interpreter while it traces: what they read is not seen.

    Where they stand beside a guard of all that they read, as the hash of a key does, that is right; anything else is worth a look.
    """
    unseen: dict[str, str] = {}
    acquire, text = ACQUIRE["bytecode"], ""

    def watch(frame: types.FrameType, event: str, arg: Any) -> None:
        code, caller = frame.f_code, frame.f_back
        ours = code.co_filename == rows().__file__ or frame.f_globals.get("__name__") in ("generated_program", "generated_world")
        if event == "call" and ours and not is_stub(code) and caller is not None and is_own(caller):
            unseen.setdefault(f"{code.co_qualname}, called by {caller.f_code.co_qualname}", text)

    def watched(*args: Any, **kwargs: Any) -> Any:
        sys.setprofile(watch)
        try:
            return acquire(*args, **kwargs)
        finally:
            sys.setprofile(None)

    ACQUIRE["bytecode"] = watched
    try:
        for program in programs:
            text = program.text
            run([program])
    finally:
        ACQUIRE["bytecode"] = acquire
    return [f"{name}, in {text}" for name, text in unseen.items()]


def run(programs: list[Program]) -> tuple[dict[str, collections.Counter], list[str], collections.Counter]:
    """Return the verdicts for each callable, the programs that are wrong, and how often each refusal was said."""
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    wrong, refusals = [], collections.Counter()
    for program in programs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            message = verdict(program)
        word, _, reason = message.partition(": ")
        counts[program.name][word] += 1
        if word == "wrong":
            wrong.append(f"{program.text}\n    {reason[:300]}")
        elif word == "refused":
            refusals[f"{program.name}: {reason[:160]}"] += 1
    return counts, wrong, refusals


def table(counts: dict[str, collections.Counter], programs: int, seed: int) -> str:
    """Return the page of the documentation."""
    lines = [
        "# C code in compiled functions",
        "",
        "The interpreter sees Python, and believes no code in C. `core/frontend/interpreter/tracking/rules.py` has one rule for every callable",
        "in C: *modelled*, *deep*, *keeps*, *fresh* or *refused*; its docstring says what they mean, and how to add a row. Unknown C code is",
        "run where all that it gets is guarded by value, and refused where it gets an object that may change.",
        "",
        f"This table is made by `python tests/interpreter/generated.py --programs {programs} --seed {seed} --table docs/c_code.md`: each program",
        "calls a callable, changes one thing that its result may depend on, and calls it again. None gave a stale result.",
        "",
        "| callable | programs | as eager | refused |",
        "|---|---:|---:|---:|",
    ]
    for name in sorted(counts):
        row = counts[name]
        lines.append(f"| `{name}` | {row.total()} | {row['right']} | {row['refused'] or ''} |")
    total = sum(counts.values(), collections.Counter())
    lines.append(f"| all {len(counts)} | {total.total()} | {total['right']} | {total['refused']} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--unseen", action="store_true", help="list the functions of programs that C code runs while it traces")
    given = parser.parse_args()
    programs = [program for program in generate(given.programs, given.seed) if given.only in program.text]
    if given.unseen:
        print(*native_calls(programs), sep="\n")
        return False
    counts, wrong, refusals = run(programs)
    for text in wrong:
        print(text)
    for text, count in refusals.most_common(40):
        print(f"{count:5} refused {text}")
    total = sum(counts.values(), collections.Counter())
    print(f"{len(programs)} programs: {dict(total)}")
    if given.table and not wrong:
        given.table.write_text(table(counts, given.programs, given.seed))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
