"""A report in each form: it shows what failed, hides no count, and holds whatever characters a sentence has."""

from __future__ import annotations

import json
from xml.etree import ElementTree as xml

import pytest
from rich.console import Console

from dovetail import dtypes
from dovetail_conformance.render import parts
from dovetail_conformance.render.badge import badge
from dovetail_conformance.render.junit import junit
from dovetail_conformance.render.markdown import markdown
from dovetail_conformance.render.terminal import lines, show
from dovetail_conformance.report import STATES, Report, Row


def shown(example: Report, *, width: int = 80, verbose: bool = False) -> str:
    return "\n".join(line.plain for line in lines(example, width, verbose=verbose))


def test_every_state_has_a_letter_of_its_own():
    letters = [letter for letter, _ in parts.LETTERS.values()]

    assert list(parts.LETTERS) == list(STATES) and len(set(letters)) == len(STATES)


def test_the_terminal_shows_counts_failures_and_reasons(report, every_state):
    text = shown(report(*every_state))

    assert text.startswith("mine 1.2 at level core: 10.0 % (1 of 10) passed\n")
    assert all(f"1 {state}" in text for state in STATES)
    assert "crash  torch.crash, float32, cpu: forward\n    what crash says\n" in text
    assert "waived  1 row\n    why waived\n    waived" in text
    assert "print('crash')" not in text and "what unsupported says" not in text


def test_verbose_shows_scripts_and_refusals(report, every_state):
    text = shown(report(*every_state), verbose=True)

    assert "    what crash says\n    print('crash')\n    print('again')\n" in text
    assert "unsupported  1 row\n    what unsupported says\n    unsupported" in text


def test_the_matrix_has_a_letter_for_each_cell(report):
    rows = [
        Row("torch.sin", "forward", "float32"),
        Row("torch.sin", "meta", "float32", state="fail"),
        Row("torch.sin", "forward", "int64", state="not-claimed"),
    ]
    rows += [Row("torch.cos", "forward", "float32")]
    example = report(*rows)

    assert "\n    i64 f32\nsin   o   F\n\nF fail  o not-claimed\n" in shown(example)
    assert "\n    i64 f32\ncos       .\nsin   o   F\n" in shown(example, verbose=True)


def test_where_all_is_as_usual_there_is_no_matrix(report):
    example = report(
        Row("torch.sin", "forward", "float32", ran=1, samples=1), Row("torch.cos", "forward", "float32", state="unsupported", message="no")
    )

    assert shown(example).splitlines()[-1] == "1 pass  1 unsupported"


def test_nothing_is_wider_than_80_columns(report, every_state):
    operation = "torch.nn.functional.scaled_dot_product_attention"
    rows = [Row(operation, "forward", dtype.name, message=f"{'long ' * 40}{'x' * 200}", state="fail") for dtype in dtypes.ALL]
    text = shown(report(*rows, *every_state))

    assert max(map(len, text.splitlines())) <= 80
    assert all(dtype.short in text for dtype in dtypes.ALL)


def test_many_failures_are_cut_off_and_counted(report):
    example = report(*[Row(f"torch.op{i}", "forward", state="fail", message=f"wrong {i}") for i in range(25)])

    assert "wrong 19" in shown(example) and "wrong 20" not in shown(example) and "\nand 5 more" in shown(example)
    assert "wrong 24" in shown(example, verbose=True)


def test_through_a_pipe_it_is_plain_text(report, every_state, capsys):
    show(Console(highlight=False, width=80), report(*every_state))

    assert "\x1b" not in capsys.readouterr().out


def test_brackets_in_a_sentence_are_no_markup(report, capsys):
    show(Console(highlight=False, width=80), report(Row("torch.sin", "forward", state="fail", message="x0: f32[red] is [/bold]")))

    assert "x0: f32[red] is [/bold]" in capsys.readouterr().out


def test_who_ran_nothing_is_told_so(report):
    assert "mine ran no sample, so this proves nothing" in shown(report(Row("torch.sin", "forward", state="not-claimed")))
    assert "proves nothing" not in shown(report(Row("torch.sin", "forward", ran=1, samples=1)))


def test_new_rows_are_named_as_such(report):
    text = shown(report(Row("torch.sin", "forward", state="fail", new=True), Row("torch.cos", "forward", ran=1, samples=1)))

    assert "New in this version of the suite, and not counted yet: 1 row, of which 1 fail." in " ".join(text.split())
    assert "(new, does not count yet)" in text


@pytest.mark.parametrize(("passed", "counted", "message"), [(0, 0, "nothing counted"), (3, 3, "100 %"), (99999, 100000, "99.9 %"), (0, 7, "0.0 %")])
def test_a_percentage_is_rounded_down(passed, counted, message):
    assert parts.percent(passed, counted) == message


def test_markdown_has_a_table_of_executors_and_one_of_failures(report, every_state):
    text = markdown([report(*every_state), report(Row("torch.sin", "forward", "float32", ran=1), name="other")])

    assert "| mine 1.2 | core | 10.0 % (1 of 10) | 1 | 1 |" in text and "| other 1.2 | core | 100 % (1 of 1) | 1 | 0 |" in text
    assert "### 6 failed" in text and "| torch.crash | float32 | cpu | forward | crash | what crash says |" in text
    assert "### 2 waived or expected to fail" in text and "| why waived |" in text


def test_markdown_shows_special_characters_as_they_are(report):
    text = markdown([report(Row("torch.sin", "forward", state="fail", message="a | b <script> *c*\nd `e`"))])

    assert r"a \| b \<script\> \*c\* d \`e\` |" in text


def test_markdown_s_tables_have_rows_of_one_length(report, every_state):
    heads = None
    for line in markdown([report(*every_state)]).splitlines():
        cells = line.replace(r"\|", "").count("|") if line.startswith("|") else None
        assert cells is None or heads is None or cells == heads, line
        heads = cells


def test_junit_has_a_case_for_each_row(report, every_state):
    (suite,) = xml.fromstring(junit([report(*every_state)]))
    cases = {case.get("name"): case for case in suite.iter("testcase")}

    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("13", "3", "3", "5")
    assert cases["torch.fail-float32-cpu-forward"].find("failure").text == "what fail says\n\nprint('fail')\nprint('again')"
    assert cases["torch.crash-float32-cpu-forward"].find("error").get("message") == "what crash says"
    assert cases["torch.waived-float32-cpu-forward"].find("skipped").get("message") == "waived: why waived"
    assert not len(cases["torch.pass-float32-cpu-forward"]) and not len(cases["torch.partly-float32-cpu-forward"])


def test_junit_skips_what_fails_and_does_not_count_yet(report):
    (suite,) = xml.fromstring(junit([report(Row("torch.sin", "forward", state="fail", message="off", new=True))]))

    assert "does not count yet: off" in suite.find("testcase/skipped").get("message")


def test_junit_holds_whatever_a_sentence_has(report):
    text = junit([report(Row("torch.sin", "forward", state="fail", message="\x1b[31m <&> \x00 \ufffe \ud800 \N{GREEK SMALL LETTER MU}"))])

    (suite,) = xml.fromstring(text.encode())
    assert suite.find("testcase/failure").text == "\ufffd[31m <&> \ufffd \ufffd \ufffd \N{GREEK SMALL LETTER MU}"


def test_the_badge_s_denominator_has_what_was_waived(report, every_state):
    assert json.loads(badge(report(*every_state))) == {
        "schemaVersion": 1,
        "label": "dovetail core",
        "message": "10.0 % (1 of 10)",
        "color": "red",
        "isError": True,
    }


@pytest.mark.parametrize(
    ("states", "text", "colour"),
    [
        (["pass"] * 4, "100 % (4 of 4)", "brightgreen"),
        (["pass"] * 3 + ["waived"], "75.0 % (3 of 4)", "yellow"),
        (["pass"] * 199 + ["fail"], "99.5 % (199 of 200)", "orange"),
        (["not-claimed", "not-run", "unsupported"], "nothing counted", "lightgrey"),
    ],
)
def test_the_badge_s_colours(report, states, text, colour):
    shown = json.loads(badge(report(*[Row(f"torch.op{i}", "forward", state=state) for i, state in enumerate(states)])))

    assert (shown["message"], shown["color"]) == (text, colour)
