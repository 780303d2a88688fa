"""`dovetail trace FILE:FUNCTION`: the program that a pass made."""

from __future__ import annotations

import click

import dovetail
from dovetail.cli.explain import TARGET, ran
from dovetail.trace import Trace

NONE = {
    "computation": "the function computes nothing with tensors",
    "backward": "nothing that it computes requires grad",
    "epilogue": "it writes into no argument, and returns nothing that shares memory with one",
}
GROUPS = {
    "computation": dovetail.last_traces,
    "backward": dovetail.last_backward_traces,
    "epilogue": dovetail.last_epilogue_traces,
    "prologue": dovetail.last_prologue_traces,
}


@click.command("trace", short_help="Print a function's program, as any pass made it.")
@click.argument("target", metavar=TARGET)
@click.option("--args", "inputs", default="example_inputs", show_default=True, metavar="NAME", help="The function in FILE that gives the arguments.")
@click.option("--executors", metavar="NAMES", help="Who is asked, in this order, commas between them.")
@click.option("--pass", "made_by", metavar="NAME", help="The program that this pass made, `all` for every one; the one that runs where not given.")
@click.option("--of", "group", type=click.Choice(list(GROUPS)), default="computation", show_default=True, help="Which program.")
@click.option("--depth", type=click.IntRange(0), help="How many levels of decomposition are shown in comments; all of them where not given.")
@click.option("--where", is_flag=True, help="The line of your code behind each operation.")
def trace(target: str, inputs: str, executors: str | None, made_by: str | None, group: str, depth: int | None, where: bool) -> None:
    """Compile a function for its example arguments, run it, and print its program."""
    fn, _, _ = ran(target, inputs, executors)
    for each in chosen(GROUPS[group](fn), made_by, group):
        click.echo(each.python(depth=depth, where=where))


def chosen(traces: list[Trace], made_by: str | None, group: str) -> list[Trace]:
    """The traces that `--pass` names."""
    if not traces:
        raise click.ClickException(f"there is no {group}: {NONE.get(group, 'the function was not compiled')}")
    if made_by is None:
        return traces[-1:]
    found = [each for each in traces if made_by in ("all", each.made_by)]
    if not found:
        raise click.ClickException(f"no pass is called {made_by!r}; the {group} was made by {', '.join(each.made_by for each in traces)}")
    return found
