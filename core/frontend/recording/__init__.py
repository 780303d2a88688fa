"""What an interpreted run does where the function meets torch: tensors are proxies, and calls on them become lines of the program."""
