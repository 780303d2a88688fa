"""Functions of NumPy arrays: arrays become tensors that share their memory, and results become arrays again."""
