"""What an executor is: its classes, what it declares, and the hooks by which a plugin registers it."""
