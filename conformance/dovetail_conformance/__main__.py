"""`python -m dovetail_conformance NAME`: the same as `dovetail conformance NAME`."""

from __future__ import annotations

from dovetail_conformance.cli import conformance

if __name__ == "__main__":
    conformance(prog_name="dovetail conformance")
