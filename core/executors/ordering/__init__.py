"""The order in which executors are offered operations."""
