"""What every executor is held to: one OpInfo per operation, with samples, error samples and a reference."""
