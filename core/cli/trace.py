"""`dovetail trace FILE:FUNCTION`: print the program after a pass."""

from __future__ import annotations

import click

import dovetail
from dovetail.cli.explain import TARGET, run_target
from dovetail.trace import Trace

NONE = {
    "computation": "the function has no operations on tensors",
    "backward": "no result requires grad",
    "epilogue": "the function neither writes to an argument nor returns a view of one",
}
GROUPS = {
    "computation": dovetail.last_traces,
    "backward": dovetail.last_backward_traces,
    "epilogue": dovetail.last_epilogue_traces,
    "prologue": dovetail.last_prologue_traces,
}


@click.command("trace", short_help="Print a function's program after any pass.")
@click.argument("target", metavar=TARGET)
@click.option(
    "--args", "inputs", default="example_inputs", show_default=True, metavar="NAME", help="The function in FILE that returns the arguments."
)
@click.option("--executors", metavar="NAMES", help="The executors in priority order, separated by commas.")
@click.option("--pass", "made_by", metavar="NAME", help="The program after this pass, `all` for all passes; by default the program that runs.")
@click.option("--of", "group", type=click.Choice(list(GROUPS)), default="computation", show_default=True, help="Which program.")
@click.option("--depth", type=click.IntRange(0), help="Levels of decomposition shown in comments; by default all.")
@click.option("--where", is_flag=True, help="Show the line of your code behind each operation.")
def trace(target: str, inputs: str, executors: str | None, made_by: str | None, group: str, depth: int | None, where: bool) -> None:
    """Compile a function for its example arguments, run it, and print its program."""
    fn, _, _ = run_target(target, inputs, executors)
    for program in chosen(GROUPS[group](fn), made_by, group):
        click.echo(program.python(depth=depth, where=where))


def chosen(traces: list[Trace], made_by: str | None, group: str) -> list[Trace]:
    """Return the traces selected by `--pass`."""
    if not traces:
        raise click.ClickException(f"no {group}: {NONE.get(group, 'the function was not compiled')}")
    if made_by is None:
        return traces[-1:]
    matches = [program for program in traces if made_by in ("all", program.made_by)]
    if not matches:
        raise click.ClickException(f"unknown pass {made_by!r}; the passes of the {group} are {', '.join(program.made_by for program in traces)}")
    return matches
