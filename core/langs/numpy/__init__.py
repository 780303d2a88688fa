"""The NumPy language: the same tensors under NumPy's names and rules, for `dovetail.make_trace(fn, language="numpy")`.

One function, two meanings:

>>> def fn(x): return x.size, x.T.shape, x.sum(axis=0)

In the torch language `x.size` is a method and `x.T` of a 3-d tensor is refused; in NumPy's, `x.size` is the number of elements, and `x.T`
reverses all dimensions.  Promotion is NumPy's (NEP 50): float32 with a Python float stays float32 in both, but float32 with int32 is float64,
an integer array divided gives float64, and the variance divides by n.  Arrays in the arguments are inputs; those met on the way are constants.
What differs from NumPy: a single element is a 0-d array, integers divided by zero raise, and a slice with a negative step is a copy.
"""

from dovetail.langs.numpy import arrays as arrays
from dovetail.langs.numpy import reductions as reductions
from dovetail.langs.numpy import ufuncs as ufuncs
from dovetail.langs.numpy.proxy import NumpyProxy as NumpyProxy
from dovetail.langs.numpy.symbol import FUNCTIONS as FUNCTIONS
from dovetail.langs.numpy.symbol import LANGUAGE as LANGUAGE
from dovetail.langs.numpy.symbol import NumpySymbol as NumpySymbol
from dovetail.langs.numpy.symbol import foreign as foreign

LANGUAGE.foreign = foreign
