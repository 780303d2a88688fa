"""Kernels as Python functions, and whole calls whose guards are checked in C."""
