"""Every error that users can see.  Each message says what, where, why, and one way out."""

from __future__ import annotations


class DovetailError(Exception):
    """The base class of all errors that Dovetail raises."""


class GuardWarning(UserWarning):
    """A call ran in eager mode because its compiled program does not match it: a bug, to be reported."""


class NotTracing(DovetailError, RuntimeError):
    """A symbol was called outside of tracing and without tensors to run on."""


class TracedValueError(DovetailError, TypeError):
    """Python code needs the value of a traced tensor: to branch on it, to index with it, to print it."""

    def __init__(self, message: str, proxy: object = None, question: str = "__index__"):
        super().__init__(message)
        self.proxy = proxy  # the traced value, where it is known
        self.question = question  # the method that returns what is needed of it


class Unsupported(DovetailError, NotImplementedError):
    """Supported by PyTorch, but not by Dovetail."""


class ValueDependent(Unsupported):
    """What an operation does depends on values of tensors, so that it is no line of a program.

    `call` is a torch function with its arguments that does the same outside of the program; None where there is none.
    """

    def __init__(self, message: str, call: tuple | None = None):
        super().__init__(message)
        self.call = call


class LeftToAutograd(Unsupported):
    """The backward of a torch.autograd.Function cannot be traced: its calls have to run by themselves, between two segments of a program."""


class EagerCall(Unsupported):
    """The traced call must run in eager mode.  Internal: the compiled function catches it and does so."""


class NoGradRule(DovetailError, NotImplementedError):
    """A gradient is needed through a symbol without a grad rule."""


class Unclaimed(DovetailError, NotImplementedError):
    """No installed executor claims a line or its decomposition."""


class InvalidTrace(DovetailError):
    """A pass returned an invalid trace."""


class ExecutorError(DovetailError):
    """An executor is declared or configured incorrectly, or violated its contract."""


class CollectiveError(DovetailError, RuntimeError):
    """A collective failed, or the ranks of a process group run different programs."""


class InputError(DovetailError):
    """An operation was called with invalid inputs; also an instance of the error type that eager PyTorch raises."""


class InputRuntimeError(InputError, RuntimeError):
    """Incompatible shapes, dtypes or devices."""


class InputIndexError(InputError, IndexError):
    """A dimension or position out of range."""


class InputDimensionError(InputIndexError):
    """A dimension that the tensor does not have."""


class InputTypeError(InputError, TypeError):
    """An argument of the wrong type, or a call with the wrong arguments."""


class InputValueError(InputError, ValueError):
    """An argument with an invalid value."""


class InputAssertionError(InputError, AssertionError):
    """An argument for which PyTorch's Python code has an assertion."""


class InputNotImplementedError(InputError, NotImplementedError):
    """A dtype or combination that the operation does not support."""


class InputDtypeError(InputNotImplementedError, InputTypeError):
    """A dtype that the operation does not support; PyTorch's versions raise RuntimeError, NotImplementedError or TypeError, and this is all three."""


_RAISED = {
    RuntimeError: InputRuntimeError,
    IndexError: InputIndexError,
    TypeError: InputTypeError,
    ValueError: InputValueError,
    NotImplementedError: InputNotImplementedError,
    AssertionError: InputAssertionError,
}


def require(condition: bool, message: str, *details: object, error: type[Exception] = RuntimeError) -> None:
    """Raise the `InputError` that is also an `error` unless `condition` holds.

    `message` is formatted with `details` only on failure, since printing specs costs more than checking them.
    """
    if not condition:
        raise _RAISED[error](message.format(*details))


def require_traced(condition: bool, message: str, *details: object) -> None:
    """Raise `Unsupported` unless `condition` holds, for what PyTorch or NumPy does and Dovetail does not; `details` are put into `message`."""
    if not condition:
        raise Unsupported(message.format(*details))


def require_function(what: str, value: object) -> None:
    """Raise the InputTypeError for an argument that is no function; `what` names the call, or the call and the argument."""
    require(callable(value), "{} expects a function, got {!r}", what, value, error=TypeError)


def require_dtype(condition: bool, message: str, *details: object) -> None:
    """Raise the `InputDtypeError` with `message`, formatted with `details`, unless `condition` holds."""
    if not condition:
        raise InputDtypeError(message.format(*details))
