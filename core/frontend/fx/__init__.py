"""Programs as torch.fx graphs, both ways: graphs of torch's become traces, and traces graphs of torch's."""

from dovetail.frontend.fx.incoming import from_fx as from_fx
from dovetail.frontend.fx.incoming import run_graph as run_graph
from dovetail.frontend.fx.incoming import user_line_of as user_line_of
from dovetail.frontend.fx.outgoing import to_fx as to_fx
