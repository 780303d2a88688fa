"""Every option: one row each, read in one way from files, the environment and calls.  `docs/options.md` is made from this file.

An option has one name everywhere: `strict` is the key in a file and the argument of `dovetail.use`, DOVETAIL_STRICT the variable.  Layers,
the later before the earlier: defaults, hints of plugins, files, the environment, the command line, `with dovetail.use(...)`, the call of
`jit`.  Values are read strictly: what means nothing is an error that says where it stands.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from dovetail.errors import DovetailError

PREFIX = "DOVETAIL_"
CAUSES = ("not-claimed", "unavailable", "version", "load-error", "checker-error")  # why an executor that was asked for does not run
TRIALS = ("first", "always", "off")
LAYERS = ("default", "plugin", "file", "environment", "command line", "use", "jit")


class Source(NamedTuple):
    """Where a value came from: its layer, and the file and line, the variable, or the line of the program."""

    layer: str
    where: str

    def __str__(self) -> str:
        return self.where if self.layer in ("default", "file", "plugin") else f"{self.where} ({_CALLED.get(self.layer, self.layer)})"


_CALLED = {"use": "with dovetail.use(...)", "jit": "jit(..., executors=...)"}


class Setting(NamedTuple):
    """One option, set in one place.  `value` is in the form that its option's `parse` gives."""

    option: Option
    value: Any
    source: Source


@dataclass(frozen=True)
class Option:
    """What one option may be, what it is when it is not set, and what its values mean."""

    name: str
    default: Any
    doc: str
    parse: Callable[[Option, Any], Any]  # from words, or from what a file or a call gives, to the value; a ValueError says what it wants
    values: tuple[str, ...] = ()  # what 0, 1, 2, ... mean
    example: str = ""  # as it stands in a file
    only: str = ""  # the one layer that may set it, where there is only one
    adds: bool = False  # a layer adds to the names of those below; "-name" takes one out

    @property
    def key(self) -> str:
        """Its name in files and calls."""
        return self.name.removeprefix(PREFIX).lower()

    def setting(self, given: Any, source: Source) -> Setting:
        """`given` as this option's value; an error that says what it may be, and where it stands."""
        try:
            return Setting(self, self.parse(self, given), source)
        except ValueError as error:
            name = self.name if source.layer == "environment" else f"{self.key} in {source}"
            usual = f", and not set it is {shown(self.default)}" if self.default is not None else ""
            raise DovetailError(f"{name}={given!r} means nothing; it is {error}{usual}") from None

    def read(self) -> Any:
        """The value in the highest layer that sets it."""
        found = settings(self)
        return found[-1].value if found else self.default


def shown(value: Any) -> str:
    """A value as it is written in a file."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        pairs = bool(value) and all([isinstance(each, tuple) for each in value])
        words = [f"{shown(each[0])} = {shown(each[1])}" if pairs else shown(each) for each in value]
        return f"{{{', '.join(words)}}}" if pairs else f"[{', '.join(words)}]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(getattr(value, "name", value))


def suggestion(name: str, known: Iterable[str], common: str = "") -> str:
    """What was probably meant, else what there is, as the end of a sentence; the `common` beginning of all names makes none alike."""
    known = sorted(known)
    close = difflib.get_close_matches(name.removeprefix(common), [each.removeprefix(common) for each in known], n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(common + each for each in close)}?"
    return f"there is {', '.join(known)}" if len(known) <= 20 and known else "none is like it"


# How values are written.


def level(option: Option, given: Any) -> int:
    """A number from 0 on, one for each meaning."""
    given = given.strip() if isinstance(given, str) else given
    number = int(given) if isinstance(given, str) and given.isdecimal() else given
    if type(number) is not int or not 0 <= number < len(option.values):
        raise ValueError(f"a number from 0 to {len(option.values) - 1}")
    return number


def switch(option: Option, given: Any) -> bool:
    """On or off; no other word is taken for either."""
    found = _SWITCH.get(given.strip().lower()) if isinstance(given, str) else given
    if type(found) is not bool:
        raise ValueError("1, true, yes, on, or 0, false, no, off")
    return found


_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def count(option: Option, given: Any) -> int:
    """A whole number."""
    found = int(given) if isinstance(given, str) and given.strip().isdecimal() else given
    if type(found) is not int or found < 0:
        raise ValueError("a whole number, 0 or more")
    return found


def one_of(*words: str) -> Callable[[Option, Any], str]:
    """One of a few words."""

    def parse(option: Option, given: Any) -> str:
        if given not in words:
            raise ValueError(" or ".join(words))
        return given

    return parse


def text(option: Option, given: Any) -> str:
    if not isinstance(given, (str, os.PathLike)):
        raise ValueError("a path")
    return str(given)


def names(option: Option, given: Any) -> tuple[str, ...]:
    """Names, in a list or with commas between them."""
    given = [word for word in re.split(r"[,\s]+", given) if word] if isinstance(given, str) else given
    if not isinstance(given, (list, tuple)) or not all([isinstance(each, str) and each.strip() for each in given]):
        raise ValueError("names, in a list or with commas between them")
    return tuple(dict.fromkeys(each.strip() for each in given))


def paths(option: Option, given: Any) -> tuple[str, ...]:
    """Paths, in a list or with the system's separator between them."""
    given = [word for word in given.split(os.pathsep) if word] if isinstance(given, str) else given
    if not isinstance(given, (list, tuple)) or not all([isinstance(each, (str, os.PathLike)) for each in given]):
        raise ValueError(f"paths, in a list or with {os.pathsep!r} between them")
    return tuple(map(str, given))


def edits(option: Option, given: Any) -> tuple[Any, ...]:
    """Names and edits of an order, in a list or with commas between them.  A call may hand over executors themselves."""
    given = [word for word in given.split(",") if word.strip()] if isinstance(given, str) else given
    if hasattr(given, "verdict") or isinstance(given, dict) or not isinstance(given, Iterable):
        raise ValueError('names and edits such as "+name", "-name", "a > b", in a list or with commas between them')
    return tuple([each.strip() if isinstance(each, str) else each for each in given])


def operations(option: Option, given: Any) -> tuple[tuple[str, tuple], ...]:
    """operation or pattern -> edits; in words `pattern = edits; pattern = edits`."""
    rows = _table(given, "operations and who runs them: pattern=name,name; pattern=+name")
    return tuple([(pattern, edits(option, value)) for pattern, value in rows.items()])


def details(option: Option, given: Any) -> tuple[tuple[str, Any], ...]:
    """`executor.option` -> value; in words `executor.option = value; ...`, where a value is a TOML value or else a string."""
    rows = {}
    for name, value in _table(given, "options of executors: name.option=value; name.option=value").items():
        rows |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    if not all(["." in name for name in rows]):
        raise ValueError("options of executors: name.option=value; name.option=value")
    return tuple([(name, tuple(value) if isinstance(value, list) else value) for name, value in rows.items()])


def _table(given: Any, wanted: str) -> dict[str, Any]:
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.split(";") if part.strip()]
        if not all([equals and name.strip() for name, equals, _ in parts]):
            raise ValueError(wanted)
        return {name.strip(): value.strip() for name, _, value in parts}
    if not isinstance(given, dict) or not all([isinstance(name, str) for name in given]):
        raise ValueError(wanted)
    return given


def pairs(option: Option, given: Any) -> tuple[tuple[str, str], ...]:
    """name -> name; in words `name = name; name = name`."""
    rows = _table(given, "plugins and distributions: name=distribution; name=distribution")
    if not all([isinstance(value, str) and value for value in rows.values()]):
        raise ValueError("plugins and distributions: name=distribution; name=distribution")
    return tuple(rows.items())


def fraction(option: Option, given: Any) -> float:
    """A number, 0 or more."""
    try:
        found = float(given)
    except (TypeError, ValueError):
        found = -1.0
    if isinstance(given, bool) or not 0 <= found < float("inf"):
        raise ValueError("a number, 0 or more")
    return found


def trials(option: Option, given: Any) -> tuple[tuple[str, str], ...]:
    """executor -> how it is tried, `*` being every other; in words `first; mine=off`."""
    if isinstance(given, str):
        words = [part.partition("=") for part in given.split(";") if part.strip()]
        given = {name.strip() if equals else "*": value.strip() if equals else name.strip() for name, equals, value in words}
    if not isinstance(given, dict) or not given or not all([isinstance(name, str) and mode in TRIALS for name, mode in given.items()]):
        raise ValueError(f"{' or '.join(TRIALS)}, or such a word for executors by name: name=off; name=always")
    return tuple(given.items())


def causes(option: Option, given: Any) -> tuple[str, ...]:
    """All of the causes, none, or some by name."""
    on = _SWITCH.get(given.strip().lower()) if isinstance(given, str) else given
    if isinstance(on, bool):
        return CAUSES if on else ()
    try:
        found = names(option, given)
    except ValueError:
        found = ("",)
    if not set(found) <= set(CAUSES):
        raise ValueError(f"true, false, or some of {', '.join(CAUSES)}")
    return found


DEBUG = Option(
    "DOVETAIL_DEBUG",
    0,
    "How much a compilation says and checks. Each value does what the smaller ones do, too.",
    level,
    (
        "nothing is said",
        "one line for each compilation on standard error: the function, why it was compiled, and how long each pass took",
        "the program is checked between passes: every value is made before it is read, and every meta is run again",
        "the program that runs is printed on standard error",
        "the program that each pass made is printed on standard error",
    ),
)
EXECUTORS = Option(
    "DOVETAIL_EXECUTORS",
    (),
    "Who is asked, in which order: names are the whole order, edits change the one of the layers below (see [configuration](configuration.md)).",
    edits,
    example='executors = ["+mine", "-slow", "llvm > torch"]',
)
OPERATIONS = Option(
    "DOVETAIL_OPERATIONS",
    (),
    "Who is asked for single operations, or for those that a pattern fits, in the words of `executors`.",
    operations,
    example='operations = { "torch.nn.functional.softmax" = "mine", "prims.*" = ["a", "torch"] }',
)
DISABLE = Option(
    "DOVETAIL_DISABLE",
    (),
    'Plugins that are not imported, and executors that are not asked; "-name" takes back what a lower layer disables.',
    names,
    example='disable = ["slow"]',
    adds=True,
)
ALLOW = Option("DOVETAIL_ALLOW", None, "The only plugins that are imported; all of them where it is not set.", names, example='allow = ["torch"]')
REQUIRE = Option(
    "DOVETAIL_REQUIRE", (), "Executors that have to be ready: it is an error when one is not.", names, example='require = ["torch"]', adds=True
)
STRICT = Option(
    "DOVETAIL_STRICT",
    (),
    "Causes for which it is an error, and no note, that somebody else runs what an executor would have run: "
    + ", ".join(f"`{cause}`" for cause in CAUSES)
    + "; `true` is all of them.",
    causes,
    example="strict = true",
)
OPTIONS_OF = Option("DOVETAIL_OPTIONS", (), "Options of executors, for those that have some.", details, example="options = { mine = { tile = 64 } }")
FROZEN = Option("DOVETAIL_FROZEN", False, "Plugins and their order have to be those in the lock file.", switch, example="frozen = true")
LOCK = Option(
    "DOVETAIL_LOCK",
    "dovetail.lock",
    "The lock file; a path in a configuration file starts from its folder.",
    text,
    example='lock = "dovetail.lock"',
)
USE = Option(
    "DOVETAIL_USE",
    (),
    "Which distribution is meant where several bring a plugin of one name.",
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
    "Whether each result of an executor is compared with what the operation promises: shape, dtype, strides, device, aliasing.",
    switch,
    example="check = true",
)
TRIAL = Option(
    "DOVETAIL_TRIAL",
    (("*", "first"),),
    "When what an executor computes is compared with the reference, on the values of the call (see [explain](explain.md#trials)): `first` on the "
    "first calls of a program and then ever more rarely, `always` on every call, `off` never; one word for all executors, or one for each by name.",
    trials,
    example='trial = { mine = "always", "*" = "first" }',
)
TRIAL_BUDGET = Option(
    "DOVETAIL_TRIAL_BUDGET",
    0.25,
    "How long the trials of one call may take, as a part of the time that the program's compilation took.",
    fraction,
    example="trial_budget = 0.5",
)
TRIAL_FOLDER = Option(
    "DOVETAIL_TRIAL_FOLDER",
    "",
    "Where disagreements and the scripts that replay them are kept; not set it is `trial` in the user's cache folder of dovetail.",
    text,
    example='trial_folder = "trials"',
)
INTERPRETATION = Option(
    "DOVETAIL_INTERPRETATION",
    "bytecode",
    "How functions are traced: `bytecode` interprets them and guards all that they read, `native` runs them on traced tensors.",
    one_of("bytecode", "native"),
    example='interpretation = "native"',
)
RANDOM = Option(
    "DOVETAIL_RANDOM",
    "generator",
    "Where random numbers come from: `generator` draws what eager PyTorch would, `philox` takes one seed from the generator at each call and "
    "counts on from it, so that executors fuse dropout with what is around it and a backward can compute a mask again: other numbers than eager's.",
    one_of("generator", "philox"),
    example='random = "philox"',
)
RECOMPILE_LIMIT = Option(
    "DOVETAIL_RECOMPILE_LIMIT",
    8,
    "How often a function may be compiled before a warning says, once, which guard keeps failing.",
    count,
    example="recompile_limit = 32",
)
UNKNOWN_C_CODE = Option(
    "DOVETAIL_UNKNOWN_C_CODE",
    "refuse",
    "Whether compiled functions may call C code of unknown packages with objects that may change: `refuse` is an error that names the call, "
    "`run` calls it once, while tracing, and believes that its result depends on what is guarded.",
    one_of("refuse", "run"),
    example='unknown_c_code = "run"',
)
CONFIG = Option("DOVETAIL_CONFIG", "", "The one file to read instead of those that are found; `off` reads none.", text, only="environment")
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
        DEBUG,
        INTERPRETATION,
        RANDOM,
        RECOMPILE_LIMIT,
        UNKNOWN_C_CODE,
        CONFIG,
    ),
)
BY_KEY = {option.key: option for option in OPTIONS if not option.only}


# Where values stand.

SCOPE: ContextVar[tuple[Setting, ...]] = ContextVar("configuration", default=())  # what `dovetail.use` set, the innermost last


@dataclass
class Process:
    """What this process was told besides its environment: the registry of the layers that are the same for every thread."""

    files: tuple[Setting, ...] = ()  # what was found in files, the nearest last; core/executors/discovery/configuration.py reads them
    command_line: tuple[Setting, ...] = ()


PROCESS = Process()


def settings(option: Option) -> list[Setting]:
    """Everywhere that `option` is set, from the lowest layer to the highest."""
    found = [each for each in PROCESS.files if each.option is option]
    if words := os.environ.get(option.name, "").strip():
        found.append(option.setting(words, Source("environment", option.name)))
    found += [each for each in PROCESS.command_line if each.option is option]
    found += [each for each in SCOPE.get() if each.option is option]
    return _summed(found) if option.adds else found


def _summed(found: list[Setting]) -> list[Setting]:
    """Each setting with the names of those before it."""
    names: dict[str, None] = {}
    made = []
    for setting in found:
        for name in setting.value:
            if not name.startswith("-"):
                names[name] = None
            elif name[1:] in names:
                del names[name[1:]]
            else:
                key = setting.option.key
                raise DovetailError(f"{key} in {setting.source} has {name!r}, and no lower layer says {name[1:]!r}; {suggestion(name[1:], names)}")
        made.append(setting._replace(value=tuple(names)))
    return made


def option_named(key: str, source: Source) -> Option:
    """The option that files and calls call `key`."""
    if key not in BY_KEY:
        raise DovetailError(f"{source} sets {key!r}, which is no option; {suggestion(key, BY_KEY)}")
    return BY_KEY[key]


def environment() -> tuple[tuple[str, str], ...]:
    """The variables that are ours, as they are now; an error for one that no option has."""
    found = tuple([(name, words) for name, words in os.environ.items() if name.startswith(PREFIX)])
    known = {option.name for option in OPTIONS}
    for name, _ in found:
        if name not in known:
            raise DovetailError(f"the environment has {name}, which is no option; {suggestion(name, known, PREFIX)}")
    return found


def debug() -> int:
    """`DOVETAIL_DEBUG`, from 0 to 4."""
    return DEBUG.read()


def forbids(cause: str) -> bool:
    """Whether `strict` makes an error of this cause."""
    return cause in STRICT.read()


def table() -> str:
    """The options as a page of documentation, in Markdown."""
    rows = ["| in files and `dovetail.use` | in the environment | when it is not set |", "|---|---|---|"]
    for option in OPTIONS:
        usual = f"`{shown(option.default)}`" if option.default not in ((), None, "") else "-"
        rows.append(f"| {'-' if option.only else f'`{option.key}`'} | `{option.name}` | {usual} |")
    rows.append("")
    for option in OPTIONS:
        usual = "" if option.default in ((), None, "") else f" Default: `{shown(option.default)}`."
        rows += [f"## `{option.name}`", "", f"{option.doc}{usual}", ""]
        if option.values:
            rows += ["| value | meaning |", "|---|---|", *(f"| `{value}` | {meaning} |" for value, meaning in enumerate(option.values)), ""]
        if option.only:
            rows += ["In the environment only.", ""]
        elif option.example:
            rows += [f"In a file: `{option.example}`", ""]
    return "\n".join(rows)


def trial_modes() -> dict[str, str]:
    """How each executor is tried, by its name; `*` is every other.  A layer's words for single executors leave those of lower layers."""
    modes: dict[str, str] = dict(TRIAL.default)
    for setting in settings(TRIAL):
        modes = dict(setting.value) if set(dict(setting.value)) == {"*"} else modes | dict(setting.value)
    return modes
