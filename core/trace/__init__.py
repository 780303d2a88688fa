"""Programs of operations, and the passes over them, one a file."""

from dovetail.trace.check import check as check
from dovetail.trace.cse import cse as cse
from dovetail.trace.dce import dce as dce
from dovetail.trace.functionalize import functionalize as functionalize
from dovetail.trace.ir import BoundSymbol as BoundSymbol
from dovetail.trace.ir import Environment as Environment
from dovetail.trace.ir import Trace as Trace
from dovetail.trace.ir import brief as brief
from dovetail.trace.ir import recording as recording
from dovetail.trace.ir import rename as rename
from dovetail.trace.printing import compiled as compiled
from dovetail.trace.printing import literal as literal
from dovetail.trace.proxies import NumberProxy as NumberProxy
from dovetail.trace.proxies import Proxy as Proxy
from dovetail.trace.proxies import TensorProxy as TensorProxy
from dovetail.trace.proxies import is_proxy as is_proxy
from dovetail.trace.proxies import leaves as leaves
from dovetail.trace.proxies import proxies as proxies
from dovetail.trace.proxies import swap as swap
from dovetail.trace.release import release as release
from dovetail.trace.watch import watch as watch
from dovetail.trace.where import user_line as user_line
