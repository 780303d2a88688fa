"""Writing the loop nests of a region as IR, and verifying the plan that they follow."""
