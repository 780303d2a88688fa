"""A report as JSON, Markdown and pictures, and the sentences that sum it up."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import plots
import pytest
import rows
import tables
from machine import machine, span
from rows import Report, Row

SCHEMA = json.loads((Path(rows.__file__).parent / "comparison.schema.json").read_text())

MARKDOWN = """\
# Dovetail beside its peers

- dovetail against eager: 1.41x warm, 3.16x in the first call (geometric means of 2 rows); slower in 1: mlp
- dovetail against torch.compile: 8.00x warm, 50x in the first call (geometric means of 1 rows); slower in 0

date 2026-11-21, commit abc, cpu a processor, cores 2, threads 2, torch 2.13.0, python 3.11.7, executors llvm 0.1.0 torch 0.1.0

Each subject has a process of its own, and is checked against eager before it is timed; they take turns: 3 rounds of 200 ms or one call.

## A warm call

The median over the rounds, half of the distance between the quartiles, and how many calls it makes while eager makes one.

|  | eager | torch.compile | dovetail |
|---|---:|---:|---:|
| x + y | 1 s ±0% | 2 s ±0% (**0.50x**) | 250 ms ±30% (**4.00x**) |
| a network | 2 ms ±0% | crash | 4 ms ±0% (**0.50x**) |

## The first call

In a new process and with empty caches, compiling included, importing not; the median where there were several.

|  | eager | torch.compile | dovetail |
|---|---:|---:|---:|
| x + y | 2 s | 10 s | 200 ms |
| a network | 1 s | crash | 1 s |

## Memory

The most memory that a call holds at once of what it allocates, pooled blocks included.

|  | eager | torch.compile | dovetail |
|---|---:|---:|---:|
| x + y | 1.0 MiB | - | 1.0 MiB |
| a network | 1.0 MiB | crash | 1.0 MiB |

## Not measured

- lightning-thunder is not in the tables: not installed.
- torch.compile, a network: crash, its process died: died of SIGSEGV
"""


def test_the_page(report):
    assert tables.markdown(report) == MARKDOWN


def test_the_json_is_as_its_schema_says(report):
    jsonschema.validate(json.loads(report.text()), SCHEMA)


@pytest.mark.parametrize("change", [{"rounds": []}, {"state": "fine"}, {"median": "1 s"}, {"more": 1}, {"state": "crash"}])
def test_the_schema_refuses_what_it_should(report, change):
    message = json.loads(report.text())
    message["rows"][0] |= change

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(message, SCHEMA)


def test_a_report_is_read_back_as_it_was_written(report, tmp_path):
    report.save(tmp_path)
    again = Report.load(tmp_path / "comparison.json")

    assert again == report
    assert [file.name for file in tmp_path.iterdir()] == ["comparison.json"]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "comparison.json").write_text('{"format": 7}')

    with pytest.raises(ValueError, match="not a comparison of format 1"):
        Report.load(tmp_path / "comparison.json")


def test_a_row_that_exists_is_kept(report, row):
    report.add([row("add", "dovetail", [9.0], eager=1.0), row("gpt", "dovetail", [9.0], eager=1.0)])

    assert report.row("add", "dovetail").median == 0.25
    assert report.row("gpt", "dovetail").median == 9.0
    assert report.workloads == ["add", "mlp", "gpt"]


def test_medians_and_spread(row):
    found = row("add", "dovetail", [1.0, 2.0, 10.0], eager=4.0, firsts=[3.0, 1.0, 2.0])

    assert (found.median, found.first, found.speed) == (2.0, 2.0, 2.0)
    assert found.spread == (6.0 - 1.5) / 2.0


def test_a_call_within_the_noise_is_not_slower(report, row):
    report.rows = [row("add", "eager", [1.0], eager=1.0), row("add", "dovetail", [1.01], eager=1.0)]

    (only,) = rows.summary(report)
    assert only.slower == [] and only.warm == pytest.approx(1 / 1.01)


def test_every_dovetail_is_summed_up_beside_every_peer(report, row):
    report.subjects.append("dovetail:torch")
    report.add([row("add", "dovetail:torch", [1.0], eager=1.0)])

    assert [(each.subject, each.other) for each in rows.summary(report)] == [
        ("dovetail", "eager"),
        ("dovetail", "torch.compile"),
        ("dovetail:torch", "eager"),
        ("dovetail:torch", "torch.compile"),
    ]


def test_a_row_without_times_has_none():
    row = Row("add", "dovetail", "timeout", "no answer within 1 s")

    assert (row.first, row.median, row.spread, row.speed) == (None, None, None, None)


def test_pictures_are_drawn_and_come_out_the_same(report, tmp_path):
    (tmp_path / "again").mkdir()
    first, second = plots.draw(report, tmp_path), plots.draw(report, tmp_path / "again")

    assert [path.name for path in first] == [f"comparison_{name}.{form}" for name in ("speed", "first_call") for form in ("png", "svg")]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    svg = first[1].read_text()
    assert "x + y" in svg and "4.00x" in svg and "crash" in svg and "beside eager" in svg


@pytest.mark.parametrize(("seconds", "words"), [(11.5, "11.5 s"), (0.0123, "12.3 ms"), (1.42e-6, "1.42 us"), (5e-9, "5 ns")])
def test_durations_have_three_digits(seconds, words):
    assert span(seconds) == words


def test_a_machine_is_described_and_not_named():
    import os

    found = machine()
    assert {"cpu", "cores", "threads", "torch", "python"} <= set(found)
    assert os.uname().nodename not in json.dumps(found)
