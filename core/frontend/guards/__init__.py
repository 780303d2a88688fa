"""What decides whether a compiled program fits a call: guards, and the prologue that checks them."""
