"""What is installed, where the program looks it up: libraries do so at first use, through caches of the import system, and keep the answer."""

import importlib.metadata
import importlib.util

import pytest
import torch

import dovetail

X = torch.arange(1.0, 5.0)


class Available:
    def __init__(self, name: str):
        self.name = name

    def __bool__(self) -> bool:
        if not hasattr(self, "answer"):
            self.answer = importlib.util.find_spec(self.name) is not None and importlib.metadata.version(self.name) > "0"
        return self.answer


@pytest.mark.parametrize(("name", "answer"), [("torch", True), ("no_such_module", False)])
def test_a_library_looks_it_up_at_first_use(name, answer):
    available = Available(name)
    fn = dovetail.jit(lambda x: x * 2 if available else x - 1)
    for _ in range(3):
        assert torch.equal(fn(X), X * 2 if answer else X - 1)
    assert available.answer is answer and fn.cache_info().programs <= 2


def test_what_is_not_installed_is_an_error_that_the_program_handles():
    def version(x):
        try:
            return x * len(importlib.metadata.version("no_such_distribution"))
        except importlib.metadata.PackageNotFoundError as error:
            return x + 3, str(error)

    expected, actual = version(X), dovetail.jit(version)(X)
    assert torch.equal(actual[0], expected[0]) and actual[1] == expected[1]


def test_a_spec_is_read_as_it_is():
    fn = dovetail.jit(lambda x: (x + 1, importlib.util.find_spec(name="json").name))
    out, name = fn(X)
    assert torch.equal(out, X + 1) and name == "json"


def test_a_name_that_changes_is_looked_up_anew():
    names = ["json"]
    fn = dovetail.jit(lambda x: x + 1 if importlib.util.find_spec(names[0]) else x - 1)
    assert torch.equal(fn(X), X + 1)
    names[0] = "no_such_module"
    assert torch.equal(fn(X), X - 1)
