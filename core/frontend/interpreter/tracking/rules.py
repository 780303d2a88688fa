"""One table for code in C: what a call may depend on, and how a tracked run handles it.

Every callable in C has exactly one rule:

    modelled  `lookasides.TABLE` or `BY_TYPE` has a function that interprets what it reads and calls; methods of containers are in `containers`
    deep      it computes with its arguments alone: all their content is guarded by value, and methods in Python are interpreted
    keeps     it stores its arguments or looks at their identity or class, and reads nothing else of them
    fresh     it reads the world outside, or a random state: it is run at every call, and its result is an input of the program
    refused   none of these; a sentence names the way out

A row stands under the callable itself, else under the class that its method belongs to, else under its module.  A callable without a row is
unknown, be it of Python's library or of another package: it is deep where all its arguments are guarded by value, and refused where one is an
object that may change; the option `unknown_c_code` lets it run.  To add a row, put the callable, class or module name into one of the tables below.
"""

from __future__ import annotations

import _random
import _signal
import _thread
import abc
import builtins
import collections
import contextvars
import datetime
import decimal
import functools
import gc
import itertools
import operator
import os
import random
import re
import struct
import sys
import threading
import time
import types
import typing
import weakref
from array import array
from collections.abc import Sequence
from types import BuiltinFunctionType, MethodDescriptorType, MethodWrapperType, ModuleType, WrapperDescriptorType
from typing import Any, NamedTuple

from dovetail.frontend.class_lookup import per_class

_os = sys.modules[os.stat.__module__]  # posix, or nt


class Fresh(NamedTuple):
    """The result of a call that is run at every call: `kind` is "float", "int" or "bool" for a number that is an input of the program, "array" for
    an array of NumPy's that is one, "value" for a result that is guarded, since Python may branch on it, "unique" for one that Python
    waits for and that hardly repeats, and "effect" for None."""

    kind: str


class Refused(NamedTuple):
    """Why a call is refused and the way out, as the end of a sentence."""

    way_out: str


DEEP, KEEPS = "deep", "keeps"
FLOAT, INT, BOOL, VALUE, EFFECT = Fresh("float"), Fresh("int"), Fresh("bool"), Fresh("value"), Fresh("effect")
ARRAY, UNIQUE = Fresh("array"), Fresh("unique")
_OUTSIDE = Refused("its result changes from call to call; call it outside the compiled function, and pass its result")
_FILES = Refused("it reads or writes what is outside of the program; do it outside the compiled function, and pass what you need")
_MOMENT = Refused("its result changes from call to call; call it outside, and pass its result, or use time.time(), which is read at every call")
_SAMPLES = Refused("it draws from a random state in a way that is not run at every call; draw with torch, or draw outside and pass the result")
NEW_GENERATOR = "{} draws from a generator that the compiled function creates; create it outside, or draw with torch"
_GARBAGE = Refused("its result depends on what else the process holds; call it outside the compiled function")
_COLLECTOR = Refused("tracing itself switches the garbage collector off; call it outside the compiled function, and pass its result")
_VARIABLES = Refused("it copies all context variables, which may change unseen; read those that you need with get()")
_THREADS = Refused("it starts a thread, which would happen while tracing and never again; start it outside the compiled function")
_CACHES = Refused("the compiled function calls what is behind the cache in its own way; call it outside the compiled function")
_FRAMES = Refused("it changes how the interpreter runs, which would happen while tracing and never again; call it outside")

_OF_PATHS = ("_path_normpath", "_path_splitroot", "_path_splitroot_ex", "_path_isdevdrive", "strerror", "major", "minor")

CALLABLES: dict[Any, Any] = {
    **dict.fromkeys((time.time, time.perf_counter, time.monotonic, time.process_time, time.thread_time), FLOAT),
    **dict.fromkeys((time.time_ns, time.perf_counter_ns, time.monotonic_ns, time.process_time_ns, time.thread_time_ns), INT),
    time.sleep: EFFECT,
    **dict.fromkeys((time.localtime, time.gmtime, time.ctime, time.strftime, time.asctime), _MOMENT),
    **dict.fromkeys((os.getcwd, os.getpid, os.getppid, os.cpu_count, os.listdir, os.stat, os.lstat, os.access, os.readlink, os.getcwdb), VALUE),
    **dict.fromkeys((threading.get_ident, threading.get_native_id, sys.getswitchinterval, sys.getrecursionlimit), VALUE),
    **dict.fromkeys((datetime.datetime.now, datetime.datetime.utcnow, datetime.datetime.today, datetime.date.today), _MOMENT),
    os.urandom: UNIQUE,  # as of uuid.uuid4()
    **dict.fromkeys((input, sys.getrefcount), _OUTSIDE),
    **dict.fromkeys((open, os.open, os.system), _FILES),
    abc.get_cache_token: VALUE,
    **dict.fromkeys((sys.exit, sys.audit, functools.reduce), KEEPS),
    **dict.fromkeys((sys.settrace, sys.setprofile), _FRAMES),
    **{getattr(sys, name): EFFECT for name in ("setswitchinterval", "set_int_max_str_digits") if hasattr(sys, name)},
    **dict.fromkeys((sys.exception, sys.exc_info), VALUE),  # of the caller: the program's own is known, see Calls
    gc.collect: INT,
    **dict.fromkeys((gc.get_threshold, gc.get_debug, _signal.getsignal), VALUE),
    gc.isenabled: _COLLECTOR,
    **dict.fromkeys((gc.enable, gc.disable, gc.freeze, gc.unfreeze), EFFECT),
    contextvars.copy_context: _VARIABLES,
    **{getattr(_thread, name): _THREADS for name in ("start_new_thread", "start_joinable_thread") if hasattr(_thread, name)},
    _thread.allocate_lock: KEEPS,
    decimal.getcontext: VALUE,
    decimal.localcontext: KEEPS,
    **dict.fromkeys((divmod, pow, round, chr, ord, ascii, format, abs, bin, hex, oct, repr), DEEP),
    **dict.fromkeys((range, bytes, bytearray, int, float, complex, str, memoryview), DEEP),
    **{function: DEEP for name in _OF_PATHS if (function := getattr(_os, name, None)) is not None},
    **dict.fromkeys((os.fspath, sys.intern), DEEP),
    **{getattr(builtins, name): KEEPS for name in ("id", "callable")},
}
FUNCTIONS: dict[Any, Any] = {  # in Python, but of classes in the table: they run as one
    **{getattr(random.Random, name): FLOAT for name in ("uniform", "triangular", "gauss", "normalvariate", "lognormvariate", "expovariate")},
    **{getattr(random.Random, name): FLOAT for name in ("vonmisesvariate", "gammavariate", "betavariate", "paretovariate", "weibullvariate")},
    **{getattr(random.Random, name): INT for name in ("randint", "randrange")},
    random.Random.seed: EFFECT,
    **{getattr(random.Random, name): _SAMPLES for name in ("getstate", "setstate")},
}
TYPE_ALIASES = (typing.TypeAliasType,) if sys.version_info >= (3, 12) else ()  # of `type X = ...`: nothing of one can be set
_STORING = (
    *TYPE_ALIASES,
    *(functools.partial, slice, types.MappingProxyType, property, staticmethod, classmethod),
    *(collections.OrderedDict, collections.defaultdict, collections.deque, operator.itemgetter, operator.attrgetter, operator.methodcaller),
    *(types.CellType, types.MethodType, types.SimpleNamespace, types.GenericAlias, types.UnionType, types.FunctionType, types.CodeType),
    *(weakref.ref, weakref.ReferenceType, contextvars.ContextVar, threading.local, super, BaseException, zip, map, filter, enumerate, reversed),
    *(list, tuple, dict, set, frozenset, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
    *[kind for kind in vars(itertools).values() if isinstance(kind, type)],
)
DATES = (datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo)
CLASSES: dict[type, Any] = {
    **dict.fromkeys((str, bytes, bytearray, int, float, complex, range, re.Pattern, struct.Struct, decimal.Decimal, array, memoryview), DEEP),
    **dict.fromkeys(DATES, DEEP),
    **dict.fromkeys((re.Match, struct.Struct), DEEP),
    **dict.fromkeys(_STORING, KEEPS),
    contextvars.Context: _VARIABLES,
    object: KEEPS,
    type: KEEPS,
}
_DISTRIBUTIONS = (  # methods of both kinds of generators of NumPy's
    *("beta", "binomial", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma", "geometric", "gumbel", "hypergeometric", "laplace"),
    *("logistic", "lognormal", "logseries", "multinomial", "multivariate_normal", "negative_binomial", "noncentral_chisquare", "noncentral_f"),
    *("normal", "pareto", "permutation", "poisson", "power", "random", "rayleigh", "standard_cauchy", "standard_exponential", "standard_gamma"),
    *("standard_normal", "standard_t", "triangular", "uniform", "vonmises", "wald", "weibull", "zipf"),
)
METHODS: dict[tuple[str, str], Any] = {  # (class, method) where the class is not imported here, or only some of its methods have a row
    **{(kind, name): ARRAY for kind in ("RandomState", "Generator") for name in _DISTRIBUTIONS},
    ("Random", "random"): FLOAT,
    ("Random", "getrandbits"): INT,
    ("Random", "seed"): EFFECT,
    **{("RandomState", name): FLOAT for name in ("rand", "random", "random_sample", "uniform", "normal", "standard_normal", "randn", "exponential")},
    **{("RandomState", name): INT for name in ("randint", "poisson", "binomial", "geometric")},
    ("RandomState", "seed"): EFFECT,
    **{("_lru_cache_wrapper", name): _CACHES for name in ("cache_info", "cache_clear")},
    **{("Generator", name): FLOAT for name in ("random", "uniform", "normal", "standard_normal", "exponential", "beta", "gamma")},
    **{("Generator", name): INT for name in ("integers", "poisson", "binomial", "geometric")},
}
STATES = {"Random", "RandomState", "Generator"}  # classes of which the other methods draw, too
MODULES: dict[str, Any] = {
    **dict.fromkeys(("math", "cmath", "_operator", "_struct", "unicodedata", "binascii", "zlib", "_statistics", "_json", "_string"), DEEP),
    "builtins": KEEPS,
    "sys": VALUE,
    "gc": _GARBAGE,
    "_locale": VALUE,
    "itertools": KEEPS,
    **dict.fromkeys(("_signal", "signal", "resource", "_tracemalloc", "faulthandler", "_csv", "pwd", "grp"), _FILES),
    **dict.fromkeys(("posix", "nt", "_io", "_socket", "select", "_posixsubprocess", "fcntl", "mmap", "_ssl"), _FILES),
    "time": _MOMENT,
    "numpy": DEEP,
}
CHANGING = Refused("it belongs to an object from outside that may change unseen; make that object inside, or pass what it holds")
CHANGING_CLASSES = ("_io", "_hashlib", "_blake2", "_md5", "_sha1", "_sha2", "_sha3", "zlib", "_bz2", "_lzma", "_csv", "_pickle", "select", "mmap")
FILES = {"TextIOWrapper", "BufferedReader", "BufferedWriter", "BufferedRandom", "FileIO", "socket"}
_STATEFUL = ("random", "_random", "numpy.random")
_UNBOUND = (MethodDescriptorType, WrapperDescriptorType)
_BOUND = (BuiltinFunctionType, MethodWrapperType)


def rule_of(function: Any, args: Sequence[Any] = ()) -> Any:
    """Return the rule of a callable in C; None where it has no row."""
    if args and is_state(args[0]) and hasattr(function, "__name__"):  # as functions of Cython, which do not name their class
        return of_class(type(args[0]), function.__name__)
    try:
        rule = CALLABLES.get(function)
    except TypeError:  # it cannot be hashed
        return None
    if rule is not None:
        return rule
    if isinstance(function, type):
        return _of_maker(function)
    if getattr(function, "__module__", None) == "numpy.random" and type(function) not in (*_UNBOUND, *_BOUND):
        return METHODS.get(("RandomState", function.__name__), _SAMPLES)  # a function of Cython that calls a method of NumPy's generator
    if type(function) in _UNBOUND:
        return of_class(function.__objclass__, function.__name__)
    if isinstance(function, _BOUND):  # some builtin methods are of a subclass
        owner = function.__self__
        if owner is None or (isinstance(owner, ModuleType) and type(function) is BuiltinFunctionType):
            return _of_module((function.__module__ or "").partition(".")[0], function.__name__, bool(args))
        if isinstance(owner, type) and function.__name__ == "__subclasses__":
            return VALUE
        return of_class(owner if isinstance(owner, type) else type(owner), function.__name__)
    return DEEP if getattr(type(function), "__module__", "") == "numpy" else None  # as ufuncs


def _of_module(module: str, name: str, has_arguments: bool) -> Any:
    """Return the rule of a function of a module; one without a row that gets nothing can only look at the world outside."""
    if module == "numpy" and name.startswith(("get", "_get")) and not has_arguments:
        return VALUE
    return MODULES.get(module) or (None if has_arguments else VALUE)


@per_class
def _of_maker(cls: type) -> Any:
    """Return the rule of a class: that of the first base with a row; one that only stores attributes keeps its arguments."""
    for base in cls.__mro__:
        if base is not object and (base in CALLABLES or base in CLASSES):
            return CALLABLES[base] if base in CALLABLES else CLASSES[base]
    own = [next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None) for name in ("__new__", "__init__")]
    return KEEPS if own == [object.__new__, object.__init__] else None


@per_class
def of_class(kind: type, name: str) -> Any:
    """Return the rule of a method of a class in C."""
    defining = next((base for base in kind.__mro__ if name in vars(base)), kind)
    if defining.__name__ in FILES and defining.__module__ in ("_io", "socket", "_socket"):
        return _FILES
    if defining.__module__ == "numpy":
        return DEEP
    if defining.__module__ in ("_thread", "functools") and (defining.__name__, name) in METHODS:
        return METHODS[defining.__name__, name]
    state = next((base.__name__ for base in kind.__mro__ if base.__name__ in STATES and base.__module__.startswith(_STATEFUL)), None)
    if state is not None and defining not in (object, type):
        return METHODS.get((state, name), _SAMPLES)
    return next((CLASSES[base] for base in defining.__mro__ if base in CLASSES and not (base is object and defining is not object)), None)


def is_of_numpy(function: Any) -> bool:
    """Return whether a callable in C is NumPy's, and makes arrays of its arguments."""
    owner = getattr(function, "__objclass__", None) or type(getattr(function, "__self__", function))
    return (getattr(function, "__module__", None) or owner.__module__).partition(".")[0] == "numpy"


def is_state(value: Any) -> bool:
    """Return whether a value is a generator of random numbers, or a file: an object of the world outside."""
    kind = type(value)
    return isinstance(value, _random.Random) or (kind.__name__ in STATES and kind.__module__.startswith("numpy.random"))


def name_of(function: Any) -> str:
    """Return the name of a callable, as the program writes it."""
    owner = getattr(function, "__self__", None)
    named = getattr(function, "__objclass__", None) or (owner if isinstance(owner, type) else type(owner))
    inside = owner is None or (isinstance(owner, ModuleType) and type(function) is not MethodWrapperType)
    where = getattr(function, "__module__", None) if inside and not hasattr(function, "__objclass__") else f"{named.__module__}.{named.__qualname__}"
    return f"{where}.{getattr(function, '__name__', function)}".replace("builtins.", "").replace("posix.", "os.")
