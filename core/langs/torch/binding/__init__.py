"""How PyTorch's functions, methods and tensors are bound to the operations of this language."""
