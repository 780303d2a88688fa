"""Training on several ranks: programs of torch.distributed's collectives, in which they are lines like all others."""

from dovetail.distributed.planner import Plan as Plan
from dovetail.distributed.planner import Way as Way
from dovetail.distributed.planner import plan as plan
from dovetail.distributed.tensor_parallel import tensor_parallel as tensor_parallel
from dovetail.distributed.training import data_parallel as data_parallel
from dovetail.distributed.training import fully_sharded as fully_sharded
from dovetail.errors import CollectiveError as CollectiveError
from dovetail.langs.torch.process_groups import Traffic as Traffic
from dovetail.langs.torch.process_groups import traffic as traffic

__all__ = ["CollectiveError", "Plan", "Traffic", "Way", "data_parallel", "fully_sharded", "plan", "tensor_parallel", "traffic"]
