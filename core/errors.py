"""Every error a user can meet.  Each says what, where, and one way out."""

from __future__ import annotations


class DovetailError(Exception):
    """Base of every error raised on purpose."""


class GuardWarning(UserWarning):
    """A call ran in eager mode because the program that was compiled for it does not fit it: a bug, which the text reports."""


class NotTracing(DovetailError, RuntimeError):
    """A symbol was called with nobody recording and no tensors to run it on."""


class TracedValueError(DovetailError, TypeError):
    """Python asked for the value of a tensor that is only being traced: to branch on it, to index with it, to print it."""

    proxy: object = None  # the traced value, where it is known


class Unsupported(DovetailError, NotImplementedError):
    """PyTorch can do this and Dovetail cannot."""


class EagerCall(Unsupported):
    """The call that is being traced has to run in eager mode.  Nobody meets it: the compiled function runs it so."""


class NoGradRule(DovetailError, NotImplementedError):
    """A gradient was asked through a symbol that declares none."""


class Unclaimed(DovetailError, NotImplementedError):
    """No installed executor runs a line, nor the lines it decomposes to."""


class InvalidTrace(DovetailError):
    """A pass left a trace that does not check."""


class ExecutorError(DovetailError):
    """An executor was declared or configured wrongly, or broke its contract."""


class InputError(DovetailError):
    """An operation was called with inputs that its meta rule does not accept; also of the type that eager PyTorch raises."""


class InputRuntimeError(InputError, RuntimeError):
    """Shapes, dtypes or devices that do not go together."""


class InputIndexError(InputError, IndexError):
    """A dimension or a position that is not there."""


class InputTypeError(InputError, TypeError):
    """An argument of the wrong type, or a call with the wrong arguments."""


class InputValueError(InputError, ValueError):
    """An argument whose value means nothing here."""


class InputAssertionError(InputError, AssertionError):
    """An argument for which PyTorch's Python code has an assertion."""


class InputNotImplementedError(InputError, NotImplementedError):
    """A dtype or a combination that the operation does not have."""


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

    `message` is formatted with `details` only then: metas run once per line, and printing specs costs more than checking them.
    """
    if not condition:
        raise _RAISED[error](message.format(*details))
