"""The code of this package that may be running while the program needs a value, without holding more of its state than its arguments.

Two runs that stop in such code at the same instruction, with equal arguments, go on alike.  Any other code, such as a sort in the middle of its
comparisons, holds what cannot be seen from outside: a state with it equals no other.
"""

from __future__ import annotations

from functools import partial
from types import CodeType
from typing import Any

from dovetail.frontend.autograd import traced_autograd
from dovetail.frontend.autograd.traced_autograd import TracedAutograd
from dovetail.frontend.environment import TorchEnvironment
from dovetail.frontend.interpreter import drivers, engine
from dovetail.frontend.interpreter.classes import instantiate, make
from dovetail.frontend.interpreter.native import _call, call_in
from dovetail.frontend.interpreter.opcodes import call, control
from dovetail.frontend.interpreter.protocols import Protocols
from dovetail.frontend.interpreter.tracking import choices, fresh
from dovetail.frontend.interpreter.tracking.calls import Calls
from dovetail.frontend.interpreter.tracking.capture import capture
from dovetail.frontend.interpreter.tracking.containers import Containers
from dovetail.frontend.interpreter.tracking.lookasides import TABLE
from dovetail.frontend.interpreter.tracking.operators import Operators
from dovetail.frontend.interpreter.world import OPCODES, World
from dovetail.frontend.recording import host_numbers, nn_module_tracing
from dovetail.frontend.recording.function_rules import RULES
from dovetail.frontend.recording.integer_tensors import recorded, with_integers
from dovetail.frontend.recording.torch_recorder import TorchRecorder
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.langs.torch import LANGUAGE
from dovetail.trace import TensorProxy
from dovetail.trace.source_location import CodeMap

_HANDLERS = (
    *("CALL", "CALL_KW", "CALL_FUNCTION_EX", "TO_BOOL", "UNARY_NOT", "UNARY_NEGATIVE"),
    *("COMPARE_OP", "BINARY_OP", "BINARY_SUBSCR", "STORE_SUBSCR", "FOR_ITER"),
)


def _nested(function: Any) -> list[CodeType]:
    """Return the code of the functions inside a function."""
    return [code for code in function.__code__.co_consts if isinstance(code, CodeType)]


_FUNCTIONS: tuple[Any, ...] = (
    *(engine.loop, engine.run, engine._handling, drivers.start, call.call_spread, capture, call_in, _call, instantiate, make, nn_module_tracing.call),
    *(control.truth, control._jump_if_true, control._jump_if_false),
    *(World.call, World.call_function, World.make_native, World.truth, World.binary, World.compare, World.get_item, World.unary),
    *(Protocols.compare, Protocols.binary, Protocols.inplace, Protocols.operator, Protocols.truth, Protocols.native_operator),
    *(
        Calls.call,
        Calls.make_native,
        Calls._make_native,
        Operators.truth,
        Operators.operator,
        Operators.unary,
        Operators.inplace,
        Operators.native_operator,
        Operators.spelled,
    ),
    *(Containers.get_item, Containers.set_item, Containers.next, Protocols.next),
    *(TorchRecorder.truth, TorchRecorder.operate, TorchRecorder.call, TorchRecorder.concrete, TorchRecorder._operate, TorchRecorder._torch),
    *(TorchRecorder.with_values, *_nested(TorchRecorder.with_values), TorchRecorder.draw, with_integers),
    *(recorded, *_nested(recorded)),
    *(
        Calls.call_native,
        Calls._call_native,
        Calls._method_in_c,
        Calls._text_method,
        Calls._with_values,
        fresh.outside_call,
        *_nested(fresh.outside_call),
        fresh._drawn,
        fresh._run_again,
    ),
    *(choices.picked, *_nested(choices.picked), *choices.MODELS.values()),
    *(
        TorchRecorder._recorded,
        TorchRecorder._called,
        TorchRecorder._by_table,
        TorchRecorder.call_ours,
        TorchRecorder._python,
        TorchRecorder._context,
        TorchRecorder._c_function,
        TorchRecorder._class,
        TorchRecorder._object,
        TrackedEnvironment.value,
        TrackedEnvironment.call,
        TrackedEnvironment.listed,
    ),
    *[rule.func if isinstance(rule, partial) else rule for rule in RULES.values()],
    *(host_numbers.computed, host_numbers.applied, host_numbers.converted, TorchRecorder.converted),
    *(TorchEnvironment.attribute, *_nested(TorchEnvironment.attribute)),
    *(TracedAutograd.create_leaf, TracedAutograd.set_requires_grad, TracedAutograd.require_gradient, traced_autograd._requires_grad_),
    *(TracedAutograd.backward, TracedAutograd.grad, TracedAutograd._gradients, traced_autograd._backward),
    *(LANGUAGE["tolist"], TensorProxy.__bool__, *[TABLE[kind] for kind in (bool, int, float, complex) if kind in TABLE]),
    *[handler for opcodes in OPCODES.values() for name in _HANDLERS if (handler := getattr(opcodes, name, None))],
)
HARMLESS = CodeMap([(f if isinstance(f, CodeType) else f.__code__, True) for f in _FUNCTIONS])
