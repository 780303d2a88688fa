"""The core language: prims with broadcasting and type promotion.  Its functions are plain helpers and leave no line of their own."""

from dovetail.langs.core.broadcasting import as_float as as_float
from dovetail.langs.core.broadcasting import broadcast_shapes as broadcast_shapes
from dovetail.langs.core.broadcasting import canonical_dim as canonical_dim
from dovetail.langs.core.broadcasting import canonical_dims as canonical_dims
from dovetail.langs.core.broadcasting import convert as convert
from dovetail.langs.core.broadcasting import expand as expand
from dovetail.langs.core.broadcasting import fit as fit
from dovetail.langs.core.broadcasting import keep_dims as keep_dims
from dovetail.langs.core.broadcasting import stored as stored
from dovetail.langs.core.broadcasting import unsqueezed as unsqueezed
from dovetail.langs.core.elementwise import *  # noqa: F403
from dovetail.langs.core.indexing import clone as clone
from dovetail.langs.core.indexing import copied as copied
from dovetail.langs.core.indexing import from_front as from_front
from dovetail.langs.core.indexing import in_layout as in_layout
from dovetail.langs.core.indexing import sliced as sliced
from dovetail.langs.core.indexing import window as window
from dovetail.langs.core.promotion import default_float as default_float
from dovetail.langs.core.promotion import inexact_of as inexact_of
from dovetail.langs.core.promotion import number_dtype as number_dtype
from dovetail.langs.core.promotion import promote as promote
from dovetail.langs.core.promotion import wide as wide
