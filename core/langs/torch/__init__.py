"""The torch language: PyTorch's names, defaults, dtypes and errors, one file per family."""

from dovetail.langs.torch import elementwise as elementwise
from dovetail.langs.torch.bridge import FROM_TORCH as FROM_TORCH
from dovetail.langs.torch.bridge import TO_TORCH as TO_TORCH
from dovetail.langs.torch.bridge import device_of as device_of
from dovetail.langs.torch.bridge import dtype_of as dtype_of
from dovetail.langs.torch.bridge import spec_of as spec_of
from dovetail.langs.torch.bridge import torch_device as torch_device
from dovetail.langs.torch.bridge import traceable as traceable
from dovetail.langs.torch.names import name_of as name_of
from dovetail.langs.torch.names import not_traced as not_traced
from dovetail.langs.torch.opaque import OpaqueSymbol as OpaqueSymbol
from dovetail.langs.torch.opaque import check_copies as check_copies
from dovetail.langs.torch.opaque import opaque as opaque
from dovetail.langs.torch.proxy import TorchProxy as TorchProxy
from dovetail.langs.torch.queries import REFUSED as REFUSED
from dovetail.langs.torch.symbol import FACTORIES as FACTORIES
from dovetail.langs.torch.symbol import LANGUAGE as LANGUAGE
from dovetail.langs.torch.symbol import TABLE as TABLE
from dovetail.langs.torch.symbol import TorchSymbol as TorchSymbol
from dovetail.langs.torch.symbol import symbol_for as symbol_for
from dovetail.langs.torch.symbol import torchsymbol as torchsymbol
from dovetail.langs.torch.symbol import write_out as write_out
