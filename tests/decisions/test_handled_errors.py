"""Errors that operations raise for some values, where the program handles them: each call takes the way of eager mode."""

import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F
from decisions.helpers import agrees, compiled, graph_of

import dovetail
from dovetail.errors import TracedValueError


def inverse(m, i):
    try:
        return torch.linalg.inv(m)
    except RuntimeError:
        return m - 1


def jitter(m, i):
    for k in range(4):
        try:
            return torch.linalg.cholesky(m + k * torch.eye(3)), k
        except torch.linalg.LinAlgError as error:
            print(type(error).__name__, k)


def suppressed(m, i):
    with contextlib.suppress(RuntimeError):
        return m.inverse()
    return m


def nested(m, i):
    def inner():
        m.mul_(2)
        return torch.linalg.inv(m)

    try:
        return inner()
    except RuntimeError:
        return m


@contextlib.contextmanager
def forgiving():
    try:
        yield
    except RuntimeError as error:
        print(type(error).__name__)


def manager(m, i):
    with forgiving():
        return m.inverse()
    return m


def picked(m, i):
    try:
        return m[i] + torch.rand(2, 3)
    except IndexError:
        return m


def looked_up(m, i):
    try:
        return F.embedding(i, m)
    except Exception as error:
        return m * len(str(error)[:5])


def summed(m, i):
    try:
        return m.gather(0, i[None]), m.index_add(0, i, m[:2])
    except RuntimeError:
        return m * 2


def asserted(m, i):
    with contextlib.suppress(RuntimeError):
        torch._assert_async((i < 3).all())
        m = m + 1
    try:
        torch._assert_async(m.sum() > 0, "too small")
    except RuntimeError:
        return m - 1
    return m * 2


def divided(m, i):
    try:
        return 10 // (i % 9)[1]
    except RuntimeError:
        return i


def drawn(m, i):
    try:
        return torch.multinomial(m[0] - 1, 1)
    except RuntimeError:
        return m


def told_apart(m, i):
    try:
        torch.linalg.cholesky(m)
    except torch.linalg.LinAlgError:
        return m - 1
    return m * 2


def behind_another_handler(m, i):
    try:
        try:
            y = torch.linalg.inv(m)
        except KeyError:
            return m
    except RuntimeError:
        return m - 1
    return y


def behind_a_finally(m, i):
    try:
        try:
            y = m[i] * 2
        finally:
            m.add_(1)
    except IndexError:
        return m
    return y


def behind_managers(m, i):
    try:
        for _ in range(2):
            with contextlib.suppress(KeyError), torch.no_grad():
                try:
                    m = torch.linalg.inv(m)
                except (ValueError, TypeError):
                    return m * 3
    except RuntimeError:
        return m - 1
    return m


def returned_from_a_finally(m, i):
    count = 0
    try:
        count += 1
        m = torch.linalg.inv(m)
    finally:
        count += 10
        if count > 0:
            return m, count  # noqa: B012


def continued_in_a_finally(m, i):
    for k in range(3):
        try:
            m = torch.linalg.inv(m + k)
        finally:
            m = m + 1
            continue  # noqa: B012
    return m


def left_in_a_finally(m, i):
    for k in range(3):
        try:
            m = m[i] * 2
        finally:
            m = m + k
            if k < 2:
                break  # noqa: B012
    return m


HANDLED = [inverse, jitter, suppressed, nested, manager, picked, looked_up, divided, drawn, asserted]
HANDLED += [told_apart, behind_another_handler, behind_a_finally, behind_managers]
HANDLED += [returned_from_a_finally, continued_in_a_finally, left_in_a_finally]


@pytest.mark.parametrize("program", HANDLED)
def test_errors_that_are_handled_are_those_of_eager_mode(program, capsys):
    fn = compiled(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bad in (0, 1, 0, 1, 1, 0):
            m, i = torch.eye(3) * (0 if bad else 2), torch.tensor([0, 9 if bad else 2])
            agrees(fn, program, m, i)
    assert fn.cache_info().programs == 1 and graph_of(fn).eager_calls >= 3
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) % 2 == 0  # eager and compiled alike


class Timed:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.over = True


@contextlib.contextmanager
def plain():
    yield


def not_caught(m, i):
    try:
        with Timed(), plain(), torch.no_grad():
            y = torch.linalg.inv(m)
    except (KeyError, ImportError):
        return m
    finally:
        z = m[i]
    return y @ z.T


def not_caught_around(m, i):
    try:
        try:
            return torch.linalg.inv(m)
        except KeyError:
            return m
        finally:
            m.add_(1)
    except ValueError:
        return m


def cannot_raise(m, i):
    try:
        return m[:2] / 3 + m.exp()[:2]
    except RuntimeError:
        return m


@pytest.mark.parametrize("program", [not_caught, not_caught_around, cannot_raise])
def test_programs_that_handle_no_error_of_an_operation_are_straight_lines(program):
    fn = compiled(program)
    agrees(fn, program, torch.eye(3) * 2, torch.tensor([0, 2]))
    assert graph_of(fn) is None


def test_a_handled_error_is_refused_where_decisions_are():
    fn = dovetail.jit(inverse, decisions="error")
    with pytest.raises(TracedValueError, match=r"whether torch.linalg.inv raises an error is needed at .*:\d+.*outside of the `try`"):
        fn(torch.eye(3), torch.tensor([0]))


def selected(x, mask):
    try:
        return x.masked_select(mask)
    except RuntimeError:
        return x + 1


def indexed(x, mask):
    try:
        y = x[mask]
    except IndexError:
        return x - 1
    return y * 2


def assigned(x, mask):
    try:
        x[mask] = torch.arange(3.0)
    except (RuntimeError, IndexError):
        return x + 1
    return x


@pytest.mark.parametrize("program", [selected, indexed, assigned])
def test_a_handled_error_of_an_operation_between_segments_is_no_bug(program):
    fn = dovetail.jit(program)
    for mask in (torch.tensor([True, False, True, True]), torch.ones(3).bool(), torch.zeros(4).bool(), torch.ones(0, 2).bool()):
        agrees(fn, program, torch.randn(4), mask)
