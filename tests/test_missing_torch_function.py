"""Another torch, older or newer, lacks some functions: each takes one operation with it, and no import fails."""

from __future__ import annotations

LACKING = (
    *("torch.hypot", "torch.Tensor.addcmul_", "torch.nn.functional.mish", "torch.special.i0e", "torch.linalg.vecdot", "torch.fft.ihfft2"),
    *("torch.float8_e8m0fnu", "torch.uint16", "torch.uint32", "torch.kaiser_window", "torch.ctc_loss", "torch.Tensor.logaddexp2", "torch.isin"),
    *("torch.nn.functional.rms_norm", "torch.aminmax", "torch.Tensor.dim_order", "torch.nonzero_static", "torch.quantize_per_tensor"),
    *("torch.return_types.aminmax", "torch.return_types.kthvalue"),
)
PROGRAM = """
import torch
torch._subclasses.FakeTensorMode()  # torch's own modules expect all of torch: they are loaded before
for name in {names}:
    owner = torch
    *path, last = name.split(".")[1:]
    for part in path:
        owner = getattr(owner, part)
    if owner is torch.Tensor and not last in vars(owner):
        owner = torch._C.TensorBase
    try:
        delattr(owner, last)
    except (AttributeError, TypeError):
        pass

import dovetail, dovetail.extend
x = torch.linspace(-2, 2, 5)

def fn(x):
    return torch.nn.functional.softmax(x.add(1).mul_(2), -1) + torch.linalg.qr(x[:, None])[0].sum()

torch.testing.assert_close(dovetail.jit(fn)(x), fn(x))
print(hasattr(torch, "hypot"), hasattr(torch.nn.functional, "mish"), hasattr(torch, "uint16"), hasattr(torch, "ctc_loss"))
print(*[dovetail.extend.advanced.symbol_for(name) for name in ("torch.hypot", "torch.nn.functional.mish", "torch.add")])
"""


def test_scenario_60_a_missing_function_disables_one_operation(new_process) -> None:
    done = new_process(["-c", PROGRAM.format(names=LACKING)])

    assert done.stdout.split("\n") == ["False False False False", "None None torch.add", ""], done.stderr
