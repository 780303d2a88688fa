"""Random programs at the sizes users have, compared with eager PyTorch in float64: `dovetail fuzz NAME`."""
