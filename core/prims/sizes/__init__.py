"""Symbolic sizes: integer polynomials over the sizes that a program learns only when it runs."""

from dovetail.prims.sizes.facts import Facts as Facts
from dovetail.prims.sizes.facts import Form as Form
from dovetail.prims.sizes.facts import Pin as Pin
from dovetail.prims.sizes.facts import RelationsClosed as RelationsClosed
from dovetail.prims.sizes.magnitude import magnitude as magnitude
from dovetail.prims.sizes.relations import Relations as Relations
from dovetail.prims.sizes.size import Atom as Atom
from dovetail.prims.sizes.size import Real as Real
from dovetail.prims.sizes.size import Size as Size
from dovetail.prims.sizes.size import float_of as float_of
from dovetail.prims.sizes.size import hint_of as hint_of
from dovetail.prims.sizes.size import index_of as index_of
from dovetail.prims.sizes.size import is_symbol as is_symbol
from dovetail.prims.sizes.size import is_symbolic as is_symbolic
from dovetail.prims.sizes.size import relations_in as relations_in
from dovetail.prims.sizes.size import same_shape as same_shape
from dovetail.prims.sizes.size import symbols_in as symbols_in
