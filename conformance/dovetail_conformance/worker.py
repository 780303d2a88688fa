"""A process that does tasks, one after the other, so that a crash or a hang of one is a row and not the end.

It reads a line of JSON for each task and answers with lines of JSON: what it is doing, a row, the end.  What plugins print goes elsewhere.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any, TextIO

import torch


def main() -> None:
    """Serve the pipe that standard input and output are; everything else that is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    torch.set_num_threads(setup["threads"])
    serve(setup, answers)


def serve(setup: dict[str, Any], answers: TextIO) -> None:
    from dovetail_conformance.levels import LEVELS
    from dovetail_conformance.plan import Wanted, collectives, opinfos, task_of
    from dovetail_conformance.ranks import end_shared_ranks
    from dovetail_conformance.report import as_data
    from dovetail_conformance.run import import_opinfos
    from dovetail_conformance.seeds import rows_by_seed
    from dovetail_conformance.subject import Subject

    def say(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    import_opinfos(setup["opinfos"])
    subject, level = Subject.of(setup["executor"], setup["expectations"]), LEVELS[setup["level"]]
    wanted = Wanted(**{k: v and tuple(v) for k, v in setup["wanted"].items()})
    seeds = range(setup["seed"], setup["seed"] + setup["seeds"])
    opinfos()
    gc.freeze()  # collections, of which some checks make many, leave out what was imported
    say(ready=True)
    for line in sys.stdin:
        task = task_of(json.loads(line))
        if task.operation not in collectives():
            end_shared_ranks()  # they hold memory, and collectives come one after another
        for row in rows_by_seed(task, subject, level, wanted, seeds, lambda check: say(doing=check)):
            say(row=as_data(row))
        say(end=sorted(subject.ran))


if __name__ == "__main__":
    main()
