"""The binding of PyTorch's functions, methods and tensors to the operations of this language."""
