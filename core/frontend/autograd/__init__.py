"""Gradients at the boundary: the bridge to eager autograd, gradients taken inside, and autograd.Function."""
