"""Compile a call, run it, and cache what was compiled; read `pipeline.py` first."""
