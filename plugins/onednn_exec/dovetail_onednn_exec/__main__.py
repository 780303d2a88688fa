"""`python -m dovetail_onednn_exec` prints the measurements of this machine; `forget` deletes them first."""

from __future__ import annotations

import sys

from dovetail_onednn_exec.choices import CHOICES, table

if __name__ == "__main__":
    folder = "".join(sys.argv[2:3])
    if sys.argv[1:2] == ["forget"]:
        CHOICES.forget(folder)
    print(table(folder))
