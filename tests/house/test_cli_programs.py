"""The commands that run a program: `dovetail explain FILE:FUNCTION` and `dovetail trace FILE:FUNCTION`."""

from __future__ import annotations

import importlib
import json

import pytest
import torch
from click.testing import CliRunner

import dovetail
from dovetail import options
from dovetail.cli import main
from dovetail.extend import OperatorExecutor

commands = importlib.import_module("dovetail.cli.explain")  # the command of that name hides the module

FILE = """
import sys
import torch

def scores(x, y):
    return torch.softmax(x * 2 + y, -1).sum()

def scaled(w):
    return (w * 2).sum()

def raises(x, y):
    raise LookupError("no scores today")

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x @ y.t()

model = Model()
rate = 0.1

def example_inputs():
    return torch.ones(4, 8), torch.ones(4, 8)

def by_name():
    return {"y": torch.ones(3), "x": torch.zeros(3)}

def alone():
    return torch.ones(3, requires_grad=True)

def wrong():
    return torch.ones(3), torch.ones(4)

def sized(n):
    return torch.ones(n)
"""


@pytest.fixture
def say(tmp_path, monkeypatch):
    """say("explain", "program.py:scores") is what the command prints."""
    (tmp_path / "program.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("DOVETAIL_EXECUTORS", "torch")
    monkeypatch.setattr(options.PROCESS, "command_line", ())

    def run(*words, exit_code=0):
        done = CliRunner().invoke(main, list(words))
        assert done.exit_code == exit_code, done.output
        return done.output

    return run


def test_explain_file_function(say):
    text = say("explain", "program.py:scores")
    assert text.startswith("computation: 4 operations; torch runs 4\n") and "= torch.softmax: torch  (program.py:6)" in text


def test_explain_with_other_arguments_and_other_forms(say, tmp_path):
    assert '"f32[3]' in say("explain", "program.py:scores", "--args", "by_name", "--json").replace("cpu ", "").replace("\\", "")
    assert "wrote page.html" in say("explain", "program.py:scores", "--html", "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert "running 12 calls" in say("explain", "program.py:scores", "--profile")
    assert "= torch.matmul: torch  (program.py:16)" in say("explain", "program.py:model")


MISTAKES = {  # what is asked, and the message
    "no function": (["program.py:score"], 2, "program.py has no function score; did you mean scores?"),
    "no such arguments": (
        ["program.py:scores", "--args", "x"],
        2,
        "no function x; use --args to name the function that returns the arguments; choose from alone, by_name,",
    ),
    "no name": (["program.py"], 2, "expected FILE:FUNCTION, got 'program.py'"),
    "no file": (["nowhere.py:scores"], 2, "no such file: nowhere.py"),
    "no executor": (
        ["program.py:scores", "--executors", "torhc"],
        1,
        "executors in --executors (command line): no executor is called 'torhc'",
    ),
    "what eager refuses": (["program.py:scores", "--args", "wrong"], 1, "torch.add: expected shapes that broadcast"),
    "too few arguments": (
        ["program.py:scores", "--args", "alone"],
        2,
        "scores does not accept the arguments from alone in program.py, (cpu f32[3]): missing a required argument: 'y'",
    ),
    "arguments that want arguments": (["program.py:scores", "--args", "sized"], 2, "sized in program.py takes arguments"),
    "a class": (["program.py:Model"], 2, "Model in program.py is a class; name a function, or an object such as `model = Model(...)`"),
    "a number": (["program.py:rate"], 2, "rate in program.py is of type float, not a function"),
    "a page nowhere": (["program.py:scores", "--html", "no/page.html"], 1, "no/page.html cannot be written: No such file or directory"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_message_that_says_what_is_wrong(say, mistake):
    words, code, message = MISTAKES[mistake]
    printed = say("explain", *words, exit_code=code)

    assert message in printed and "Traceback" not in printed


def test_an_error_of_the_function_is_shown_with_its_own_lines_alone(say):
    printed = say("explain", "program.py:raises", exit_code=1)

    assert printed == (
        'Error: raises failed:\n  File "program.py", line 12, in raises\n    raise LookupError("no scores today")\nLookupError: no scores today\n'
    )


def test_an_error_in_a_plugin_is_shown_with_its_lines_and_whose_it_is(say, tmp_path):
    lines = (
        "import dovetail, torch",
        "ex = dovetail.extend.OperatorExecutor('shaky', version='3.1')",
        "def kernel(input):",
        "    raise OSError('gone')",
    )
    more = ("ex.implements(torch.sin, kernel)", "f = dovetail.jit(torch.sin, executors=[ex])", "def example_inputs():", "    return torch.ones(3)")
    (tmp_path / "plugged.py").write_text("\n".join([*lines, *more]))
    printed = say("explain", "plugged.py:f", exit_code=1)

    assert 'File "plugged.py", line 4, in kernel' in printed and "OSError: gone\nraised by shaky 3.1 (defined in this process" in printed
    assert "to go on without it: " in printed and "core/" not in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module\n", 'File "late.py", line 1, in <module>\n    import no_such_module\nModuleNotFoundError: No module named'),
        ("def f(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "late.py cannot be run: it called sys.exit(3); move the code of the script below `if __name__ == ...`"),
    ],
)
def test_a_file_that_cannot_be_run(say, tmp_path, text, message):
    (tmp_path / "late.py").write_text(text)
    printed = say("explain", "late.py:f", exit_code=1)

    assert message in printed and "runpy" not in printed


def test_executors_on_the_command_line_count_for_functions_that_name_none(say, tmp_path):
    text = "import dovetail, torch\nf = dovetail.jit(torch.sin)\ng = dovetail.jit(torch.sin, executors=['torch'])\n"
    (tmp_path / "compiled.py").write_text(text + "def example_inputs():\n    return torch.ones(2)\n")

    assert "torch runs 1" in say("explain", "compiled.py:f", "--executors", "torch")
    assert "g is compiled in compiled.py with its own executors" in say("explain", "compiled.py:g", "--executors", "torch", exit_code=2)


class Terminal(commands.Console):
    """What rich takes for a terminal, 80 columns wide."""

    def __init__(self, **more):
        super().__init__(force_terminal=True, color_system="standard", width=80, **more)


def picky(input, dim=None, dtype=None):
    return "expected a full moon, a calm sea, and an argument whose every element was written down by hand"


@pytest.fixture
def explained():
    """The explanation of a function of two operations, one of which `mine` runs and one of which it refuses at length."""
    ex = OperatorExecutor("mine")
    ex.implements(torch.sin, torch.sin)
    ex.implements(torch.nn.functional.softmax, torch.nn.functional.softmax, checker=picky)
    jitted = dovetail.jit(lambda x: torch.nn.functional.softmax(torch.sin(x), -1), executors=[ex])
    jitted(torch.ones(4))
    return dovetail.explain(jitted)


def test_a_terminal_gets_colours_and_lines_that_fit(monkeypatch, capsys, explained):
    monkeypatch.setattr(commands, "Console", Terminal)
    commands.show(explained)
    shown = capsys.readouterr().out
    plain = commands.Text.from_ansi(shown).plain

    assert "\x1b[36mmine\x1b[0m" in shown and max(map(len, plain.splitlines())) <= 80
    assert " ".join(plain.split()) == " ".join(str(explained).split())  # the same words


def test_a_pipe_gets_plain_text_and_whole_sentences(capsys, explained):
    commands.show(explained)
    shown = capsys.readouterr().out

    assert shown == f"{explained}\n" and "\x1b" not in shown
    assert "    mine refuses: expected a full moon, a calm sea, and an argument whose every element was written down by hand\n" in shown


def test_trace_file_function(say):
    text = say("trace", "program.py:scores")
    assert text.startswith("# made by release in ") and "def computation(t0, t1):" in text
    assert say("trace", "program.py:scores", "--pass", "cse", "--depth", "0", "--where").count("program.py:6") == 4
    assert say("trace", "program.py:scores", "--pass", "all").count("def computation") == 7
    assert "def prologue(args, kwargs):" in say("trace", "program.py:scores", "--of", "prologue")
    assert "def backward(" in say("trace", "program.py:scaled", "--of", "backward", "--args", "alone")


def test_trace_says_what_is_wrong(say):
    passes = "tracing, functionalize, dce, cse, dispatch, schedule, release"
    assert f"unknown pass 'css'; the passes of the computation are {passes}" in say("trace", "program.py:scores", "--pass", "css", exit_code=1)
    assert "no backward: no result requires grad" in say("trace", "program.py:scores", "--of", "backward", exit_code=1)
    assert "no epilogue: the function neither writes to an argument" in say("trace", "program.py:scores", "--of", "epilogue", exit_code=1)
    assert "no such file: nowhere.py" in say("trace", "nowhere.py:scores", exit_code=2)


def test_no_help_is_cut_off(say):
    commands_of_ours = [name for name, command in main.commands.items() if command.short_help]
    assert set(commands_of_ours) == set(main.commands)
    for line in say("--help").splitlines():
        name = line.split()[0] if line.split() else ""
        assert not (name in main.commands and line.endswith("...")), line


def test_the_json_of_the_command_is_json(say):
    assert json.loads(say("explain", "program.py:scores", "--json"))["function"] == "scores"
