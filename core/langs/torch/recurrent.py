"""One step of a recurrent layer, for a batch: the cells of torch.nn.LSTMCell, GRUCell and RNNCell.

input           [batch, input_size]
hx              the state before the step, [batch, hidden_size]; of an LSTM two of them, the hidden state and the cell's
w_ih, w_hh      [gates * hidden_size, input_size] and [gates * hidden_size, hidden_size]: the weights of all gates, one below the other
b_ih, b_hh      [gates * hidden_size], or None
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail import prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.activation import relu
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol
from dovetail.langs.torch.linalg import linear


def _require_step(gates: int, input: Tensor, states: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor) -> None:
    """Check the shapes of one step, as torch does."""
    for x in (input, *states, w_ih, w_hh):
        dims = len(x.spec.shape)
        require(dims > 1, "Dimension out of range: expected a matrix, got {}", x.spec, error=IndexError)
        require(dims == 2, "expected a matrix, got {}", x.spec)
        message = "result type Float can't be cast to the desired output type: expected floating point numbers, got {}"
        require(gates == 1 or x.spec.dtype.inexact, message, x.spec)
    batch, size = input.spec.shape
    require(size == w_ih.spec.shape[1], "input has inconsistent input_size: got {} expected {}", size, w_ih.spec.shape[1])
    hidden = w_hh.spec.shape[1]
    for i, state in enumerate(states):
        require(batch == state.spec.shape[0], "Input batch size {} doesn't match hidden{} batch size {}", batch, i, state.spec.shape[0])
        require(state.spec.shape[1] == hidden, "hidden{} has inconsistent hidden_size: got {}, expected {}", i, state.spec.shape[1], hidden)
    for name, weight in (("ih", w_ih), ("hh", w_hh)):
        message = "weight_{} first dim must be {} * hidden_size = {}, but got {}"
        require(weight.spec.shape[0] == gates * hidden, message, name, gates, gates * hidden, weight.spec.shape[0])


def _gates(x: Tensor, count: int) -> list[Tensor]:
    """Return the columns of each gate."""
    rows, columns = x.spec.shape
    size = columns // count
    return [prims.strided_slice(x, starts=(0, i * size), stops=(rows, (i + 1) * size), steps=(1, 1)) for i in range(count)]


@torchsymbol("torch.lstm_cell")
def lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None):
    """The next hidden state and cell state, [batch, hidden_size]: o * tanh(c') and c' = f * c + i * g.

    i, f and o, the gates of the input, of forgetting and of the output, are sigmoids of sums of two linear layers, g is a tanh of one
    (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000).
    """
    require(isinstance(hx, (tuple, list)) and len(hx) == 2, "lstm_cell expects two hidden states")
    hidden, cell = hx
    _require_step(4, input, (hidden, cell), w_ih, w_hh)
    i, f, g, o = _gates(core.add(linear(hidden, w_hh, b_hh), linear(input, w_ih, b_ih)), 4)
    cell = core.add(core.mul(core.sigmoid(f), cell), core.mul(core.sigmoid(i), core.tanh(g)))
    return core.mul(core.sigmoid(o), core.tanh(cell)), cell


@torchsymbol("torch.gru_cell")
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None):
    """The next hidden state, [batch, hidden_size]: (hx - n) * z + n.

    r and z, the gates of the reset and of the update, are sigmoids of sums of two linear layers; n = tanh(a + r * b), where a is linear in
    the input and b in the hidden state (Cho et al. 2014, with the reset after the product).
    """
    _require_step(3, input, (hx,), w_ih, w_hh)
    a_r, a_z, a_n = _gates(linear(input, w_ih, b_ih), 3)
    b_r, b_z, b_n = _gates(linear(hx, w_hh, b_hh), 3)
    new = core.tanh(core.add(a_n, core.mul(b_n, core.sigmoid(core.add(b_r, a_r)))))
    return core.add(core.mul(core.sub(hx, new), core.sigmoid(core.add(b_z, a_z))), new)


def _plain(activation: Callable, input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    _require_step(1, input, (hx,), w_ih, w_hh)
    return activation(core.add(linear(hx, w_hh, b_hh), linear(input, w_ih, b_ih)))


@torchsymbol("torch.rnn_tanh_cell")
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None):
    """The next hidden state, [batch, hidden_size]: tanh of the sum of two linear layers (Elman 1990)."""
    return _plain(core.tanh, input, hx, w_ih, w_hh, b_ih, b_hh)


@torchsymbol("torch.rnn_relu_cell")
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None):
    """The next hidden state, [batch, hidden_size]: relu of the sum of two linear layers."""
    return _plain(relu, input, hx, w_ih, w_hh, b_ih, b_hh)
