"""Offering each operation to the executors, and building regions for those that fuse."""
