"""The first fake tensors of a process may be those of a thread that ends: torch 2.10 for CUDA crashed in the next, without a GPU."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import torch
import dovetail

@dovetail.opaque
def doubled(x):
    return x * 2

def run():
    x = torch.eye(3)
    torch.testing.assert_close(dovetail.jit(lambda x: doubled(x) + 1)(x), x * 2 + 1)

for _ in range(3):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
others = [threading.Thread(target=lambda: [torch.ones(100).sum() for _ in range(100)]) for _ in range(20)]
for thread in others:
    thread.start()
for thread in others:
    thread.join()
run()
print("done")
"""


def test_a_process_that_compiles_in_threads_first():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr
