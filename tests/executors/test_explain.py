"""Rows 28 to 32: who runs what and why, whose fault an error is, and what each executor costs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import zoo
from stand_ins import F, Pointwise, of, small_softmax

import dovetail
from dovetail.errors import ExecutorError
from dovetail.executors import ExecutorWarning, Priority
from dovetail.executors.discovery.configuration import WATCH
from dovetail.executors.discovery.plugin_errors import ask
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.extend import OperatorExecutor, make_prim, put_grad
from dovetail.prims import no_recorder, recorder
from dovetail.trace import Trace, recording


def explained(fn, *args, executors):
    compiled = dovetail.jit(fn, executors=executors)
    compiled(*args)
    return dovetail.explain(compiled)


def is_a_sentence(words):
    return isinstance(words, str) and len(words.split()) >= 2 and "<" not in words and words == words.strip()


def three():
    """A GPT compiled with three executors beside each other, in front of the reference."""
    torch.manual_seed(0)
    linear = of("linear", F.linear, F.linear, checker=lambda input, weight, bias=None: bias is not None or "expected a bias")
    return dovetail.jit(zoo.GPT(), executors=[linear, small_softmax(), Pointwise()])


@pytest.fixture
def gpt():
    """It with its loss, called once, with its backward."""
    compiled = three()
    compiled(zoo.tokens(101), zoo.tokens(101))[1].backward()
    return compiled


@pytest.fixture
def forward():
    """It without gradients, called once: whole operations stay whole."""
    compiled = three()
    with torch.no_grad():
        compiled(zoo.tokens(101))
    return compiled


# 28, 29: who runs what


def test_28_each_operation_has_its_candidates_and_their_sentences():
    found = explained(lambda x: F.softmax(x, -1) * 2, torch.ones(2, 9), executors=[small_softmax(), Pointwise()])
    softmax, mul = found.rows
    assert (softmax.operation, softmax.requested, softmax.actual) == ("torch.nn.functional.softmax", "small", "torch")
    assert [(c.executor, c.status, c.message) for c in softmax.candidates] == [
        ("small", "refused", "expected rows of at most 8, got 9"),
        ("pointwise", "refused", "fuses elementwise operations, and prims.amax is none"),
        ("torch", "runs", "runs it"),
    ]
    assert (mul.actual, mul.region) == ("pointwise", f"fusion_{mul.results[0]}")
    assert [(c.executor, c.status) for c in mul.candidates] == [("small", "refused"), ("pointwise", "runs"), ("torch", "not-offered")]
    assert softmax.where.startswith(__file__)


def test_28_for_a_gpt_every_operation_is_accounted_for_and_every_refusal_is_a_sentence(gpt):
    found = dovetail.explain(gpt)
    programs = {"forward": dovetail.last_traces(gpt), "backward": dovetail.last_backward_traces(gpt), "epilogue": dovetail.last_epilogue_traces(gpt)}
    assert {row.actual for row in found.rows if row.actual} == {"linear", "pointwise", "torch"}
    for name, traces in programs.items():
        lines = [inner for line in traces[-1].lines if line.implementation for inner in (line.body if "fusion_" in line.symbol.name else [line])]
        run = {p.name for line in lines for p in line.writes}
        rows = [row for row in found.rows if row.program == name]
        assert run == {result for row in rows if row.actual and row.needed for result in row.results}
        assert all(row.actual or any(inner.depth > row.depth for inner in rows) for row in rows)
    refusals = [c for row in found.rows for c in row.refusals]
    assert len(refusals) > 100 and all(is_a_sentence(c.message) for c in refusals)
    assert {"expected a bias", "does not implement prims.tanh"} & {c.message for c in refusals}


def test_28_the_same_without_gradients(forward):
    found = dovetail.explain(forward)
    assert [row.operation for row in found.rows if row.actual == "linear"] == ["torch.nn.functional.linear"] * 8
    assert {"expected a bias", "expected rows of at most 8, got 12"} <= {c.message for row in found.rows for c in row.refusals}
    assert all(is_a_sentence(c.message) for row in found.rows for c in row.refusals)
    lines = [inner for line in dovetail.last_traces(forward)[-1].lines for inner in (line.body if "fusion_" in line.symbol.name else [line])]
    assert {p.name for line in lines for p in line.writes} == {name for row in found.rows for name in row.results if row.actual and row.needed}


def test_28_an_operation_that_is_taken_apart_is_followed_by_its_parts():
    parts = OperatorExecutor("parts")
    for line in dovetail.make_trace(lambda x: torch.relu(x))(torch.ones(2)).lines[0].body:
        parts.implements(line.symbol, REGISTRY.executors["torch"].implementation(line.symbol).fn)
    rest = of("rest", torch.sin, torch.sin)
    found = dovetail.executors.dispatch(dovetail.make_trace(lambda x: torch.relu(torch.sin(x)))(torch.ones(2)), Priority([rest, parts]))
    made = found.dispatch_record.decisions
    assert [(d.depth, bool(d.runs)) for d in made][:2] == [(0, True), (0, False)] and all(d.depth == 1 and d.runs for d in made[2:])
    assert all(d.where == made[1].where for d in made[2:])


def test_29_what_a_checker_says_is_shown_whatever_it_is():
    for message, shown in ((False, "gave no reason"), (None, "gave no reason"), ("", "gave no reason"), ("  no  ", "no")):
        found = explained(torch.sin, torch.ones(2), executors=[of("picky", torch.sin, torch.sin, checker=lambda input, message=message: message)])
        assert found.rows[0].refusals[0].message == shown, message


def test_an_order_for_one_operation_is_asked_and_shown():
    a, b, torch_ = of("a", torch.sin, torch.sin), of("b", torch.sin, torch.sin), REGISTRY.executors["torch"]

    class Own(Priority):
        def for_symbol(self, symbol):
            return (b, torch_) if symbol.name == "sin" else self

    trace = dovetail.executors.dispatch(dovetail.make_trace(lambda x: torch.cos(torch.sin(x)))(torch.ones(2)), Own([a, b, torch_]))
    assert [[note.executor for note in made.offers] for made in trace.dispatch_record.decisions] == [["b"], ["a", "b", "torch"]]
    rows = dovetail.executors.explanation("fn", [(trace, trace)]).rows
    assert ("a", "not-offered", "configuration leaves it out here") in [(c.executor, c.status, c.message) for c in rows[0].candidates]


def test_dispatch_asks_each_executor_once_for_each_line():
    asked = []
    ex = of("picky", torch.sin, torch.sin, checker=lambda input: asked.append(1) or "is asked and says no")

    def fn(x):
        for _ in range(50):
            x = torch.sin(x)
        return x

    explained(fn, torch.ones(2), executors=[ex])
    assert len(asked) == 50


# The forms of an explanation


def test_str_is_a_table_in_plain_text():
    found = explained(lambda x: F.softmax(x, -1), torch.ones(2, 9), executors=[small_softmax()])
    text = str(found)
    assert text.startswith("computation: 1 operation; torch runs 1\n")
    assert "torch.nn.functional.softmax: small -> torch  (test_explain.py:" in text
    assert "    small refuses: expected rows of at most 8, got 9\n" in text
    assert "small (defined in this process): offered 1 line, runs 0; claiming " in text
    assert "\x1b" not in text


def test_to_json_has_the_documented_fields(gpt):
    data = json.loads(dovetail.explain(gpt).to_json())
    assert data["schema"] == "dovetail.explanation.1"
    assert set(data) == {"schema", "function", "rows", "executors", "programs", "left_out", "trials", "differentiated", "decisions", "collectives"}
    row = {"program", "results", "operation", "call", "type", "where", "requested", "actual", "candidates", "depth", "region", "needed"}
    assert all(set(each) == row for each in data["rows"])
    assert all(set(c) == {"executor", "status", "message"} for each in data["rows"] for c in each["candidates"])
    assert {c["status"] for each in data["rows"] for c in each["candidates"]} == {"runs", "refused", "not-offered"}
    lines = [line for program in data["programs"] for line in program["lines"]]
    assert all(line["rows"] for line in lines if line["executor"])
    assert {program["name"] for program in data["programs"]} >= {"forward", "backward"}
    for line in lines:
        assert not line["rows"] or any(result in line["text"] for i in line["rows"] for result in data["rows"][i]["results"]), line
        assert "kept" not in line["text"] or not line["rows"], "unpacking is no executor's work"


def test_the_json_that_is_written_is_documented(gpt):
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    data = dovetail.explain(gpt).to_dict()
    for table in (data, data["rows"][0], data["rows"][0]["candidates"][0], data["executors"][0], data["programs"][0]["lines"][0]):
        assert not [key for key in table if f"| `{key}` |" not in page]


def test_to_html_is_one_page_that_needs_nothing_else(gpt, tmp_path):
    page = dovetail.explain(gpt).to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page and len(page.encode()) < 2_000_000
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|https?://|fetch\(|XMLHttpRequest""", page)
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL).group(1))
    lines = [line for _, lines in data["programs"] for line in lines if line[1]]
    assert len(lines) > 100 and all(line[2] and max(line[2]) < len(data["rows"]) for line in lines)


def test_a_name_cannot_break_out_of_the_page():
    made = make_prim("test_explain.twice", "twice", meta=lambda x, *, word: x.fresh(), replace=True)
    ex = of("own", made, lambda x, *, word: x * 2, checker=lambda x, *, word: "refuses </script><b>words</b>" if word == "no" else True)
    other = of("other", made, lambda x, *, word: x * 2)
    page = explained(lambda x: made(x, word="no"), torch.ones(2), executors=[ex, other]).to_html()
    assert "</script><b>" not in page and "\\u003c/script>\\u003cb>" in page


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CLICK = """<script>addEventListener("load", () => {
  const lines = [...document.querySelectorAll(".line.op")];
  const line = lines.find(line => line.textContent.includes("softmax"));
  line.click();
  document.documentElement.dataset.lines = lines.length;
  document.documentElement.dataset.colours = new Set(lines.map(line => getComputedStyle(line).borderLeftColor)).size;
  document.documentElement.dataset.message = document.getElementById("message").textContent;
})</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium), so nothing can draw the page")
def test_in_a_browser_lines_have_colours_and_a_click_shows_refusals(forward, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(dovetail.explain(forward).to_html().replace("</body>", CLICK))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *flags, page.as_uri()], capture_output=True, text=True, timeout=600)
    head = re.search(r"<html[^>]*>", done.stdout)
    assert head, done.stderr
    assert "pointwise refuses: fuses elementwise operations, and prims.amax is none" in head.group()
    assert "small refuses: expected rows of at most 8, got 12" in head.group()
    assert re.search(r'data-colours="3"', head.group()) and int(re.search(r'data-lines="(\d+)"', head.group()).group(1)) > 30


# 30, 31: errors in plugin code


def broken(*_, **__):
    raise ValueError("the kernel fell over")


IN_PROCESS = "(defined in this process)"
EVERYTHING = (f"own 1.2 {IN_PROCESS}", 'torch.sin(t0: "cpu f32[3]")', f"called at {__file__}:", "leave own out of executors=")


def test_31_a_checker_that_raises_is_quarantined_with_one_warning_and_the_program_runs():
    ex = of("own", torch.sin, torch.sin, checker=broken)
    ex.implements(torch.cos, torch.cos)

    def fn(x):
        return torch.cos(torch.sin(torch.sin(x)))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = explained(fn, torch.ones(3), executors=[ex])
        explained(lambda x: torch.sin(x), torch.ones(5), executors=[ex])
    (warning,) = caught
    assert warning.category is ExecutorWarning and warning.filename == __file__
    assert all(words in str(warning.message) for words in (*EVERYTHING, "the checker of own", "ValueError: the kernel fell over"))
    refusal = "its checker raised ValueError: the kernel fell over; it is not offered torch.sin again"
    assert [row.refusals[0].message if row.refusals else None for row in found.rows] == [refusal, refusal, None]
    assert [row.actual for row in found.rows] == ["torch", "torch", "own"]
    assert ("own", "torch.sin", refusal) in dovetail.executors.quarantined()


def test_a_checker_that_is_asked_while_a_program_is_traced_records_nothing():
    program = dovetail.make_trace(torch.sin)(torch.ones(3))
    with recording(Trace("program")):
        assert ask(of("own", torch.sin, torch.sin), program.lines[0], lambda line: recorder.get() is no_recorder, None) is True


def test_31_a_fusion_executor_that_raises_is_quarantined_for_that_operation():
    class Broken(Pointwise):
        def can_fuse(self, line):
            return broken() if line.symbol.name == "sin" else super().can_fuse(line)

    with pytest.warns(ExecutorWarning, match="the checker of pointwise 0"):
        found = explained(lambda x: torch.cos(torch.sin(x)), torch.ones(3), executors=[Broken()])
    assert [row.actual for row in found.rows] == ["torch", "pointwise"]


def test_26_strict_makes_an_error_of_a_checker_that_raises(monkeypatch):
    monkeypatch.setenv("DOVETAIL_STRICT", "checker-error")
    with pytest.raises(ExecutorError, match=r"the checker of own(.|\n)*the option `strict`"):
        explained(torch.sin, torch.ones(3), executors=[of("own", torch.sin, torch.sin, checker=broken)])


def test_26_strict_makes_an_error_of_a_refusal_by_an_executor_that_has_the_operation(monkeypatch):
    monkeypatch.setenv("DOVETAIL_STRICT", "not-claimed")
    explained(lambda x: torch.cos(F.softmax(x, -1)), torch.ones(3), executors=[small_softmax()])
    with pytest.raises(ExecutorError, match=r"small 1\.2 .* refuses .*expected rows of at most 8, got 9"):
        explained(lambda x: F.softmax(x, -1), torch.ones(9), executors=[small_softmax()])


def test_30_an_execution_transform_that_raises_says_whose_it_is():
    with pytest.raises(ExecutorError) as raised:
        explained(lambda x: torch.sin(x), torch.ones(3), executors=[of("own", torch.sin, None, execution_transform=broken)])
    assert all(words in str(raised.value) for words in (*EVERYTHING, "the execution transform of own", "ValueError: the kernel fell over"))
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("transform", [lambda x: x[:1], lambda x: torch.relu(x), lambda x: x.clamp(min=0)])
def test_30_an_execution_transform_that_calls_torch_is_told_what_to_call(transform):
    with pytest.raises(ExecutorError, match=r"execution transform of own(.|\n)*call dovetail\.prims, or symbols of your own"):
        explained(lambda x: torch.sin(x), torch.ones(3, 3), executors=[of("own", torch.sin, None, execution_transform=transform)])


@pytest.mark.parametrize("cotangent", [None, 1.0])
def test_30_a_grad_rule_that_sets_no_tensor_as_a_cotangent_says_so(cotangent):
    own = of("own", torch.sin, torch.sin, grad=lambda input: (torch.sin(input), put_grad(input, cotangent))[0])
    with pytest.raises(ExecutorError, match=r"the grad rule of own(.|\n)*expected a cotangent like cpu f32\[3\], got"):
        explained(lambda x: torch.sin(x), torch.ones(3, requires_grad=True), executors=[own])


def test_30_an_execution_transform_that_gives_another_result_says_which():
    ex = of("own", torch.sin, None, execution_transform=lambda input: dovetail.prims.sum(input, dims=(0,)))
    message = r'the execution transform of own(.|\n)*it returned t\d+: "cpu f32\[\]" where the operation gives t1: "cpu f32\[3\]"'
    with pytest.raises(ExecutorError, match=message):
        explained(lambda x: torch.sin(x), torch.ones(3), executors=[ex])


def test_30_fuse_that_raises_says_whose_it_is():
    class Broken(Pointwise):
        fuse = broken

    with pytest.raises(ExecutorError) as raised:
        explained(lambda x: torch.sin(x) * 2, torch.ones(3), executors=[Broken()])
    call = 'pointwise.fusion_t1(t0: "cpu f32[3]")'
    for words in ("fuse of pointwise 0", "the kernel fell over", call, f"called at {__file__}:", "leave pointwise out"):
        assert words in str(raised.value)


def test_31_an_implementation_that_fails_is_an_error_of_its_own_type_with_a_note():
    compiled = dovetail.jit(lambda x: torch.cos(torch.sin(x)), executors=[of("own", torch.sin, broken)])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^the kernel fell over") as raised:
            compiled(torch.ones(3))
        (note,) = raised.value.__notes__
        assert all(words in note for words in EVERYTHING) and "computation's t1" in note


def test_30_an_error_in_a_backward_has_the_note_too():
    ex = of("own", torch.cos, broken)
    compiled = dovetail.jit(lambda x: torch.sin(x).sum(), executors=[ex, of("prims_own", dovetail.prims.cos, broken)])
    y = compiled(torch.ones(3, requires_grad=True))
    with pytest.raises(ValueError, match="the kernel fell over") as raised:
        y.backward()
    assert "raised by prims_own 1.2" in raised.value.__notes__[0] and "backward's t" in raised.value.__notes__[0]


def test_30_a_region_that_fails_is_its_executors():
    class Failing(Pointwise):
        def fuse(self, region):
            return broken

    compiled = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[Failing()])
    with pytest.raises(ValueError) as raised:
        compiled(torch.ones(3))
    assert f'raised by pointwise 0 {IN_PROCESS} as it ran pointwise.fusion_t1(t0: "cpu f32[3]")' in raised.value.__notes__[0]


def test_30_an_installed_executor_is_named_with_its_distribution_and_the_line_that_disables_it():
    ex = dovetail.extend.add_operator_executor("test_installed", {"torch.sin": ("sin", None, broken)}, add_to_default_executors=False, replace=True)
    ex.distribution = ("dovetail-test", "0.7")
    try:
        with pytest.raises(ValueError) as raised:
            dovetail.jit(lambda x: torch.sin(x), executors=["test_installed"])(torch.ones(3))
        (note,) = raised.value.__notes__
        assert "raised by test_installed 0 (dovetail-test 0.7)" in note
        assert 'DOVETAIL_DISABLE=test_installed in the environment, or disable = ["test_installed"] under [tool.dovetail]' in note
        assert note.endswith("leave it out of executors=[...] where a call of dovetail.jit names it")
        with dovetail.use(disable=["test_installed"]), pytest.raises(ExecutorError, match="disables it; leave test_installed out there"):
            dovetail.jit(lambda x: torch.sin(x), executors=["test_installed"])(torch.ones(3))
        with dovetail.use(disable=["test_installed"]):
            torch.testing.assert_close(dovetail.jit(lambda x: torch.sin(x))(torch.ones(3)), torch.sin(torch.ones(3)))
    finally:
        REGISTRY.executors.pop("test_installed")


def test_an_error_that_eager_raises_keeps_its_type():
    with pytest.raises(IndexError):
        dovetail.jit(lambda i, w: F.embedding(i, w))(torch.tensor([7]), torch.ones(3, 2))


def test_a_warm_call_runs_nothing_of_this(monkeypatch):
    monkeypatch.setattr(WATCH, "scoped", False)  # a process that used dovetail.use pays for that
    compiled = dovetail.jit(lambda x, y: x + y)
    x = torch.ones(4)
    compiled(x, x)
    ran = []

    def watch(frame, event, arg):
        if event == "call":
            ran.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        compiled(x, x)
    finally:
        sys.setprofile(None)
    assert ran == ["call", "prologue", "active_mode", "computation"]


# 32: what each executor costs


def test_32_each_executor_has_its_counts_and_times(gpt):
    found = {each.name: each for each in dovetail.explain(gpt).executors}
    assert list(found) == ["linear", "small", "pointwise", "torch"]
    assert found["linear"].claims == found["linear"].operations > 0 and found["small"].claims == 0
    assert found["pointwise"].compile_seconds > 0 and all(each.claim_seconds > 0 for each in found.values())
    assert found["linear"].offers >= found["small"].offers >= found["pointwise"].offers >= found["torch"].offers > 0
    assert all(each.run_calls is None for each in found.values())


def test_32_run_times_are_measured_when_asked_for_and_cost_nothing_otherwise(gpt):
    x, y = zoo.tokens(101), zoo.tokens(101)
    before = gpt._cache.entries
    with dovetail.profile(gpt) as times:
        for _ in range(3):
            gpt(x, y)[1].backward()
    assert gpt._cache.entries == before and dovetail.cache_misses(gpt) == ["the first call"]
    found = dovetail.explain(gpt)
    by_name = {each.name: each for each in found.executors}
    lines = sum(1 for row in found.rows if row.actual == "linear" and row.needed)
    assert by_name["linear"].run_calls == 3 * lines and by_name["linear"].run_seconds > 0
    assert times.rows[0].seconds == max(row.seconds for row in times.rows)
    assert "linear: " in str(times) and "running " in str(found)


def test_32_passes_of_the_user_run_while_times_are_measured():
    seen = []
    watched = dovetail.extend.advanced.watch(before=lambda line, args, kwargs: seen.append(line.symbol.name))
    compiled = dovetail.jit(lambda x: torch.sin(x), passes=[watched])
    for _ in range(2):
        with dovetail.profile(compiled):
            compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert seen == ["sin"] * 3


def test_30_a_grad_rule_that_raises_names_its_executor_and_the_operation():
    def rule(input):
        raise ZeroDivisionError("no gradient today")

    ex = OperatorExecutor("ungrateful", version="2.0")
    ex.implements(torch.sin, torch.sin, grad=rule)
    compiled = dovetail.jit(torch.sin, executors=[ex])
    with pytest.raises(dovetail.errors.ExecutorError, match=r"the grad rule of ungrateful 2.0") as raised:
        compiled(torch.ones(2, requires_grad=True))
    assert "ZeroDivisionError: no gradient today" in str(raised.value) and 'torch.sin(t0: "cpu f32[2]")' in str(raised.value)
    with torch.no_grad():
        torch.testing.assert_close(compiled(torch.ones(2)), torch.sin(torch.ones(2)))
