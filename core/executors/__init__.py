"""The contract between the core and what runs its programs."""

from dovetail.executors.discovery import Plugin as Plugin
from dovetail.executors.discovery import executors as executors
from dovetail.executors.discovery import get_executor as get_executor
from dovetail.executors.discovery import implementations_of as implementations_of
from dovetail.executors.discovery import plugins as plugins
from dovetail.executors.dispatch import dispatch as dispatch
from dovetail.executors.executor import Executor as Executor
from dovetail.executors.executor import FusionExecutor as FusionExecutor
from dovetail.executors.executor import Implementation as Implementation
from dovetail.executors.executor import OperatorExecutor as OperatorExecutor
from dovetail.executors.executor import Verdict as Verdict
from dovetail.executors.explain import refusals as refusals
from dovetail.executors.grads import grad_rules as grad_rules
from dovetail.executors.grads import register_grad as register_grad
from dovetail.executors.hookspecs import hookimpl as hookimpl
from dovetail.executors.priority import add_operator_executor as add_operator_executor
from dovetail.executors.priority import resolve_executors as resolve_executors
