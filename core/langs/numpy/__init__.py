"""The NumPy language: arrays under NumPy's names and rules, for `dovetail.jit` of functions of arrays and `make_trace(fn, language="numpy")`.

One function, two meanings:

>>> def fn(x): return x.size, x.T.shape, x.sum(axis=0)

In the torch language `x.size` is a method and `x.T` of a 3-d tensor is refused; in NumPy's, `x.size` is the number of elements, and `x.T`
reverses all dimensions.  Promotion is NumPy's (NEP 50): float32 with a Python float stays float32 in both, but float32 with int32 is float64,
an integer array divided gives float64, and the variance divides by n.  A single element is a scalar, which no operation writes into.
What differs from NumPy: nothing warns, as of a division by zero, and a slice with a negative step is a copy, refused where a write could tell.
"""

from dovetail.langs.numpy import arrays as arrays
from dovetail.langs.numpy import creation as creation
from dovetail.langs.numpy import indexing as indexing
from dovetail.langs.numpy import methods as methods
from dovetail.langs.numpy import reductions as reductions
from dovetail.langs.numpy import ufuncs as ufuncs
from dovetail.langs.numpy.creation import records as records
from dovetail.langs.numpy.proxy import NumpyProxy as NumpyProxy
from dovetail.langs.numpy.proxy import no_values as no_values
from dovetail.langs.numpy.symbol import FROM_NUMPY as FROM_NUMPY
from dovetail.langs.numpy.symbol import FUNCTIONS as FUNCTIONS
from dovetail.langs.numpy.symbol import LANGUAGE as LANGUAGE
from dovetail.langs.numpy.symbol import NumpySymbol as NumpySymbol
from dovetail.langs.numpy.symbol import foreign as foreign
from dovetail.langs.numpy.symbol import not_traced as not_traced
from dovetail.langs.numpy.symbol import numpy_dtype as numpy_dtype
from dovetail.langs.numpy.ufuncs import call_ufunc as call_ufunc

LANGUAGE.foreign = foreign
