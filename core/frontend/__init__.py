"""How programs get in, and what is guarded of what they read."""

from dovetail.frontend import eager as eager
from dovetail.frontend.fx import from_fx as from_fx
from dovetail.frontend.fx import to_fx as to_fx
from dovetail.frontend.interpreter import interpret as interpret
from dovetail.frontend.native import acquire as acquire
from dovetail.frontend.native import make_trace as make_trace
