"""The page of one or several reports, in a browser: what it shows, what a click or a key does, and how large it is."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dovetail_conformance.render.html import html
from dovetail_conformance.report import STATES, Report, Row, together

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None)
DTYPES = ("bool", "int32", "int64", "bfloat16", "float16", "float32", "float64", "complex64")
CHECKS = ("claims", "forward", "reference", "meta", "inputs", "determinism", "repeat", "shapes", "threads", "backward", "gradcheck", "errors")
DRIVE = """
<script>
(async () => {
  while (document.documentElement.dataset.ready !== "yes") await new Promise(done => setTimeout(done, 5));
  const $ = selector => document.querySelector(selector);
  const press = (name, more) => new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more });
  const key = (name, more) => document.activeElement.dispatchEvent(press(name, more));
  const label = td => td.getAttribute("aria-label");
  const at = (...names) => [...document.querySelectorAll("td")].find(td => label(td).startsWith(names.join(", ")));
  const shown = () => [...document.querySelectorAll("tbody tr:not([hidden]) th")].map(th => th.textContent);
  const chip = state => [...document.querySelectorAll("#states button")].find(button => button.dataset.state === state);
  let message;
  try { message = await (async () => { %s })(); } catch (error) { message = "raised " + error; }
  const out = document.createElement("script");
  out.type = "application/json";
  out.id = "answer";
  out.textContent = JSON.stringify(message).replace(/</g, "\\\\u003c");
  document.body.append(out);
})();
</script>
"""

in_browser = pytest.mark.skipif(BROWSER is None, reason="the page is tested in Chromium, and neither chromium nor google-chrome is on the PATH")


@pytest.fixture
def two(report, every_state) -> list[Report]:
    """Two reports: `mine` with a row in every state, `other` with some of the same operations."""
    rows = [Row("torch.fail", "meta", "float32"), Row("torch.fail", "forward", "float32", "cuda", "not-run", message="no such device")]
    own = [Row("torch.fail", "forward", "float32", ran=1, samples=1), Row("prims.sin", "forward", "int64", ran=1, samples=1), Row("", "random")]
    return [report(*every_state, *rows), report(*own, name="other")]


def open_page(page: str, folder: Path, *, hash: str = "", flags: tuple[str, ...] = ()) -> str:
    """The page's document after its scripts have run, opened from a file."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run([*command, *flags, "--dump-dom", f"{file.as_uri()}{hash}"], capture_output=True, text=True, timeout=600)
    assert 'data-ready="yes"' in done.stdout, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def ask(tmp_path):
    """ask(reports, "return 3") is what a script in their page returns: it clicks and types as a reader does."""

    def run(reports: list[Report], script: str, **more):
        document = open_page(html(reports).replace("</body>", f"{DRIVE % script}</body>"), tmp_path, **more)
        return json.loads(unescape(re.search(r'<script type="application/json" id="answer">(.*?)</script>', document, re.DOTALL)[1]))

    return run


class Outside(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "action", "data", "poster")]


def test_the_page_needs_nothing_else(two):
    page, outside = html(two), Outside()
    outside.feed(page)

    assert outside.references == [] and "@import" not in page and "url(" not in page and "http" not in page.partition('id="data"')[0]


def test_it_reads_without_scripts(two):
    page = html(two)

    assert "<h2>mine 1.2 at level core: 18.1 % (2 of 11) passed</h2>" in page and "<h2>other 1.2 at level core: 100 % (3 of 3) passed</h2>" in page
    assert "<noscript>" in page


def test_the_same_reports_make_the_same_page(two):
    assert html(two) == html(two)


def test_names_are_no_markup(report):
    page = html([report(Row("torch.sin", "forward"), name="<script>alert(1)</script>{{data}}")])

    assert "<script>alert" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;{{data}}" in page


def large(report, name: str, seed: int) -> Report:
    """A full report with 20,000 rows, one in fifty of which fails with a script of its own."""
    dice, rows = random.Random(seed), []
    for i in range(20_000):
        operation, dtype, check = f"torch.operation_{i // 96}", DTYPES[i // 12 % 8], CHECKS[i % 12]
        row = Row(operation, check, dtype, "cpu", "pass", dice.randint(1, 9), 9, (dice.randint(1, 9), 9), seconds=dice.random())
        if dice.random() < 0.02:
            values = ", ".join(f"{dice.gauss(0, 1):.6f}" for _ in range(100))
            row.state, row.message = "fail", f"x0=f32[4, 3]: element {dice.randint(0, 11)} is {dice.random()} in place of {dice.random()}"
            row.replay = f"import torch\nimport dovetail\n\nx0 = torch.tensor([{values}])\nprint(dovetail.jit({operation})(x0))\n"
        rows.append(row)
    return report(*rows, name=name, level="full")


def test_two_full_reports_are_under_two_megabytes(report):
    page = html([large(report, "mine", 1), large(report, "other", 2)])

    assert len(page.encode()) < 2_000_000


@in_browser
def test_two_full_reports_open(report, ask):
    reports = [large(report, "mine", 1), large(report, "other", 2)]

    assert ask(reports, 'return [document.querySelectorAll("td").length, $("#count").textContent]') == [2 * 209 * 8, "209 of 209 operations"]


@in_browser
def test_every_cell_shows_the_state_of_its_rows(report, ask):
    dice = random.Random(3)
    states = list(STATES)
    rows = [
        Row(f"torch.op{i}", check, dtype, state=dice.choice(states) if dice.random() < 0.5 else dice.choice(["pass", "unsupported", "not-run"]))
        for i in range(20)
        for dtype in DTYPES
        for check in dice.sample(CHECKS, dice.randint(0, 3))
    ]
    cells: dict[str, list[Row]] = {}
    for row in rows:
        cells.setdefault(f"{row.operation}, {row.dtype}, mine", []).append(row)
    labels = ask([report(*rows)], 'return [...document.querySelectorAll("td")].map(label)')

    assert {label for label in labels if not label.endswith(": nothing")} == {f"{name}: {together(members)}" for name, members in cells.items()}


@in_browser
def test_a_click_shows_the_sentence_and_the_script(two, ask):
    text, heard, pressed = ask(
        two,
        """at("torch.fail", "float32", "mine").click();
        return [$("#panel").innerText, $("#heard").textContent, $("#panel button.copy").textContent];""",
    )

    assert text.startswith("torch.fail, float32, mine\n\n3 rows: fail")
    assert (
        text.index("what fail says") < text.index("ran 4 of 4 samples") < text.index("print('fail')\nprint('again')") < text.index("no such device")
    )
    assert heard == "torch.fail, float32, mine: fail. 3 rows, 1 failed." and pressed == "Copy the script"


@in_browser
def test_the_script_can_be_copied(two, ask):
    copied, selected = ask(
        two,
        """at("torch.fail", "float32", "mine").click();
        const button = $("#panel button.copy"), press = async writeText => {
          Object.defineProperty(navigator, "clipboard", { value: { writeText }, configurable: true });
          button.click();
          await new Promise(done => setTimeout(done, 20));
        };
        let written, copied;
        await press(async text => { written = text; });
        copied = [written, button.textContent];
        document.execCommand = () => false;
        await press(async () => { throw new Error("not allowed"); });
        return [copied, [String(getSelection()), button.textContent]];""",
    )

    assert copied == ["print('fail')\nprint('again')", "Copied"]
    assert selected == ["print('fail')\nprint('again')", "Selected: press Ctrl+C"]


@in_browser
def test_a_link_opens_a_cell(two, tmp_path):
    document = open_page(html(two), tmp_path, hash="#operation=torch.fail&executor=mine")
    panel = document.partition('id="panel"')[2].partition("</section>")[0]

    assert "torch.fail, float32, mine" in panel and "what fail says" in panel


@in_browser
def test_a_link_to_an_operation_opens_its_worst_cell(two, tmp_path):
    document = open_page(html(two[::-1]), tmp_path, hash="#operation=fail")

    assert "torch.fail, float32, mine" in document.partition('id="panel"')[2].partition("</section>")[0]


@in_browser
def test_the_address_holds_what_is_shown(two, ask):
    hash = ask(
        two,
        """chip("crash").click();
        $("#text").value = "cra"; $("#text").dispatchEvent(new Event("input"));
        at("torch.crash", "float32", "mine").click();
        return location.hash;""",
    )

    assert hash == "#operation=torch.crash&dtype=float32&executor=mine&text=cra&state=crash"
    assert ask(two, 'return [shown(), $("#text").value, chip("crash").ariaPressed, $("#panel h2").textContent]', hash=hash) == [
        ["crash"],
        "cra",
        "true",
        "torch.crash, float32, mine",
    ]


@in_browser
def test_text_and_states_filter_operations(two, ask):
    text, state, two_states, all_of_them, count = ask(
        two,
        """const type = value => { $("#text").value = value; $("#text").dispatchEvent(new Event("input")); return shown(); };
        const text = [type("PASS"), type("nothing at all"), type("sin"), type("")];
        chip("fail").click();
        const state = shown(), count = $("#count").textContent;
        chip("crash").click();
        const two = shown();
        chip("fail").click(); chip("crash").click();
        return [text, state, two, shown().length, count];""",
    )

    assert text[:3] == [["pass", "xpass"], [], ["prims.sin"]] and len(text[3]) == 15
    assert state == ["fail"] and two_states == ["crash", "fail"] and all_of_them == 15
    assert count == "1 of 15 operations"


@in_browser
def test_checks_and_devices_narrow_what_a_cell_shows(two, ask):
    states = ask(
        two,
        """const state = () => label(at("torch.fail", "float32", "mine")).split(": ")[1];
        const choose = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("change")); return state(); };
        return [state(), choose("#check", "meta"), choose("#check", ""), choose("#device", "cuda"), choose("#device", "")];""",
    )

    assert states == ["fail", "pass", "fail", "not-run", "fail"]


@in_browser
def test_an_executor_can_be_left_out(two, ask):
    before, after = ask(
        two,
        """const heads = () => [...document.querySelectorAll("thead th[colspan]:not([hidden])")].map(th => th.textContent);
        const before = [heads(), shown().length];
        [...document.querySelectorAll("#executors button")].find(button => button.textContent === "mine").click();
        return [before, [heads(), shown()]];""",
    )

    assert before == [["mine 1.2 at level core", "other 1.2 at level core"], 15]
    assert after == [["other 1.2 at level core"], ["the executor as a whole", "prims.sin", "fail"]]


@in_browser
def test_keys_are_enough(two, ask):
    steps = ask(
        two,
        """const here = () => label(document.activeElement), message = [];
        const stops = () => [...document.querySelectorAll("td")].filter(td => td.tabIndex === 0).length;
        $("td[tabindex='0']").focus();
        for (const name of ["End", "Home", "ArrowRight", "ArrowDown", "ArrowDown", "ArrowUp"]) { key(name); message.push(here()); }
        key("End", { ctrlKey: true }); message.push(here());
        key("ArrowDown"); message.push(here());
        key("Home", { ctrlKey: true }); key("ArrowDown"); key("ArrowDown"); message.push(here());
        key("Enter"); message.push($("#panel h2").textContent);
        $("#panel pre").focus(); key("Escape"); message.push(here());
        key("/"); message.push(document.activeElement.id, stops());
        return message;""",
    )

    ends = [
        "the executor as a whole, other: pass",
        "the executor as a whole, float32, mine: nothing",
        "the executor as a whole, int64, other: nothing",
    ]
    assert steps[:3] == ends
    assert steps[3:6] == ["prims.sin, int64, other: pass", "torch.crash, int64, other: nothing", "prims.sin, int64, other: pass"]
    assert steps[6:8] == ["torch.xpass, other: nothing"] * 2
    assert steps[8:] == ["torch.crash, float32, mine: crash", "torch.crash, float32, mine", "torch.crash, float32, mine: crash", "text", 1]


@in_browser
def test_a_screen_reader_is_told_what_the_parts_are(two, ask):
    parts = ask(
        two,
        """return {
          grid: [$("table").getAttribute("role"), $("table").getAttribute("aria-label")],
          rows: [...document.querySelectorAll("tbody th")].every(th => th.scope === "row"),
          heads: [...document.querySelectorAll("thead th")].every(th => th.scope.startsWith("col")),
          cells: [...document.querySelectorAll("td")].every(td => td.getAttribute("role") === "gridcell" && label(td)),
          live: [...document.querySelectorAll("[role=status]")].map(node => node.id),
          labelled: [...document.querySelectorAll("input, select")].every(node => node.labels.length === 1),
          language: document.documentElement.lang,
        };""",
    )

    assert parts == {
        "grid": ["grid", "Operations and dtypes"],
        "rows": True,
        "heads": True,
        "cells": True,
        "live": ["count", "heard"],
        "labelled": True,
        "language": "en",
    }


CONTRAST = """
const light = colour => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => { const [low, high] = [light(a), light(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
const own = node => getComputedStyle(node).backgroundColor;
const back = node => /, 0\\)$/.test(own(node)) ? back(node.parentElement) : own(node);
at("torch.fail", "float32", "mine").click();
const nodes = [...document.querySelectorAll("td:not(.empty), #panel h2, #panel h3, #panel p, #panel pre, header p, label, #count")];
return [getComputedStyle(document.body).backgroundColor, Math.min(...nodes.map(node => ratio(getComputedStyle(node).color, back(node))))];
"""


@in_browser
@pytest.mark.parametrize(("scheme", "background"), [(1, "rgb(255, 255, 255)"), (0, "rgb(20, 23, 27)")], ids=["light", "dark"])
def test_text_stands_out_in_light_and_dark(two, ask, scheme, background):
    color, least = ask(two, CONTRAST, flags=(f"--blink-settings=preferredColorScheme={scheme}",))

    assert color == background
    assert least >= 4.5, "WCAG 2.2, level AA"


@in_browser
def test_a_sentence_is_shown_as_it_is(report, ask):
    message = 'x < y & "z" </script><b>bold</b> \N{GREEK SMALL LETTER MU}'
    text, bold = ask(
        [report(Row("torch.sin", "forward", "float32", state="fail", message=message))],
        'at("torch.sin", "float32", "mine").click(); return [$("#panel").innerText, document.querySelectorAll("#panel b").length];',
    )

    assert message in text and bold == 0


@in_browser
def test_reports_of_one_executor_beside_each_other(report, ask):
    old, new = (report(Row("torch.sin", "forward", "float32", state=state)) for state in ("fail", "pass"))

    assert ask([old, new], 'return [...document.querySelectorAll("td")].map(label)') == [
        "torch.sin, float32, mine-1: fail",
        "torch.sin, float32, mine-2: pass",
    ]


@in_browser
def test_a_report_without_rows(report, ask):
    assert ask([report()], 'return $("#count").textContent') == "0 of 0 operations"
