"""What is computed for one element: dtypes in memory and in registers, elementwise operations, their costs."""
