"""Functions that oneDNN applies to a product before it is written, and the operation of a linear layer followed by one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from dovetail.extend.advanced import make_symbol


class Epilogue(NamedTuple):
    """One function: oneDNN's name and algorithm for it, and PyTorch's function of the product."""

    name: str
    algorithm: str
    eager: Callable[..., Any]


EPILOGUES: dict[str, Epilogue] = {
    "": Epilogue("none", "", lambda product: product),
    "relu": Epilogue("relu", "", torch.nn.functional.relu),
    "gelu": Epilogue("gelu", "none", torch.nn.functional.gelu),
    "gelu_tanh": Epilogue("gelu", "tanh", partial(torch.nn.functional.gelu, approximate="tanh")),
    "silu": Epilogue("swish", "", torch.nn.functional.silu),
    "sigmoid": Epilogue("sigmoid", "", torch.sigmoid),
    "tanh": Epilogue("tanh", "", torch.tanh),
    "add": Epilogue("add", "", torch.add),
}


def _program(input: Any, weight: Any, bias: Any = None, other: Any = None, *, epilogue: str) -> Any:
    """Compute `epilogue` of linear(input, weight, bias); "add" adds `other`."""
    out = torch.nn.functional.linear(input, weight, bias)
    return EPILOGUES[epilogue].eager(out) if other is None else out + other


linear_epilogue = make_symbol("onednn.linear_epilogue", program=_program)
