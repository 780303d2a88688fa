"""Functions from a trace to a trace."""
