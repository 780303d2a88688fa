"""Every option: one row each, read in one way from files, the environment and calls.  `docs/options.md` is made from this file.

An option has one name everywhere: `strict` is the key in a file and the argument of `dovetail.use`, DOVETAIL_STRICT the variable.  Layers,
from the lowest to the highest: defaults, hints of plugins, files, the environment, the command line, `with dovetail.use(...)`, the call of
`jit`.  Values are parsed strictly: an invalid one is an error that names its source.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from dovetail.errors import DovetailError
from dovetail.option_values import (
    CAUSES,
    causes,
    count,
    details,
    edits,
    fraction,
    level,
    names,
    one_of,
    operations,
    pairs,
    paths,
    switch,
    text,
    trials,
)

PREFIX = "DOVETAIL_"
LAYERS = ("default", "plugin", "file", "environment", "command line", "use", "jit")


class Source(NamedTuple):
    """The source of a value: its layer, and the file and line, the variable, or the line of the program."""

    layer: str
    where: str

    def __str__(self) -> str:
        return self.where if self.layer in ("default", "file", "plugin") else f"{self.where} ({_CALLED.get(self.layer, self.layer)})"


_CALLED = {"use": "with dovetail.use(...)", "jit": "jit(..., executors=...)"}


class Setting(NamedTuple):
    """One option, set in one place.  `value` has been parsed by its option."""

    option: Option
    value: Any
    source: Source


@dataclass(frozen=True)
class Option:
    """One option: its name, default, parser and documentation."""

    name: str
    default: Any
    doc: str
    parse: Callable[[Any], Any]  # one of `option_values`
    values: tuple[str, ...] = ()  # the meanings of 0, 1, 2, ...
    example: str = ""  # as written in a file
    only: str = ""  # the one layer that may set it, if restricted
    adds: bool = False  # a layer adds to the names of lower layers; "-name" removes one

    @property
    def key(self) -> str:
        """Its name in files and calls."""
        return self.name.removeprefix(PREFIX).lower()

    def setting(self, raw: Any, source: Source) -> Setting:
        """Parse a value of this option.  Raises DovetailError with the source and what is expected."""
        try:
            return Setting(self, self.parse(raw), source)
        except ValueError as error:
            name = self.name if source.layer == "environment" else f"{self.key} in {source}"
            default_note = f" (default {shown(self.default)})" if self.default is not None else ""
            raise DovetailError(f"invalid value {raw!r} for {name}: expected {error}{default_note}") from None

    def read(self) -> Any:
        """Return the value in the highest layer that sets the option, else its default."""
        values = settings(self)
        return values[-1].value if values else self.default


def shown(value: Any) -> str:
    """Format a value as in a file."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        pairs = bool(value) and all([isinstance(item, tuple) for item in value])
        words = [f"{shown(item[0])} = {shown(item[1])}" if pairs else shown(item) for item in value]
        return f"{{{', '.join(words)}}}" if pairs else f"[{', '.join(words)}]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(getattr(value, "name", value))


def suggestion(name: str, names: Iterable[str], common: str = "") -> str:
    """Return the end of a message: similar names, or all names.  The prefix `common` of all names is not compared."""
    names = sorted(names)
    close = difflib.get_close_matches(name.removeprefix(common), [candidate.removeprefix(common) for candidate in names], n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(common + candidate for candidate in close)}?"
    return f"choose from {', '.join(names)}" if len(names) <= 20 and names else "no name is similar"


_LEVELS = (
    "no output",
    "one line for each compilation on standard error: the function, why it was compiled, and how long each pass took",
    "the program is checked between passes: every value is defined before its use, and every meta is run again",
    "the program that runs is printed on standard error",
    "the program after each pass is printed on standard error",
)
DEBUG = Option(
    "DOVETAIL_DEBUG",
    0,
    "How much a compilation reports and checks. Each level includes the lower ones.",
    level(_LEVELS),
    _LEVELS,
)
EXECUTORS = Option(
    "DOVETAIL_EXECUTORS",
    (),
    "The executors in priority order: names are the whole order, edits change the order of lower layers (see [configuration](configuration.md)).",
    edits,
    example='executors = ["+mine", "-slow", "llvm > torch"]',
)
OPERATIONS = Option(
    "DOVETAIL_OPERATIONS",
    (),
    "The executors for single operations, or for those that match a pattern, with the syntax of `executors`.",
    operations,
    example='operations = { "torch.nn.functional.softmax" = "mine", "prims.*" = ["a", "torch"] }',
)
DISABLE = Option(
    "DOVETAIL_DISABLE",
    (),
    'Plugins that are not imported, and executors that are not used; "-name" re-enables what a lower layer disables.',
    names,
    example='disable = ["slow"]',
    adds=True,
)
ALLOW = Option("DOVETAIL_ALLOW", None, "The only plugins that are imported; by default all.", names, example='allow = ["torch"]')
REQUIRE = Option(
    "DOVETAIL_REQUIRE", (), "Executors that must be ready: it is an error if one is not.", names, example='require = ["torch"]', adds=True
)
STRICT = Option(
    "DOVETAIL_STRICT",
    (),
    "Causes for which it is an error, not a note, that another executor runs an operation: "
    + ", ".join(f"`{cause}`" for cause in CAUSES)
    + "; `true` is all of them.",
    causes,
    example="strict = true",
)
OPTIONS_OF = Option("DOVETAIL_OPTIONS", (), "Options of executors.", details, example="options = { mine = { tile = 64 } }")
FROZEN = Option("DOVETAIL_FROZEN", False, "Require the plugins and their order to match the lock file.", switch, example="frozen = true")
LOCK = Option(
    "DOVETAIL_LOCK",
    "dovetail.lock",
    "The lock file; in a configuration file the path is relative to its folder.",
    text,
    example='lock = "dovetail.lock"',
)
USE = Option(
    "DOVETAIL_USE",
    (),
    "The distribution to use where several provide a plugin of the same name.",
    pairs,
    example='use = { mine = "dovetail-mine" }',
)
PLUGINS = Option(
    "DOVETAIL_PLUGINS",
    (),
    "Plugins in development, by path: a module, a package or a project that is not installed.",
    paths,
    example='plugins = ["mine.py"]',
)
CHECK = Option(
    "DOVETAIL_CHECK",
    False,
    "Check each result of an executor against the contract of the operation: shape, dtype, strides, device, aliasing.",
    switch,
    example="check = true",
)
TRIAL = Option(
    "DOVETAIL_TRIAL",
    (("*", "first"),),
    "When the results of an executor are compared with the reference, on the values of the call (see [explain](explain.md#trials)): `first` on the "
    "first calls of a program and then ever more rarely, `always` on every call, `off` never; one mode for all executors, or one for each by name.",
    trials,
    example='trial = { mine = "always", "*" = "first" }',
)
TRIAL_BUDGET = Option(
    "DOVETAIL_TRIAL_BUDGET",
    0.25,
    "The time limit of the trials of one call, as a fraction of the compilation time of the program.",
    fraction,
    example="trial_budget = 0.5",
)
TRIAL_FOLDER = Option(
    "DOVETAIL_TRIAL_FOLDER",
    "",
    "The folder of disagreements and their replay scripts; by default `trial` in Dovetail's user cache folder.",
    text,
    example='trial_folder = "trials"',
)
DRAFTS = Option(
    "DOVETAIL_DRAFTS",
    True,
    "Let kernels begin as drafts, which compile in 40 % of the time and run slower: after a few calls optimized code that computes the same takes "
    "their place. The first call returns sooner, one of the next ones later.",
    switch,
    example="drafts = false",
)
INTERPRETATION = Option(
    "DOVETAIL_INTERPRETATION",
    "bytecode",
    "How functions are traced: `bytecode` interprets them and guards everything they read, `native` runs them on traced tensors.",
    one_of("bytecode", "native"),
    example='interpretation = "native"',
)
RANDOM = Option(
    "DOVETAIL_RANDOM",
    "generator",
    "The source of random numbers: `generator` draws the same numbers as eager PyTorch, `philox` takes one seed from the generator for each call "
    "and counts from it, so that executors can fuse dropout and a backward can recompute its mask; the numbers differ from eager's.",
    one_of("generator", "philox"),
    example='random = "philox"',
)
RECOMPILE_LIMIT = Option(
    "DOVETAIL_RECOMPILE_LIMIT",
    8,
    "The number of compilations of a function after which one warning names the guard that keeps failing. After four times as many, while most "
    "calls have compiled a program, calls that no program fits run in eager mode, all but a few.",
    count,
    example="recompile_limit = 32",
)
PROGRAM_LIMIT = Option(
    "DOVETAIL_PROGRAM_LIMIT",
    128,
    "How many programs of a function are kept: those that ran last. A call for which an older one was compiled compiles it again.",
    count,
    example="program_limit = 1024",
)
DECISIONS = Option(
    "DOVETAIL_DECISIONS",
    "graph",
    "What becomes of a function that needs the value of a tensor, as for an `if`, where `jit` gets no `decisions`: `graph` compiles it piece by "
    "piece, `eager` runs it in eager mode, `error` refuses it and names the line.",
    one_of("graph", "error", "eager"),
    example='decisions = "error"',
)
UNSUPPORTED = Option(
    "DOVETAIL_UNSUPPORTED",
    "eager",
    "What becomes of a call with something that cannot be traced, where `jit` gets no `unsupported`: `eager` runs it in eager mode, with a warning "
    "that says why, `error` raises an error that names the line and a way out.",
    one_of("eager", "error"),
    example='unsupported = "error"',
)
DECISION_LIMIT = Option(
    "DOVETAIL_DECISION_LIMIT",
    128,
    "How many values a function may need, each at a point of its own; calls that need more run in eager mode. A thousand tensors that are alive "
    "at such points count as one more.",
    count,
    example="decision_limit = 256",
)
OUTCOME_LIMIT = Option(
    "DOVETAIL_OUTCOME_LIMIT",
    12,
    "How many values or shapes a decision is compiled for; calls with others run in eager mode.",
    count,
    example="outcome_limit = 32",
)
SELECTS = Option(
    "DOVETAIL_SELECTS",
    "measured",
    "Whether both outcomes of a condition may be computed, so that no value is read: `measured`, where that was faster for a call; `never`.",
    one_of("measured", "never"),
    example='selects = "never"',
)
DYNAMIC = Option(
    "DOVETAIL_DYNAMIC",
    "automatic",
    "Which sizes are symbols where `jit` gets no `dynamic`: `static`, those that `dovetail.mark_dynamic` names; `automatic`, also those that have "
    "changed since an earlier compilation, unless that has work of an executor that does not declare `symbolic`.",
    one_of("static", "automatic"),
    example='dynamic = "static"',
)
UNKNOWN_C_CODE = Option(
    "DOVETAIL_UNKNOWN_C_CODE",
    "refuse",
    "Whether compiled functions may call C code that Dovetail has no rule for with mutable objects: `refuse` raises an error that names the call, "
    "`run` calls it once, while tracing, and assumes that its result depends only on what is guarded.",
    one_of("refuse", "run"),
    example='unknown_c_code = "run"',
)
CONFIG = Option(
    "DOVETAIL_CONFIG", "", "The only configuration file to read, instead of searching for them; `off` reads none.", text, only="environment"
)
OPTIONS: tuple[Option, ...] = (
    *(
        EXECUTORS,
        OPERATIONS,
        OPTIONS_OF,
        DISABLE,
        ALLOW,
        REQUIRE,
        USE,
        PLUGINS,
        STRICT,
        FROZEN,
        LOCK,
        CHECK,
        TRIAL,
        TRIAL_BUDGET,
        TRIAL_FOLDER,
        DRAFTS,
        DEBUG,
        INTERPRETATION,
        RANDOM,
        RECOMPILE_LIMIT,
        PROGRAM_LIMIT,
        DECISIONS,
        UNSUPPORTED,
        DECISION_LIMIT,
        OUTCOME_LIMIT,
        SELECTS,
        DYNAMIC,
        UNKNOWN_C_CODE,
        CONFIG,
    ),
)
BY_KEY = {option.key: option for option in OPTIONS if not option.only}


# Sources of values.

SCOPE: ContextVar[tuple[Setting, ...]] = ContextVar("configuration", default=())  # what `dovetail.use` set, the innermost last


@dataclass
class Process:
    """The layers of this process besides its environment: the registry of those common to all threads."""

    files: tuple[Setting, ...] = ()  # from files, the nearest last; core/executors/discovery/configuration.py reads them
    command_line: tuple[Setting, ...] = ()


PROCESS = Process()


def settings(option: Option) -> list[Setting]:
    """Return the settings of `option`, from the lowest layer to the highest."""
    values = [setting for setting in PROCESS.files if setting.option is option]
    if text := os.environ.get(option.name, "").strip():
        values.append(option.setting(text, Source("environment", option.name)))
    values += [setting for setting in PROCESS.command_line if setting.option is option]
    values += [setting for setting in SCOPE.get() if setting.option is option]
    return _accumulate(values) if option.adds else values


def _accumulate(values: list[Setting]) -> list[Setting]:
    """Add to each setting the names of the lower layers."""
    names: dict[str, None] = {}
    accumulated = []
    for setting in values:
        for name in setting.value:
            if not name.startswith("-"):
                names[name] = None
            elif name[1:] in names:
                del names[name[1:]]
            else:
                key = setting.option.key
                raise DovetailError(f"{key} in {setting.source} has {name!r}, but no lower layer has {name[1:]!r}; {suggestion(name[1:], names)}")
        accumulated.append(setting._replace(value=tuple(names)))
    return accumulated


def option_named(key: str, source: Source) -> Option:
    """Return the option with the key `key`.  Raises DovetailError for an unknown one."""
    if key not in BY_KEY:
        raise DovetailError(f"{source} sets the unknown option {key!r}; {suggestion(key, BY_KEY)}")
    return BY_KEY[key]


def environment() -> tuple[tuple[str, str], ...]:
    """Return the current variables with our prefix.  Raises DovetailError for an unknown one."""
    variables = tuple([(name, os.environ[name]) for name in os.environ if name.startswith(PREFIX)])
    names = {option.name for option in OPTIONS}
    for name, _ in variables:
        if name not in names:
            raise DovetailError(f"the environment sets the unknown option {name}; {suggestion(name, names, PREFIX)}")
    return variables


def debug() -> int:
    """Return the level of `DOVETAIL_DEBUG`, from 0 to 4."""
    return DEBUG.read()


def drafts() -> bool:
    """Return whether kernels may begin as code that is not optimized."""
    return DRAFTS.read()


def forbids(cause: str) -> bool:
    """Return whether `strict` turns this cause into an error."""
    return cause in STRICT.read()


def cache_folder() -> str:
    """Return the folder for what processes of a user share and may lose."""
    return _cache_folder(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@cache
def _cache_folder(*depends_on: str | None) -> str:
    import platformdirs  # on first use: `import dovetail` needs no files

    return platformdirs.user_cache_dir("dovetail")


def table() -> str:
    """Return the options as a page of documentation, in Markdown."""
    rows = ["| in files and `dovetail.use` | in the environment | default |", "|---|---|---|"]
    for option in OPTIONS:
        default = f"`{shown(option.default)}`" if option.default not in ((), None, "") else "-"
        rows.append(f"| {'-' if option.only else f'`{option.key}`'} | `{option.name}` | {default} |")
    rows.append("")
    for option in OPTIONS:
        default = "" if option.default in ((), None, "") else f" Default: `{shown(option.default)}`."
        rows += [f"## `{option.name}`", "", f"{option.doc}{default}", ""]
        if option.values:
            rows += ["| value | meaning |", "|---|---|", *(f"| `{value}` | {meaning} |" for value, meaning in enumerate(option.values)), ""]
        if option.only:
            rows += ["In the environment only.", ""]
        elif option.example:
            rows += [f"In a file: `{option.example}`", ""]
    return "\n".join(rows)


def trial_modes() -> dict[str, str]:
    """Return the trial mode of each executor by name, `*` for all others.  Modes of single executors keep those of lower layers."""
    modes: dict[str, str] = dict(TRIAL.default)
    for setting in settings(TRIAL):
        modes = dict(setting.value) if set(dict(setting.value)) == {"*"} else modes | dict(setting.value)
    return modes
