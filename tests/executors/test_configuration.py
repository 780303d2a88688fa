"""Rows 19, 21, 22 and 23: layers with provenance, strict words, unknown names, disabling before import, and the command that explains it."""

from __future__ import annotations

import json
import os
import re

import pytest
import torch
from click.testing import CliRunner

import dovetail
from dovetail import options
from dovetail.cli import main
from dovetail.errors import DovetailError, ExecutorError
from dovetail.executors import get_executor, resolve_executors
from dovetail.executors.discovery import configuration
from dovetail.executors.discovery.registry import REGISTRY

MARKING = """
import pathlib, torch
pathlib.Path(__file__).with_suffix(".imported").touch()
from dovetail.extend import OperatorExecutor, hookimpl

@hookimpl
def dovetail_executors():
    ex = OperatorExecutor({name!r}, version="1.0")
    ex.implements(torch.sin, lambda input: torch.sin(input))
    return [ex]
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder far from any configuration, with the user's own file in it."""
    monkeypatch.setattr(configuration, "_user_file", lambda: str(tmp_path / "home" / "dovetail.toml"))
    for name in [name for name in os.environ if name.startswith("DOVETAIL_")]:
        monkeypatch.delenv(name)
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "project" / "deep")
    command_line = options.PROCESS.command_line
    yield tmp_path
    options.PROCESS.command_line = command_line
    monkeypatch.undo()
    configuration.refresh()


@pytest.fixture
def fresh(tmp_path, new_process):
    """fresh(program, *words) runs Python, or the command, in a new process with two plugins in development; and says which it imported."""
    for name in ("mine", "slow"):
        (tmp_path / f"{name}.py").write_text(MARKING.format(name=name))

    def run(*words, **variables):
        for name in ("mine", "slow"):
            (tmp_path / f"{name}.imported").unlink(missing_ok=True)
        outer = {name: words for name, words in os.environ.items() if not name.startswith("DOVETAIL_")}
        plugins = os.pathsep.join(str(tmp_path / f"{name}.py") for name in ("mine", "slow"))
        env = outer | {"DOVETAIL_PLUGINS": plugins, "XDG_CONFIG_HOME": str(tmp_path), "COLUMNS": "80"} | variables
        done = new_process(["-c", *words] if len(words) == 1 and "\n" in words[0] else ["dovetail", *words], env=env)
        return done, {name for name in ("mine", "slow") if (tmp_path / f"{name}.imported").exists()}

    return run


def read(key):
    configuration.refresh()
    return options.BY_KEY[key].read()


def sources(key):
    configuration.refresh()
    return [str(setting.source) for setting in options.settings(options.BY_KEY[key])]


def test_row_19_each_layer_counts_more_than_the_ones_before(here, monkeypatch):
    assert read("debug") == 0
    (here / "home" / "dovetail.toml").write_text("debug = 1\n")
    assert read("debug") == 1
    (here / "project" / "pyproject.toml").write_text("[project]\nname = 'x'\n\n[tool.dovetail]\nstrict = false\ndebug = 2\n")
    assert read("debug") == 2
    (here / "project" / "dovetail.toml").write_text("debug = 3\n")
    assert read("debug") == 3
    monkeypatch.setenv("DOVETAIL_DEBUG", "4")
    assert read("debug") == 4
    with dovetail.use(debug=1):
        assert read("debug") == 1
        found = sources("debug")

    assert re.fullmatch(r".*test_configuration.py:\d+ \(with dovetail.use\(...\)\)", found[-1])
    assert found[:-1] == [
        f"{here / 'home' / 'dovetail.toml'}:1",
        f"{here / 'project' / 'pyproject.toml'}:6",
        f"{here / 'project' / 'dovetail.toml'}:1",
        "DOVETAIL_DEBUG (environment)",
    ]


def test_the_nearest_folder_that_says_something_counts_alone(here):
    (here / "project" / "pyproject.toml").write_text("[tool.dovetail]\ndebug = 2\nstrict = true\n")
    (here / "project" / "deep" / "pyproject.toml").write_text("[project]\nname = 'of-another-tool-than-dovetail'\n")
    assert (read("debug"), read("strict")) == (2, options.CAUSES)
    (here / "project" / "deep" / "pyproject.toml").write_text("[tool.dovetail]\ndebug = 1\n")

    assert (read("debug"), read("strict")) == (1, ())
    assert sources("debug") == ["pyproject.toml:2"]


def test_one_file_can_be_named_and_all_be_switched_off(here, monkeypatch):
    (here / "project" / "dovetail.toml").write_text("debug = 2\n")
    (here / "other.toml").write_text("debug = 1\n")
    monkeypatch.setenv("DOVETAIL_CONFIG", str(here / "other.toml"))
    assert read("debug") == 1
    monkeypatch.setenv("DOVETAIL_CONFIG", "off")
    assert read("debug") == 0
    monkeypatch.setenv("DOVETAIL_CONFIG", "nowhere.toml")
    with pytest.raises(ExecutorError, match=r"DOVETAIL_CONFIG names nowhere.toml, and no such file"):
        configuration.refresh()


def test_lines_are_found_in_every_spelling_of_toml(here):
    (here / "project" / "pyproject.toml").write_text(
        '[tool]\n# debug = 4\n[tool.dovetail]\noperations."torch.cos" = "torch"  # a comment\n"strict" = [\n  "version",\n]\n'
        '[tool.dovetail.operations]\n\n"torch.sin" = ["torch"]\n'.replace('operations."torch.cos" = "torch"', "frozen = false")
    )
    configuration.refresh()

    assert {(each.option.key, each.source.where.rpartition(":")[2]) for each in options.PROCESS.files} == {
        ("frozen", "4"),
        ("strict", "5"),
        ("operations", "10"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("debugg = 1", r"dovetail.toml:1 sets the unknown option 'debugg'; did you mean debug\?"),
        ("config = 'x'", "sets the unknown option 'config'"),
        ("frozen = 0", "invalid value 0 for frozen in .*dovetail.toml:1: expected 1, true, yes, on, or 0, false, no, off"),
        ("debug = true", "invalid value True for debug in .*:1: expected a number from 0 to 4"),
        ("disable = 3", "expected names, in a list or separated by commas"),
        ("strict = ['loaderror']", "expected true, false, or some of not-claimed, unavailable"),
        ("operations = ['torch']", "expected operations and their executors"),
        ("debug = ", "dovetail.toml cannot be read: .*line 1"),
    ],
)
def test_row_21_what_means_nothing_in_a_file_is_an_error_with_its_line(here, text, message):
    (here / "project" / "dovetail.toml").write_text(text + "\n")

    with pytest.raises(DovetailError, match=message):
        resolve_executors()


@pytest.mark.parametrize(
    ("words", "value"), [("1", True), ("true", True), ("ON", True), ("yes", True), ("0", False), ("False", False), ("off", False)]
)
def test_row_21_switches_are_what_they_say(monkeypatch, words, value):
    monkeypatch.setenv("DOVETAIL_CHECK", words)

    assert read("check") is value


@pytest.mark.parametrize("words", ["2", "enabled", "y", "-1", "tru", "none"])
def test_row_21_no_other_word_is_a_switch(monkeypatch, words):
    monkeypatch.setenv("DOVETAIL_FROZEN", words)

    with pytest.raises(DovetailError, match=f"invalid value '{words}' for DOVETAIL_FROZEN: expected 1, true, yes, on, or 0"):
        read("frozen")


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("DOVETAIL_EXECUTERS", "torch", r"the environment sets the unknown option DOVETAIL_EXECUTERS; did you mean DOVETAIL_EXECUTORS\b"),
        ("DOVETAIL_EXECUTORS", "+torhc", r"executors in DOVETAIL_EXECUTORS \(environment\): no executor is called 'torhc'; did you mean torch\?"),
        ("DOVETAIL_DISABLE", "torhc", r"disable in DOVETAIL_DISABLE \(environment\) names 'torhc', and no plugin is called so; did you mean torch\?"),
        ("DOVETAIL_ALLOW", "troch", "allow in DOVETAIL_ALLOW"),
        ("DOVETAIL_REQUIRE", "trch", "require in DOVETAIL_REQUIRE"),
        ("DOVETAIL_OPTIONS", "trch.x=1", "options in DOVETAIL_OPTIONS .* no executor is called trch"),
        ("DOVETAIL_OPTIONS", "torch.tile=1", "options in DOVETAIL_OPTIONS .* sets torch.tile, and torch has no such option"),
        ("DOVETAIL_OPTIONS", "torch", "invalid value 'torch' for DOVETAIL_OPTIONS"),
        ("DOVETAIL_OPERATIONS", "torch.sin", "invalid value 'torch.sin' for DOVETAIL_OPERATIONS: expected operations and their executors"),
        ("DOVETAIL_OPERATIONS", "torch.sinn=torch", r"names the unknown operation 'torch.sinn'; did you mean torch\.sin"),
        ("DOVETAIL_DISABLE", "-torch", r"has '-torch', but no lower layer has 'torch'"),
    ],
)
def test_row_21_unknown_names_are_errors_in_the_environment(monkeypatch, name, words, message):
    monkeypatch.setenv(name, words)

    with pytest.raises(DovetailError, match=message):
        resolve_executors()


def test_an_executor_is_there_again_once_the_configuration_lets_it_in(monkeypatch):
    monkeypatch.setenv("DOVETAIL_ALLOW", "llvm")
    configuration.refresh()
    REGISTRY.refresh()
    with pytest.raises(DovetailError, match=r"executor torch cannot be used: .* allows only llvm"):
        get_executor("torch")

    monkeypatch.delenv("DOVETAIL_ALLOW")
    assert get_executor("torch").name == "torch"


def test_row_21_and_in_calls():
    with pytest.raises(DovetailError, match=r"configuration.py:\d+ .* sets the unknown option 'operation'; did you mean operations or options"):
        dovetail.use(operation={})
    with pytest.raises(DovetailError, match=r"sets 'allow', which holds for a whole process; set it in a file, or as DOVETAIL_ALLOW"):
        dovetail.use(allow=["torch"])
    with pytest.raises(ExecutorError, match="it expects executors, their names, and edits"):
        dovetail.jit(torch.sin, executors=[3])


def test_the_environment_spells_what_a_file_does(monkeypatch):
    monkeypatch.setenv("DOVETAIL_EXECUTORS", "torch, apart?")
    monkeypatch.setenv("DOVETAIL_OPERATIONS", "torch.sin = torch; prims.* = apart?, torch")
    made = resolve_executors()

    assert [ex.name for ex in made] == ["torch"]
    assert [ex.name for ex in made.for_symbol(dovetail.prims.sin)] == ["torch"]
    assert [override.pattern for override in made._overrides] == ["prims.*", "torch.sin"]


def test_a_change_of_a_file_or_variable_compiles_again(here, monkeypatch):
    fn, x = dovetail.jit(lambda x: torch.sin(x), dynamic=False), torch.ones(3)
    fn(x)
    (here / "project" / "dovetail.toml").write_text('strict = ["version"]\n')
    fn(torch.ones(4))  # something is compiled, so files are looked at
    fn(x)

    strict = 'strict is ["version"]'
    assert dovetail.cache_misses(fn)[1:] == [strict, f'args[0] is no longer a tensor "cpu f32[4]"; {strict}']


# Row 22: disabling.

ORDER = """
from dovetail.executors import get_executor, resolve_executors
print(*[ex.name for ex in resolve_executors() if ex.name in ("mine", "slow", "torch")])
"""


@pytest.mark.slow  # one process for each layer
def test_row_22_a_disabled_plugin_is_not_imported_from_every_layer(fresh, here):
    done, imported = fresh(ORDER)
    assert (done.stdout, imported) == ("mine slow torch\n", {"mine", "slow"})
    done, imported = fresh(ORDER, DOVETAIL_DISABLE="slow")
    assert (done.stdout, imported) == ("mine torch\n", {"mine"})
    done, imported = fresh("--disable", "slow", "config")
    order = done.stdout.splitlines()[0]
    assert imported == {"mine"} and '"mine"' in order and '"slow"' not in order
    (here / "project" / "dovetail.toml").write_text('disable = ["slow"]\n')
    done, imported = fresh(ORDER)
    assert (done.stdout, imported) == ("mine torch\n", {"mine"})
    done, imported = fresh(ORDER, DOVETAIL_DISABLE="-slow, mine")
    assert (done.stdout, imported) == ("slow torch\n", {"slow"})


def test_row_23_in_allow_list_mode_only_what_is_listed_is_imported(fresh):
    done, imported = fresh(ORDER, DOVETAIL_ALLOW="torch, mine")

    assert (done.stdout, imported) == ("mine torch\n", {"mine"})


def test_row_22_disabling_what_configuration_asks_for_names_both_lines(fresh, here):
    (here / "project" / "dovetail.toml").write_text('# order\nexecutors = ["slow", "..."]\n')
    done, imported = fresh("config", DOVETAIL_DISABLE="slow")
    message = " ".join(done.stderr.split())

    assert done.returncode == 1 and imported == {"mine"}
    assert (
        f"executors in {here / 'project' / 'dovetail.toml'}:2 asks for slow (slow), and disable in DOVETAIL_DISABLE (environment) disables it"
        in message
    )
    fixing = re.search(r'(DOVETAIL_\w+)="(.+)"', message).groups()
    done, _ = fresh(ORDER, DOVETAIL_DISABLE="slow", **{fixing[0]: fixing[1]})
    assert done.stdout == "mine torch\n"


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ('operations = { "torch.sin" = "+slow" }', {"DOVETAIL_DISABLE": "slow"}, "operations in .*:1 asks for slow .* disable in DOVETAIL_DISABLE"),
        ('require = ["slow"]', {"DOVETAIL_DISABLE": "slow"}, "require in .*:1 asks for slow .* disable in DOVETAIL_DISABLE"),
        ('executors = ["+slow"]', {"DOVETAIL_ALLOW": "torch"}, "executors in .*:1 asks for slow .* allow in DOVETAIL_ALLOW .* does not allow it"),
        ('require = ["slow"]', {"DOVETAIL_EXECUTORS": "-slow"}, "require in .*:1 names slow, and no layer of configuration admits it"),
    ],
)
def test_row_22_whatever_asks_for_it(fresh, here, text, variables, message):
    (here / "project" / "dovetail.toml").write_text(text + "\n")
    done, _ = fresh("config", **variables)

    assert done.returncode == 1 and re.search(message, " ".join(done.stderr.split())), done.stderr


def test_a_disabled_executor_is_left_out_in_a_scope():
    with pytest.raises(DovetailError, match="no executor runs"), dovetail.use(disable=["torch"]):
        dovetail.jit(lambda x: torch.sort(x))(torch.ones(3))  # which no fusion executor takes


# Row 19 on the command line.


def test_config_explains_each_value(here, monkeypatch):
    (here / "project" / "dovetail.toml").write_text('strict = ["version"]\nexecutors = ["torch"]\n')
    monkeypatch.setenv("DOVETAIL_STRICT", "off")
    printed = CliRunner().invoke(main, ["config", "--explain"], terminal_width=80).output
    where = here / "project" / "dovetail.toml"

    assert f'executors = ["torch"]\n    torch: {where}:2\n    ["torch"] in {where}:2\n' in printed
    assert f'strict = []\n    from DOVETAIL_STRICT (environment)\n    overrides ["version"] in {where}:1\n' in printed
    assert "debug = 0\n    default\n" in printed
    assert "\x1b" not in printed
    assert {f"{option.key} = " in printed for option in options.OPTIONS} == {True}


def test_config_as_json():
    message = json.loads(CliRunner().invoke(main, ["config", "--json"]).output)

    assert {row["option"] for row in message["options"]} == {option.key for option in options.OPTIONS}
    assert next(row for row in message["options"] if row["option"] == "frozen")["from"] == ["default"]


def test_config_shows_the_values_also_where_they_do_not_go_together(here):
    (here / "project" / "dovetail.toml").write_text('executors = ["nobody"]\n')
    result = CliRunner().invoke(main, ["config", "--explain"])

    assert result.exit_code == 1
    assert f'["nobody"] in {here / "project" / "dovetail.toml"}:1' in result.output
    assert "no executor is called 'nobody'" in result.output


def test_values_of_an_executors_options_are_of_the_declared_type():
    assert configuration.option_values("none", {"tile": 64}) == {"tile": 64}
    with configuration.scope(configuration.call_settings({"options": {"mine": {"tile": "8", "fast": "true"}}}, "here")):
        assert configuration.option_values("mine", {"tile": 64, "fast": False, "name": "x"}) == {"tile": 8, "fast": True, "name": "x"}
        with pytest.raises(ExecutorError, match=r"mine.fast in here .* is True; it expects int"):
            configuration.option_values("mine", {"tile": 64, "fast": 1})


def test_no_shown_value_is_unreadable():
    assert options.shown((("torch.sin", ("a", "b")), ("x", 1))) == '{"torch.sin" = ["a", "b"], "x" = 1}'
    assert [options.shown(value) for value in (True, None, "a", 3, ())] == ["true", "not set", '"a"', "3", "[]"]
