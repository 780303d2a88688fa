"""Commands of `dovetail` that other distributions bring: found without being imported, and none that is broken harms another."""

from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from dovetail.cli import main
from dovetail.cli.installed import KNOWN

HELLO = """
import click

@click.command("hello")
@click.option("--name", default="you")
def hello(name):
    "Greet somebody."
    click.echo(f"hello {name}")
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """site("greetings", HELLO) installs a distribution with the command `hello` into a folder on sys.path, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def install(distribution: str, source: str, points: str = "hello = {module}:hello") -> str:
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dovetail.commands]\n{points.format(module=module)}\n")
        return module

    install.folder = tmp_path
    yield install
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "") or ""):
            del sys.modules[name]


def say(*words: str) -> click.testing.Result:
    return CliRunner().invoke(main, list(words))


def help_text() -> str:
    """The help on one line: how it is broken into lines does not matter."""
    return " ".join(say("--help").output.split())


def test_an_installed_command_is_in_the_help_and_can_be_called(site):
    site("greetings", HELLO)

    assert " hello Greet somebody. " in help_text()
    assert say("hello", "--name", "Ada").output == "hello Ada\n"


def test_a_command_is_imported_when_it_is_called_and_not_for_another(site):
    module = site("greetings", HELLO)

    assert say("config").exit_code == 0 and module not in sys.modules
    assert say("hello").exit_code == 0 and module in sys.modules


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise SystemExit(3)", "its module called sys.exit(3)"),
        ("class Odd(BaseException): pass\nraise Odd()", "Odd"),
        ("def hello(): pass", "it is of type function, not a click command"),
        ("", "AttributeError: module 'halfway' has no attribute 'hello'"),
    ],
)
def test_a_broken_command_is_a_row_in_the_help_and_an_error_that_names_its_distribution(site, source, message):
    site("halfway", source)
    site("greetings", HELLO, "good = {module}:hello")
    called = say("hello", "--whatever", "more")

    assert f" hello cannot be loaded: {message}" in help_text()
    assert called.exit_code == 1 and message in called.output and "halfway 1.0 (hello = halfway:hello)" in called.output
    assert say("good").output == "hello you\n"


def test_help_of_a_broken_command_is_its_error(site):
    site("halfway", "import nowhere_at_all")
    called = say("hello", "--help")

    assert called.exit_code == 1 and "pip install --force-reinstall halfway" in called.output


def test_the_traceback_of_a_broken_command_is_there_when_asked_for(site, monkeypatch):
    site("halfway", "1 / 0")
    assert "Traceback" not in say("hello").output and "DOVETAIL_DEBUG=1 prints the traceback" in say("hello").output

    monkeypatch.setenv("DOVETAIL_DEBUG", "1")
    assert "Traceback" in say("hello").output and "ZeroDivisionError" in say("hello").output


def test_of_two_commands_of_one_name_none_wins_silently(site):
    site("greetings", HELLO)
    site("salutations", HELLO)
    called = say("hello")

    assert called.exit_code == 1
    assert "two distributions provide it, greetings 1.0 (hello = greetings:hello) and salutations 1.0 (hello = salutations:hello)" in called.output
    assert "uninstall one of them" in called.output


def test_a_command_of_dovetail_s_own_name_is_left_out_and_the_help_says_so(site):
    site("greetings", HELLO, "config = {module}:hello")

    assert "executors = " in say("config").output
    assert "of greetings 1.0 (config = greetings:hello) is left out" in help_text()


def test_unreadable_entry_points_harm_nobody(site):
    site("greetings", HELLO)
    site("damaged", "")
    (site.folder / "damaged-1.0.dist-info" / "entry_points.txt").write_bytes(b"[dovetail.commands]\n\xff\xfe = \x00")

    assert say("hello").output == "hello you\n"


def test_a_known_command_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(KNOWN, "dream", "dovetail-dreams")
    called = say("dream", "torch", "--level", "core")

    assert called.exit_code == 1
    assert "the command dream comes with dovetail-dreams, which is not installed; pip install dovetail-dreams" in called.output
    assert "comes with dovetail-dreams, which is not installed" in help_text()


def test_conformance_is_known():
    assert KNOWN["conformance"] == KNOWN["fuzz"] == "dovetail-conformance"


def test_an_unknown_command_is_a_mistake_in_usage():
    called = say("conformanc")

    assert called.exit_code == 2 and "No such command 'conformanc'" in called.output
