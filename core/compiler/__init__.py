"""What compiles a call, runs it, and keeps what was compiled; `pipeline.py` is where to start reading."""
