"""Writing LLVM IR as text, and compiling it for the machine at hand."""
