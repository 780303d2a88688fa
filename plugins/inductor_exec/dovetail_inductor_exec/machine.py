"""Whether this machine can compile: True, or a sentence that says what is missing and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from dovetail.extend.advanced import torch_internals

COMPILERS = ("g++", "clang++", "c++")
REMEDY = "install one (Debian: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), or name it in CXX"


def available() -> bool | str:
    """Return whether there is Inductor, and a C++ compiler for it; nothing is compiled to find out."""
    if (problem := torch_internals.inductor_problem()) is not None:
        return f"{problem}; install a torch from 2.10 on whose Inductor imports"
    return True if compiler() is not None else f"Inductor compiles C++ when a program is compiled, and there is no compiler; {REMEDY}"


def compiler() -> str | None:
    """Return the C++ compiler that Inductor would call: what CXX names, else the first that is installed."""
    named = os.environ.get("CXX", "").strip()
    words = named.split()
    return shutil.which(words[-1]) if words else next((path for name in COMPILERS if (path := shutil.which(name))), None)


def compiles() -> bool | str:
    """Return whether the compiler makes a library of a line of C++."""
    path = compiler()
    if path is None:
        return f"there is no C++ compiler; {REMEDY}"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "one.cpp")
        source.write_text('#include <cmath>\nextern "C" float one(float x) { return std::exp(x); }\n')
        done = subprocess.run([path, "-shared", "-fPIC", str(source), "-o", str(Path(folder, "one.so"))], capture_output=True, text=True, timeout=60)
    return True if done.returncode == 0 else f"{path} fails: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}"
