"""How programs get in, and what is guarded of what they read."""

from dovetail.frontend import eager as eager
from dovetail.frontend.tracing import acquire as acquire
from dovetail.frontend.tracing import trace as trace
