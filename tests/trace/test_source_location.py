"""Whose code a line belongs to."""

from __future__ import annotations

from pathlib import Path

import torch

import dovetail
from dovetail.trace.source_location import user_line

FOLDER = Path(dovetail.__file__).parent


def called_in(file: str, text: str, **scope):
    """What `fn()` gives, where `text` defines it in a file of that name."""
    exec(compile(text, file, "exec"), scope)
    return scope["fn"]


def test_a_package_whose_name_begins_as_ours_does_is_somebody_else_s():
    neighbour = f"{FOLDER}_mine/layers.py"
    assert called_in(neighbour, "def fn():\n    return user_line()", user_line=user_line)() == f"{neighbour}:2"
    assert not called_in(str(FOLDER / "layers.py"), "def fn():\n    return user_line()", user_line=user_line)().startswith(str(FOLDER))


def test_functions_of_such_a_package_are_traced():
    weight = torch.tensor([2.0, 3.0])
    fn = called_in(f"{FOLDER}_mine/layers.py", "def fn(x):\n    return weight * x", weight=weight)
    compiled = dovetail.jit(lambda x: fn(x))
    torch.testing.assert_close(compiled(torch.ones(2)), weight)
