"""A region before loops are written: its graph, positions, expressions, and which loop nest computes what."""
