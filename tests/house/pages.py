"""Runs the examples of a page of documentation and compares what they print with what it shows.

python tests/house/pages.py docs/walkthrough.md
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from pathlib import Path

import torch

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(page: Path) -> str:
    """The first difference, as a sentence; empty where there is none.  `...` in what is shown stands for anything, blank lines for nothing."""
    torch.manual_seed(0)
    names: dict = {"__name__": str(page)}
    printed = ""
    whole = page.read_text()
    for found in BLOCK.finditer(whole):
        kind, text = found.groups()
        if kind == "text":
            if not doctest.OutputChecker().check_output(without_blanks(text), without_blanks(printed), FLAGS):
                return f"{page} shows\n\n{text}\nand its example prints\n\n{printed}"
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * whole.count("\n", 0, found.start(2)) + text, str(page), "exec"), names)
        printed = out.getvalue()
    return ""


def without_blanks(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip())


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])) or None)
