"""A driver that is saved: a file with the decisions and the segments, which another process imports and runs."""

import random

import pytest
import torch
from decisions.helpers import compiled

import dovetail
from dovetail.errors import DovetailError

SHIFT = torch.tensor([0.5, -0.5])


def newton(a, tolerance):
    x = torch.ones_like(a)
    while True:
        new = 0.5 * (x + a / x)
        error, x = (new - x).abs().max(), new
        if error <= tolerance:
            return {"root": x, "tolerance": tolerance}


def train(weight, x, y):
    loss = (x @ weight + SHIFT - y).square().mean()
    if loss > 1e6:
        return None
    loss.backward()
    if weight.grad.norm() > 1:
        with torch.no_grad():
            weight -= 0.1 * weight.grad
    print(f"loss {loss.item():.3f}")
    return loss.detach()


def kept(x):
    rows = x[x > 0]
    n = int(rows.sum())
    return rows * n if n < 2 else torch.zeros(n) + rows.mean()


def grown(x, n):
    while x.sum() < n.item():
        x = x * 2
    return x.detach(), x + SHIFT


def appended(x, items):
    items.append(x)
    return x if x.sum() > 0 else -x


def drawn(x):
    return x if random.choice([1, 2]) == 1 and x.sum() > 0 else -x


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


def squared(x):
    return Square.apply(x) if x.sum() > 0 else x


def ran(fn, *calls):
    """Return a function compiled, after these calls."""
    fast = compiled(fn)
    for args in calls:
        fast(*args)
    return fast


PROGRAM = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import newton_file, train_file, kept_file, grown_file
root = newton_file.newton(torch.tensor([2.0, 9e4]))
print(root["root"].tolist(), root["tolerance"])
weight = torch.full((3, 2), 2.0, requires_grad=True)
x = torch.arange(12.0).reshape(4, 3) / 6
print(train_file.train(weight, x, x[:, :2], torch.tensor([0.5, -0.5])).tolist(), weight.grad.tolist(), weight.tolist())
print(kept_file.kept(torch.tensor([0.25, -1.0, 0.5])).tolist(), kept_file.kept(torch.tensor([0.5, -3.0, -1.0, 0.75, 0.75])).tolist())
x = torch.tensor([0.5, 1.0], requires_grad=True)
plain, shifted = grown_file.grown(x, torch.tensor(20), torch.tensor([0.5, -0.5]))
shifted.sum().backward()
print(plain.tolist(), plain.requires_grad, shifted.tolist(), x.grad.tolist())
for call in (lambda: kept_file.kept(torch.tensor([7.0, 0.5])), lambda: kept_file.kept()):
    try:
        call()
    except (RuntimeError, TypeError) as error:
        print(error)
"""


def test_a_saved_driver_runs_in_a_process_of_its_own(tmp_path, new_process, capsys):
    x = torch.arange(12.0).reshape(4, 3) / 6
    weights = [torch.full((3, 2), value, requires_grad=True) for value in (2.0, 0.1, 3.0)]
    growing = [(torch.tensor([0.5, value], requires_grad=True), torch.tensor(20)) for value in (9.0, 15.0, 70.0)]
    runs = {
        newton: [(torch.tensor([2.0, value]), 1e-3) for value in (3.0, 1e5, 7.0)],
        train: [(weight, x, x[:, :2]) for weight in weights],
        kept: [(torch.tensor(row),) for row in ([0.5, -1.0, 0.5, 0.25], [1.5, 0.75, -1.0], [0.25, 0.5], [0.5, 1.75, 0.25])] * 2,
        grown: growing,
    }
    for fn, calls in runs.items():
        dovetail.last_driver(ran(fn, *calls)).save(tmp_path / f"{fn.__name__}_file.py")
    capsys.readouterr()
    done = new_process(["-c", PROGRAM, str(tmp_path)])
    assert not done.stderr
    lines = done.stdout.strip().split("\n")

    root = newton(torch.tensor([2.0, 9e4]), 1e-3)
    weight = torch.full((3, 2), 2.0, requires_grad=True)
    loss = train(weight, x, x[:, :2])
    assert lines[:3] == [
        f"{root['root'].tolist()} 0.001",
        capsys.readouterr().out.strip(),
        f"{loss.tolist()} {weight.grad.tolist()} {weight.tolist()}",
    ]
    rows = kept(torch.tensor([0.25, -1.0, 0.5])), kept(torch.tensor([0.5, -3.0, -1.0, 0.75, 0.75]))
    assert lines[3] == " ".join([str(row.tolist()) for row in rows])
    x = torch.tensor([0.5, 1.0], requires_grad=True)
    plain, shifted = grown(x, torch.tensor(20))
    shifted.sum().backward()
    assert lines[4] == f"{plain.tolist()} {plain.requires_grad} {shifted.tolist()} {x.grad.tolist()}"
    assert (
        lines[6] == "expected 1 tensors, got 0"
        and lines[5].startswith("a number at ")
        and lines[5].endswith("was 7, which no call had when this was saved")
    )


def loaded(fast, folder, name):
    """Return the function of a saved driver."""
    dovetail.last_driver(fast).save(folder / f"{name}_saved.py")
    names = {"__file__": str(folder / f"{name}_saved.py")}
    exec((folder / f"{name}_saved.py").read_text(), names)
    return names[name]


def test_sizes_of_arguments_are_read_off_the_inputs(tmp_path):
    def scaled(x):
        return x / x.shape[0] if x.sum() > 0 else x * x.shape[0]

    fast = ran(scaled, *[(torch.full((n,), value),) for n in (3, 5, 7) for value in (1.0, -1.0)])
    saved = loaded(fast, tmp_path, "scaled")
    for x in (torch.arange(1.0, 12.0), -torch.ones(4)):
        torch.testing.assert_close(saved(x), scaled(x))


def test_a_path_that_writes_to_an_object_says_so(tmp_path):
    fast = ran(appended, (torch.ones(2), []), (torch.ones(2), []))
    with pytest.raises(RuntimeError, match="a file cannot hold what the function does at its end: it writes to an object"):
        loaded(fast, tmp_path, "appended")(torch.ones(2))


@pytest.mark.parametrize(
    ("fn", "why"),
    [(drawn, "reads the world outside, which a file cannot hold"), (squared, "the function has with_backward at .*, which a file cannot hold")],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path, fn, why):
    fast = ran(fn, *[(torch.ones(2, requires_grad=True),) for _ in range(4)])
    with pytest.raises(DovetailError, match=why):
        dovetail.last_driver(fast).save(tmp_path / "refused.py")
    assert not list(tmp_path.iterdir())
