"""How people spell programs: each language makes its operations from prims."""
