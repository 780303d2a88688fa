"""Reports as JUnit XML, which CI services read: a suite for each executor, a test case for each row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as xml

from dovetail_conformance.render import parts
from dovetail_conformance.report import STATES, Report, Row

BROKEN = ("error", "crash", "timeout")  # failing states that are no wrong result
SUCCESS = ("pass", "partly")
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold


def junit(reports: Sequence[Report]) -> str:
    """Render JUnit XML.  What neither failed nor passed is a skip with its reason: no reader may count it as a success."""
    root = xml.Element("testsuites", name="dovetail conformance")
    for report in reports:
        root.append(_suite(report))
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(report: Report) -> xml.Element:
    cases = [_case(report, row) for row in report]
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    attributes = {"name": parts.title(report), "timestamp": report.created, "time": f"{report.seconds:.3f}", "tests": len(cases)}
    attributes |= {"failures": counts["failure"], "errors": counts["error"], "skipped": counts["skipped"]}
    suite = xml.Element("testsuite", {key: clean(str(value)) for key, value in attributes.items()})
    properties = xml.SubElement(suite, "properties")
    for key, value in (("about", parts.about(report)), ("score", parts.score(report)), ("suite hash", str(report.suite.get("hash", "")))):
        xml.SubElement(properties, "property", name=key, value=clean(value))
    suite.extend(cases)
    return suite


def _case(report: Report, row: Row) -> xml.Element:
    case = xml.Element("testcase", classname=clean(f"{report.name}.{row.operation or 'executor'}"), name=clean(str(row)), time=f"{row.seconds:.3f}")
    if row.failed:
        told = xml.SubElement(case, "error" if row.state in BROKEN else "failure", type=row.state, message=clean(row.message))
        told.text = clean("\n\n".join(part for part in (row.message, row.replay) if part))
    elif row.state not in SUCCESS:
        new = "new in this version of the suite, does not count yet: " if row.new and STATES[row.state][0] else ""
        why = row.reason or row.message or STATES[row.state][1]
        xml.SubElement(case, "skipped", type=row.state, message=clean(f"{row.state}: {new}{why}"))
    return case


def clean(text: str) -> str:
    """Remove from `text` what XML cannot hold."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
