"""Programs that need values of tensors: a graph of straight-line segments, joined by decisions."""
