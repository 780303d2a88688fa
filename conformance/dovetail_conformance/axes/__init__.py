"""The axes along which a sample of an operation is varied, and the choice of variants that covers all pairs of their levels."""
