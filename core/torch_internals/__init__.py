"""Private and unstable parts of PyTorch, each with its purpose, a probe, a fallback and the versions it was seen in.

`subgradients` has the gradients that depend on the version of PyTorch.

Nothing else in this repository's packages touches `torch._...`.  Importing this package needs none of them: what a torch lacks is None,
and whoever uses it takes the fallback.  `dovetail doctor` lists them.
"""

from dovetail.torch_internals import around, autograd, collectives, dynamo, guards, modes, modules, operations, tensors, trees
from dovetail.torch_internals.around import DEVICES as DEVICES
from dovetail.torch_internals.around import FORWARD_AD as FORWARD_AD
from dovetail.torch_internals.around import FUNCTION_MODES as FUNCTION_MODES
from dovetail.torch_internals.around import LEVEL as LEVEL
from dovetail.torch_internals.around import NO_LEVEL as NO_LEVEL
from dovetail.torch_internals.around import active_mode as active_mode
from dovetail.torch_internals.around import disable_hooks as disable_hooks
from dovetail.torch_internals.around import has_changing_hooks as has_changing_hooks
from dovetail.torch_internals.around import hooks_disabled as hooks_disabled
from dovetail.torch_internals.around import is_profiling as is_profiling
from dovetail.torch_internals.around import mode_keys as mode_keys
from dovetail.torch_internals.around import saved_hooks as saved_hooks
from dovetail.torch_internals.around import transform_level as transform_level
from dovetail.torch_internals.autograd import apply_function as apply_function
from dovetail.torch_internals.autograd import backward_of as backward_of
from dovetail.torch_internals.autograd import detour_apply as detour_apply
from dovetail.torch_internals.autograd import direct_apply as direct_apply
from dovetail.torch_internals.autograd import freed_graph as freed_graph
from dovetail.torch_internals.autograd import function_applied as function_applied
from dovetail.torch_internals.autograd import gradients as gradients
from dovetail.torch_internals.autograd import once_differentiable_body as once_differentiable_body
from dovetail.torch_internals.autograd import unreached_leaf as unreached_leaf
from dovetail.torch_internals.collectives import ACTIVE_DDP as ACTIVE_DDP
from dovetail.torch_internals.collectives import FUNCTIONAL as FUNCTIONAL
from dovetail.torch_internals.collectives import FUNCTIONAL_COLLECTIVES as FUNCTIONAL_COLLECTIVES
from dovetail.torch_internals.collectives import RESOLVE_GROUP as RESOLVE_GROUP
from dovetail.torch_internals.collectives import STORE as STORE
from dovetail.torch_internals.collectives import functional_collective as functional_collective
from dovetail.torch_internals.dynamo import INLINES_PARAMETERS as INLINES_PARAMETERS
from dovetail.torch_internals.dynamo import compile_fx_inner as compile_fx_inner
from dovetail.torch_internals.dynamo import compiled_by_dynamo as compiled_by_dynamo
from dovetail.torch_internals.dynamo import current_compile_id as current_compile_id
from dovetail.torch_internals.dynamo import graph_break_counts as graph_break_counts
from dovetail.torch_internals.dynamo import graph_count as graph_count
from dovetail.torch_internals.dynamo import inductor_problem as inductor_problem
from dovetail.torch_internals.dynamo import is_set_grad_enabled as is_set_grad_enabled
from dovetail.torch_internals.dynamo import keep_dynamo_out as keep_dynamo_out
from dovetail.torch_internals.dynamo import notes_module as notes_module
from dovetail.torch_internals.dynamo import scripted as scripted
from dovetail.torch_internals.dynamo import select_decompositions as select_decompositions
from dovetail.torch_internals.dynamo import tracing_fakes as tracing_fakes
from dovetail.torch_internals.dynamo import undisabled as undisabled
from dovetail.torch_internals.guards import DICT_VERSION as DICT_VERSION
from dovetail.torch_internals.guards import guard_manager as guard_manager
from dovetail.torch_internals.guards import guard_managers_loaded as guard_managers_loaded
from dovetail.torch_internals.guards import tensor_guard as tensor_guard
from dovetail.torch_internals.internal import Internal as Internal
from dovetail.torch_internals.internal import locate as locate
from dovetail.torch_internals.internal import resolve as resolve
from dovetail.torch_internals.modes import ANY_AUTOCAST as ANY_AUTOCAST
from dovetail.torch_internals.modes import FAKE_TENSOR_LOG as FAKE_TENSOR_LOG
from dovetail.torch_internals.modes import ThreadModes as ThreadModes
from dovetail.torch_internals.modes import TorchDispatchMode as TorchDispatchMode
from dovetail.torch_internals.modes import any_autocast as any_autocast
from dovetail.torch_internals.modes import autocast_devices as autocast_devices
from dovetail.torch_internals.modes import autocast_keys as autocast_keys
from dovetail.torch_internals.modes import cudnn_setting as cudnn_setting
from dovetail.torch_internals.modes import fake_tensor_mode as fake_tensor_mode
from dovetail.torch_internals.modes import no_modes as no_modes
from dovetail.torch_internals.modes import no_torch_function as no_torch_function
from dovetail.torch_internals.modes import restores_modes as restores_modes
from dovetail.torch_internals.modes import sdp_settings as sdp_settings
from dovetail.torch_internals.modes import set_grad_enabled as set_grad_enabled
from dovetail.torch_internals.modes import shape_rules as shape_rules
from dovetail.torch_internals.modes import switches_torch_function as switches_torch_function
from dovetail.torch_internals.modes import torch_function as torch_function
from dovetail.torch_internals.modules import CALL_IMPL as CALL_IMPL
from dovetail.torch_internals.modules import DETECT_IS_CAUSAL as DETECT_IS_CAUSAL
from dovetail.torch_internals.modules import EVERY_MODULE as EVERY_MODULE
from dovetail.torch_internals.modules import GLOBAL_HOOKS as GLOBAL_HOOKS
from dovetail.torch_internals.modules import MODULE_HOOKS as MODULE_HOOKS
from dovetail.torch_internals.modules import MODULE_TABLES as MODULE_TABLES
from dovetail.torch_internals.operations import ATEN as ATEN
from dovetail.torch_internals.operations import FOREACH as FOREACH
from dovetail.torch_internals.operations import FUSED as FUSED
from dovetail.torch_internals.operations import GET_STEP as GET_STEP
from dovetail.torch_internals.operations import GROUP_TENSORS as GROUP_TENSORS
from dovetail.torch_internals.operations import MKLDNN as MKLDNN
from dovetail.torch_internals.operations import SETS_DATA as SETS_DATA
from dovetail.torch_internals.operations import aten as aten
from dovetail.torch_internals.subgradients import CLAMP_BY_NUMBERS as CLAMP_BY_NUMBERS
from dovetail.torch_internals.subgradients import CLAMP_BY_TENSORS as CLAMP_BY_TENSORS
from dovetail.torch_internals.subgradients import FMAX as FMAX
from dovetail.torch_internals.subgradients import SUBGRADIENTS as SUBGRADIENTS
from dovetail.torch_internals.subgradients import Subgradient as Subgradient
from dovetail.torch_internals.tensors import C_NAMESPACES as C_NAMESPACES
from dovetail.torch_internals.tensors import C_NN as C_NN
from dovetail.torch_internals.tensors import CORRECT_ALIASING as CORRECT_ALIASING
from dovetail.torch_internals.tensors import DTENSORS as DTENSORS
from dovetail.torch_internals.tensors import FUNCTORCH_MODULE as FUNCTORCH_MODULE
from dovetail.torch_internals.tensors import IS_ZEROTENSOR as IS_ZEROTENSOR
from dovetail.torch_internals.tensors import NESTED_FROM_MASK as NESTED_FROM_MASK
from dovetail.torch_internals.tensors import NESTED_TENSORS as NESTED_TENSORS
from dovetail.torch_internals.tensors import NN_PAD as NN_PAD
from dovetail.torch_internals.tensors import ONE_RANK as ONE_RANK
from dovetail.torch_internals.tensors import TENSOR_BASE as TENSOR_BASE
from dovetail.torch_internals.tensors import HigherOrderOperator as HigherOrderOperator
from dovetail.torch_internals.tensors import OpOverload as OpOverload
from dovetail.torch_internals.tensors import OpOverloadPacket as OpOverloadPacket
from dovetail.torch_internals.tensors import change_shape as change_shape
from dovetail.torch_internals.tensors import counts_storage_uses as counts_storage_uses
from dovetail.torch_internals.tensors import has_storage as has_storage
from dovetail.torch_internals.tensors import is_c_class as is_c_class
from dovetail.torch_internals.tensors import is_zero_tensor as is_zero_tensor
from dovetail.torch_internals.tensors import make_jagged as make_jagged
from dovetail.torch_internals.tensors import make_wrapper as make_wrapper
from dovetail.torch_internals.tensors import storage_key as storage_key
from dovetail.torch_internals.tensors import storage_use_count as storage_use_count
from dovetail.torch_internals.trees import SUPPORTED_NODES as SUPPORTED_NODES
from dovetail.torch_internals.trees import tree_flatten as tree_flatten
from dovetail.torch_internals.trees import tree_leaves as tree_leaves
from dovetail.torch_internals.trees import tree_map_only as tree_map_only
from dovetail.torch_internals.trees import tree_unflatten as tree_unflatten
from dovetail.torch_internals.versions import CLAMP_SEEN as CLAMP_SEEN
from dovetail.torch_internals.versions import asarray_keeps_gradients as asarray_keeps_gradients
from dovetail.torch_internals.versions import clamp_saturates as clamp_saturates

# every private part of PyTorch that Dovetail uses, in the order of the files
INTERNALS: tuple[Internal, ...] = (
    *(
        part
        for file in (around, autograd, collectives, modes, modules, operations, tensors, trees, guards, dynamo)
        for part in vars(file).values()
        if isinstance(part, Internal)
    ),
    *MKLDNN.values(),
    *FUNCTIONAL.values(),
)
