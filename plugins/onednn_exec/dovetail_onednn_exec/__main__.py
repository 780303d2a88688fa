"""`python -m dovetail_onednn_exec` shows what was measured on this machine; with `forget`, everything is measured again."""

from __future__ import annotations

import sys

from dovetail_onednn_exec.choices import CHOICES, table

if __name__ == "__main__":
    folder = "".join(sys.argv[2:3])
    if sys.argv[1:2] == ["forget"]:
        CHOICES.forget(folder)
    print(table(folder))
