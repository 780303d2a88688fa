"""Tensor subclasses that wrap other tensors: their `__torch_dispatch__` is traced, with what they hold as inputs of the program."""
