"""Whether this machine can compile: True, or a sentence that says what is missing and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from dovetail.extend.advanced import torch_internals

COMPILERS = ("g++", "clang++", "c++")
REMEDY = "install one (Debian: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), or name it in CXX"
SOURCE = """\
#include <cmath>
#include <Python.h>
extern "C" float one(float x) { return std::exp(x); }
"""


def available() -> bool | str:
    """Return whether there is Inductor, a C++ compiler and Python's headers for it; nothing is compiled to find out."""
    if (problem := torch_internals.inductor_problem()) is not None:
        return f"{problem}; install a torch from 2.10 on whose Inductor imports"
    if compiler() is None:
        return f"Inductor compiles C++ when a program is compiled, and there is no compiler; {REMEDY}"
    return (
        True
        if Path(headers(), "Python.h").exists()
        else (
            f"Inductor compiles C++ that includes Python.h, and {headers()} has none; install Python's headers (Debian: apt install python3-dev; "
            "Fedora: dnf install python3-devel)"
        )
    )


def headers() -> str:
    """Return the folder of Python's headers."""
    return sysconfig.get_path("include")


def compiler() -> str | None:
    """Return the C++ compiler that Inductor would call: what CXX names, else the first that is installed."""
    named = os.environ.get("CXX", "").strip()
    words = named.split()
    return shutil.which(words[-1]) if words else next((path for name in COMPILERS if (path := shutil.which(name))), None)


def compiles() -> bool | str:
    """Return whether the compiler makes a library of a line of C++ and Python's headers."""
    path = compiler()
    if path is None:
        return f"there is no C++ compiler; {REMEDY}"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "one.cpp")
        source.write_text(SOURCE)
        command = [path, "-shared", "-fPIC", f"-I{headers()}", str(source), "-o", str(Path(folder, "one.so"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        return True
    lines = done.stderr.strip().splitlines()
    return f"{path} fails: {next((line for line in lines if 'error' in line), lines[-1]) if lines else done.returncode}"
