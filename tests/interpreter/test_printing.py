"""What a program prints and warns of is as in eager mode, also where it reads that itself."""

from __future__ import annotations

import io
import warnings

import pytest
import torch

import dovetail


class Counter:
    """A file that counts characters."""

    def __init__(self):
        self.count = 0

    def write(self, text):
        self.count += len(text)


OUTSIDE = Counter()


def into_text(x):
    file = io.StringIO()
    print("shape", x.shape, [1, 2.5], sep="|", end="!", file=file)
    print(file=file)
    return x + len(file.getvalue())


def into_an_object(x):
    file = Counter()
    print("abc", 1, file=file)
    return x + file.count


def into_an_object_outside(x):
    before = OUTSIDE.count
    print("abc", 1, file=OUTSIDE)
    return x + OUTSIDE.count - before


def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("one", stacklevel=1)
    return x + len(seen)


def handled(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("one", stacklevel=1)
        except UserWarning:
            return x + 1
    return x


def shown(x):
    seen, before = [], warnings.showwarning
    warnings.showwarning = lambda *args, **kwargs: seen.append(args)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("one", stacklevel=1)
    finally:
        warnings.showwarning = before
    return x + len(seen)


def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("one", stacklevel=1)
    return x + 1


@pytest.mark.filterwarnings("ignore:.*eager mode")
@pytest.mark.parametrize("program", [into_text, into_an_object, into_an_object_outside, recorded, handled, shown, ignored])
def test_what_a_program_reads_of_its_own_output(program):
    compiled = dovetail.jit(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2)), program(torch.ones(2)))


def lists(x):
    items, names, nested = [1], {"a": 1}, [[x.sum()]]
    print(items, names, nested)
    items.append(2)
    names["b"] = 2
    nested[0].append(3)
    print(items, names, nested)
    return x + 1


def test_containers_are_printed_as_they_were(capsys):
    lists(torch.ones(2))
    expected = capsys.readouterr().out
    compiled = dovetail.jit(lists)
    for _ in range(2):
        compiled(torch.ones(2))
        assert capsys.readouterr().out == expected
