"""A process that runs programs by number, so that a crash or a hang is a finding and not the end."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO


def main() -> None:
    """Serve the pipe that standard input and output are; everything else that is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    sys.path[:] = setup.pop("path")
    serve(setup, answers)


def serve(setup: dict[str, Any], answers: TextIO) -> None:
    """Answer each number with the events of its program."""
    from dovetail_conformance.fuzz.campaign import job_of
    from dovetail_conformance.fuzz.hunt import events

    job = job_of(**setup)
    answers.write('{"ready": true}\n')
    for line in sys.stdin:
        for event in events(job, json.loads(line)):
            answers.write(json.dumps(event) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
