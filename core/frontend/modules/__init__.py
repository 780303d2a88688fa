"""Compiled modules, and modules that torch.distributed wraps."""
