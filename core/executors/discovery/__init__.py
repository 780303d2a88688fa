"""Finding installed plugins, loading them, and reporting their errors."""
