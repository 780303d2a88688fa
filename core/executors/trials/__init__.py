"""Running executors beside the reference on the user's own data, and comparing the results."""
