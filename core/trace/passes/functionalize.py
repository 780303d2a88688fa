"""In-place operations and views become values; what must alias moves to an epilogue.

>>> def computation(t0):
...     t1 = prims.strided_slice(t0, starts=(0, 0), stops=(1, 3), steps=(1, 1))
...     t2 = prims.add(t1, 1.0)
...     prims.copy_(t1, t2)
...     return t0

becomes a computation that is pure

>>> def computation(t0):
...     t1 = prims.strided_slice(t0, starts=(0, 0), stops=(1, 3), steps=(1, 1))
...     t2 = prims.add(t1, 1.0)
...     t3 = prims.put_slice(t0, t2, starts=(0, 0), stops=(1, 3), steps=(1, 1))
...     return (t3,)

and an epilogue that runs eagerly after it, with one `copy_` per mutated input, and every result that shares storage with an input
or with another result of it, as a real view.

>>> def epilogue(t0, t3):
...     prims.copy_(t0, t3)
...     return t0
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.prims import Symbol, Tag
from dovetail.prims.creation import zeros_like
from dovetail.prims.memory import in_layout_of
from dovetail.prims.op import register
from dovetail.prims.shape import flat_reshape
from dovetail.trace.aliases import root_of, shares_history, view_bases, views_in
from dovetail.trace.ir import BoundSymbol, Trace, prims_of, recording, substitute
from dovetail.trace.proxies import NumberProxy, Proxy, TensorProxy, is_proxy, leaves, proxies, tree_map
from dovetail.trace.saved_writes import LaterWrites, later_writes


def functionalize(trace: Trace, *, history: bool = True) -> tuple[Trace, Trace]:
    """Return (computation, epilogue): the computation takes the trace's inputs, the epilogue those and then the computation's outputs.

    Where nothing will be differentiated, `history` False saves what keeps the gradients of values that are written behind autograd's back.
    """
    functionalizer = Functionalizer(trace.derive("functionalize", environment=trace.environment.plain(), saved_writes={}), trace, history)
    functionalizer.extend(trace.lines)
    return functionalizer.finish()


@dataclass
class Written:
    """The lines of an unfinished trace as pure ones, and what became of the storages that they wrote.

    Attributes:
        lines: the pure lines.
        values: each owner of a storage that was written, and what the storage holds.
        views: each view of such a storage, and the line that makes it from its parent, parents first.
        apart: those of them with a history of their own, and the values that it belongs to.
        seen: the owners that were written where autograd sees it.
        read: returns what a value of the trace holds now.
        later: values of the lines, each with later writes into what the line that computes it may save.
    """

    lines: list[BoundSymbol]
    values: dict[Proxy, Proxy]
    views: dict[Proxy, BoundSymbol]
    apart: dict[Proxy, Proxy]
    seen: set[Proxy]
    read: Callable[[Proxy], Proxy]
    later: dict[Proxy, LaterWrites]


def functionalize_so_far(trace: Trace) -> Written:
    """Return what an unfinished trace has computed, without writes."""
    storages = Functionalizer(trace.derive("functionalize", environment=trace.environment.plain(), saved_writes={}), trace, history=True)
    storages.extend(trace.lines)
    with recording(storages.new):
        values = {root: storages.read(root) for root in storages.writes}

    views: dict[Proxy, BoundSymbol] = {}

    def note(p: Proxy) -> None:
        if p in storages.parent and p not in views:
            note(storages.parent[p].args[0])
            views[p] = storages.parent[p]

    for p in storages.parent:
        if storages.root(p) in values:
            note(p)
    with recording(storages.new):
        apart = {p: storages.read(p) for p in views if p in storages.own}
    for p in storages.flowing:
        if isinstance(p, TensorProxy) and not p.spec.requires_grad:
            p.spec = p.spec.like(requires_grad=True)
    return Written(storages.new.lines, values, views, apart, storages.followed, storages.current, storages.new.saved_writes)


def written_inputs(epilogue: Trace) -> list[Proxy]:
    """Return the inputs and constants that an epilogue writes."""
    of = {line.out: line.args[0] for line in epilogue.lines if line.symbol is prims.detach}
    return [of.get(p, p) for line in epilogue.lines if line.mutates for p in line.args[:1]]


def _unseen(x: Any, value: Any) -> Any:
    """x after `value` was written into it behind autograd's back: the numbers of `value`, the history of x."""
    return prims.clone(value)


UNSEEN = register(Symbol("prims", "unseen_write", _unseen))


@UNSEEN.vjp
def _unseen_vjp(g: Any, out: Any, x: Any, value: Any) -> tuple:
    return g, None


def _overwritten(x: Any, value: Any) -> Any:
    """x after all of it was overwritten by `value`, which was not computed from it: the gradient of x is zero, and not absent."""
    return prims.clone(value)


OVERWRITTEN = register(Symbol("prims", "overwritten", _overwritten))


@OVERWRITTEN.vjp
def _overwritten_vjp(g: Any, out: Any, x: Any, value: Any) -> tuple:
    return zeros_like(x), g


class Functionalizer:
    """The pure program of a trace, built line by line: which values view which storage, and what is in it now.

    A root owns its storage, and `writes` counts the writes to it; a proxy whose value belongs to an earlier count is derived again.
    """

    def __init__(self, new: Trace, old: Trace, history: bool):
        self.new, self.old, self.history = new, old, history
        self.later = later_writes(old.lines, old.environment.repeated) if history else {}
        self.provided = {*old.inputs, *old.constants}
        self.parent: dict[Proxy, BoundSymbol] = {}  # a view -> the prim line that makes it from its parent
        self.value: dict[Proxy, Proxy] = {}  # what a proxy of the old trace is now
        self.writes: dict[Proxy, int] = {}  # a root -> how often it was written to
        self.seen: dict[Proxy, int] = {}  # a proxy -> the count that `value` belongs to
        self.followed: set[Proxy] = set()  # roots that were written to where autograd sees it
        self.flowing: set[Proxy] = set()  # values computed here that require grad
        self.own: dict[Proxy, Proxy] = {}  # a view without the history of its root -> what was last written into it that a gradient flows to
        self.bases: dict[Proxy, Proxy] = {}  # the views among the values of earlier programs -> what they are views of
        self.first = 0  # the number of the first line of the new trace that stands for the line that is visited
        self.hidden: set[Proxy] = set()  # views computed inside a line that only its own decomposition sees
        self.unseen: dict[Proxy, Proxy] = {}  # a root that was written behind autograd's back alone -> the numbers in it, without its history
        self.apart: set[Proxy] = set()  # those of them whose `value` is these numbers
        self.sharing: dict[Proxy, set[Proxy]] = {}  # a root -> other roots that are the same memory with another history
        self.stale: set[Proxy] = set()  # roots whose memory was written under another of these names
        self.renewed: dict[Proxy, Proxy] = {}  # such a root -> the argument that it shares its memory with in eager mode

    def extend(self, lines: Iterable[BoundSymbol]) -> None:
        """Add the next lines of the trace, which may have got more inputs since."""
        self.provided.update(self.old.inputs, self.old.constants)
        with recording(self.new):
            for line in lines:
                self.visit(line, outermost=True)
                if id(line) in self.later:
                    self.note_later(self.later[id(line)])

    def note_later(self, writes: LaterWrites) -> None:
        """Remember what is written after a line, for the values that stand for its results."""
        line = writes.line
        for p in (*line.writes, *(line.args[:1] if line.mutates else ())):
            now = self.value.get(p, p)
            if isinstance(now, TensorProxy) and now not in self.provided and self.flows(now):
                self.new.saved_writes[now] = writes

    def current(self, p: Proxy) -> Proxy:
        """Return what a proxy of the trace holds now, as a value of the pure program."""
        if p not in self.parent and p not in self.writes and p not in self.apart:  # nothing is read anew, as for most
            self._check_fresh(p)
            return self.value.get(p, p)
        with recording(self.new):
            return self.read(p)

    def numbers(self, p: Proxy) -> Proxy:
        """Return what a proxy of the trace holds now; of a root that is apart from its history, the numbers in it."""
        return self.unseen[p] if p in self.apart else self.current(p)

    def cut(self) -> None:
        """Begin another program.

        A later line that reads what was written behind autograd's back gives it the history of its root again: so a gradient flows from
        there to the root, and not through what wrote it.  What was written is in no other storage from here on.
        """
        self.value |= self.unseen
        self.apart.update(self.unseen)
        self.bases |= view_bases(self.new.lines)
        with recording(self.new):
            for root in self.writes:
                if (value := self.value.get(root, root)) in self.bases:
                    self.value[root] = copy = prims.clone(value)
                    self.unseen.update({root: copy} if root in self.unseen else {})

    def hide_views(self, roots: Collection[Proxy]) -> None:
        """Derive the views of some storages again where later lines need them."""
        self.hidden.update([p for p in self.parent if self.root(p) in roots] if roots else ())

    def replace(self, p: Proxy, value: Proxy) -> None:
        """Let `p` hold `value` from here on, which has the same numbers; what `p` views, or views it, stays as it is."""
        self.value[p], self.seen[p] = value, self.writes.get(self.root(p), 0)
        self.hidden.discard(p)

    def root(self, p: Proxy) -> Proxy:
        """Return the owner of the storage that `p` looks into."""
        while p in self.parent:
            p = self.parent[p].args[0]
        return p

    def read(self, p: Proxy) -> Proxy:
        """Return what `p` holds now."""
        root = self.root(p)
        self._check_fresh(root)
        count = self.writes.get(root, 0)
        if self.seen.get(p, 0) != count or p in self.hidden:
            view = self.parent[p]
            self.hidden.discard(p)
            base = self.read(view.args[0])
            now = view.symbol(base, **view.kwargs)
            if p in self.own:
                now = UNSEEN(self.own[p], now) if p.spec.strides is None else prims.with_history(now, self.own[p])
                self.flowing.add(now)
            untracked = self.history and _is_untracked(p, view)
            self.value[p], self.seen[p] = prims.detach(now) if untracked else now, count
            if self.flows(base) and not untracked and shares_history(view):
                self.flowing.add(self.value[p])
        if p in self.apart:
            self.apart.discard(p)
            self.value[p] = UNSEEN(p, self.unseen[p])
            self.flowing.add(self.value[p])
        return self.value.get(p, p)

    def write(self, p: Proxy, new: Proxy) -> None:
        """Let `p` and everything it views hold `new` from here on: a fold of put rules up to the root."""
        root = self.root(p)
        self.stale.update(self.sharing.get(root, ()))
        count = self.writes.get(root, 0) + 1
        before = self.read(root) if root in self.apart else self.value.get(root, root)
        chain, unseen, written, flows = [(p, new)], False, new, self.flows(new)
        while p in self.parent:
            view = self.parent[p]
            if not unseen and not shares_history(view):
                chain, unseen = self.keep_history(chain, self.own.get(p)), True
                if self.history and self.flows(chain[-1][1]):
                    self.own[p] = chain[-1][1]
            p, kwargs = self.window(view) if view.symbol is prims.strided_slice else (view.args[0], view.kwargs)
            if p is not view.args[0]:
                new = flat_reshape(new, prims.strided_slice.meta(p.spec, **kwargs).shape)
            old = self.read(p)
            new = written = view.symbol.put_rule(old, new, **kwargs)
            value, flows = new, flows or self.flows(new)
            if unseen and self.history:
                if p.spec.requires_grad:
                    value = UNSEEN(old, new)
                    self.flowing.add(value)
                else:
                    value = prims.detach(new) if flows else new
            chain.append((p, value))
        if not unseen:
            self.followed.add(root)
            chain = self.keep_history(chain, before)
        if chain[-1][1] is not written and unseen and root in self.provided and root not in self.followed and _is_alike(written, root):
            self.unseen[root] = written
        else:
            self.unseen.pop(root, None)
        through = self.history and self.flows(chain[-1][1])
        for p, new in chain:
            if p is not root and through and not unseen and not self.flows(new) and new.spec.dtype.inexact:
                continue  # it requires grad as its root does, and is derived from that where it is read
            if new.spec.strides == p.spec.strides:
                self.value[p], self.seen[p] = new, count
                self.hidden.discard(p)
            elif p is root:
                self.value[p], self.seen[p] = _laid_out(new, p), count
        self.writes[root] = count

    def window(self, part: BoundSymbol) -> tuple[Proxy, dict[str, tuple[int, ...]]]:
        """Return what `part`, a slice, is a slice of and which, seen through views that are slices themselves, as far as that goes."""
        base, window = part.args[0], part.kwargs
        while base in self.parent and (wider := _window_before(self.parent[base], window)) is not None:
            base, window = self.parent[base].args[0], wider
        return base, window

    def flows(self, value: Proxy | None) -> bool:
        """Return whether a value of the new trace requires grad."""
        return value in self.flowing or (isinstance(value, TensorProxy) and value.spec.requires_grad)

    def keep_history(self, chain: list[tuple[Proxy, Proxy]], before: Proxy | None) -> list[tuple[Proxy, Proxy]]:
        """Return `chain`, the values of a written tensor and of all that it views, so that its root still requires grad where it did `before`."""
        root, new = chain[-1]
        if not self.history or not isinstance(new, TensorProxy) or not new.spec.dtype.inexact:
            return chain
        if self.flows(before) and not self.is_computed_from(new, before):
            new = OVERWRITTEN(before, new)
            chain = [(root, new)]  # views of it are derived from it again
        if self.flows(before) or any([self.flows(value) for _, value in chain]):
            self.flowing.add(new)
        return chain

    def is_computed_from(self, new: Proxy, old: Proxy) -> bool:
        """Return whether the lines that stand for the line that is visited compute `new` from `old`, and a gradient may flow on all the way."""
        maker = {p: line for line in prims_of(self.new.lines[self.first :]) for p in line.writes}
        waiting, done = [new], set()
        while waiting:
            p = waiting.pop()
            if p is old:
                return True
            flows = not isinstance(p, TensorProxy) or p.spec.dtype.inexact  # none flows through a comparison
            if p in maker and p not in done and flows:
                done.add(p)
                waiting += maker[p].reads
        return False

    def visit(self, line: BoundSymbol, *, outermost: bool = False) -> None:
        """Add `line` to the new trace, reading values instead of storage; a line that writes is taken apart until the `copy_` shows."""
        self.first = len(self.new.lines) if outermost else self.first
        if line.symbol is prims.copy_:
            self.write(line.args[0], self.read(line.args[1]))
            return
        views = {view.out: view for view in views_in(line)}
        bases = {p: view.args[0] for p, view in views.items()}
        if line.body and (line.mutates or _shares(line, bases)):
            for inner in line.body:
                self.visit(inner)
            return
        env = {p: now for p in line.reads if (now := self.read(p)) is not p}
        reads = set(line.reads)
        if any([isinstance(p, TensorProxy) and now.spec.strides != p.spec.strides for p, now in env.items()]):
            self.new.lines.append(self._respecified(line, env))
            for p in line.writes:
                if p in env:
                    self.value[p] = env[p] if root_of(p, bases) in reads else _laid_out(env[p], p)
        else:
            self.new.lines.append(substitute(line, env))
        for p in line.writes:
            if root_of(p, bases) in reads:
                self._note(p, views)
        self.hidden.difference_update(line.writes)
        if Tag.HISTORY in line.symbol.tags:
            for i in line.kwargs["shared"]:
                self._share(self.root(line.args[i]), line.out[i])
                self.renewed[line.out[i]] = line.args[i]

    def _respecified(self, line: BoundSymbol, env: dict[Proxy, Proxy]) -> BoundSymbol:
        """Substitute as `substitute` does, where values have other strides: what an argument with gaps holds after a write has none.

        Results whose strides follow those are new proxies, which are added to `env`.
        """
        body = tuple([self._respecified(inner, env) for inner in line.body])
        if not body and Tag.GUARD not in line.symbol.tags:
            args, kwargs = tree_map(lambda x: x.spec if is_proxy(x) else x, substitute((line.args, line.kwargs), env))
            specs = [spec for spec in leaves(line.symbol.meta(*args, **kwargs)) if spec is not None]
            for p, spec in zip(proxies(line.out), specs, strict=True):
                if isinstance(p, TensorProxy) and spec.strides != p.spec.strides:
                    env[p] = self.new.tensor(spec.like(requires_grad=p.spec.requires_grad))
        args, kwargs, out, reads = substitute((line.args, line.kwargs, line.out, line.reads), env)
        return line.replace(args=args, kwargs=kwargs, out=out, reads=proxies(reads), body=body)

    def _share(self, root: Proxy, renewed: Proxy) -> None:
        """Remember that `renewed` is the memory of `root` under another name."""
        names = {root, *self.sharing.get(root, ())}
        for other in names:
            self.sharing.setdefault(other, set()).add(renewed)
        self.sharing[renewed] = names

    def _check_fresh(self, root: Proxy) -> None:
        """Refuse to use a tensor whose memory was written under another name."""
        if root in self.stale:
            raise Unsupported(
                "a torch.autograd.Function returned its argument or a view of it, and the program wrote into one of the two and uses the other "
                "afterwards; return a copy, as x.clone(), or use only the result"
            )

    def _note(self, p: Proxy, views: dict[Proxy, BoundSymbol]) -> None:
        """Remember how the result `p` views storage that its line read."""
        while p in views and Tag.WAIT not in views[p].symbol.tags:  # what a collective gives is known as the result of its wait alone
            self.parent[p] = views[p]
            self.seen[p] = self.writes.get(self.root(views[p].args[0]), 0)
            self.hidden.add(p)
            p = views[p].args[0]

    def finish(self) -> tuple[Trace, Trace]:
        """Return the computation, with what it returns, and the epilogue that copies it back and views it."""
        with recording(self.new):
            return self._finish()

    def _finish(self) -> tuple[Trace, Trace]:
        old = self.old
        results = proxies(old.outputs)
        for p in self.stale & {*self.provided, *map(self.root, results)}:
            self._check_fresh(p)
        mutated = [p for p in (*old.inputs, *old.constants) if self.writes.get(p)]
        owned = dict.fromkeys([*mutated, *(r for p in results if (r := self.root(p)) not in self.provided), *filter(self._is_apart, results)])
        returned: dict[Proxy, Proxy] = {}
        storages, copied = set[Proxy](), set(mutated)  # the results have each their own storage; what is copied to an input needs none
        values = {root: self.numbers(root) for root in owned}
        bases = self.bases | view_bases(self.new.lines) if self.writes else {}
        for root, value in values.items():
            storage = root_of(value, bases)
            taken = storage in self.provided or value in set(returned.values()) or (storage in storages and root not in copied)
            returned[root] = _laid_out(prims.clone(value), value) if taken and not isinstance(value, NumberProxy) else value
            if root not in copied and not taken:
                storages.add(storage)
        self.new.outputs = tuple(returned.values())
        epilogue = old.derive("functionalize", name="epilogue", environment=old.environment.plain(), inputs=[*old.inputs, *returned.values()])
        with recording(epilogue):
            for p in mutated:
                prims.copy_(p if p in self.followed else prims.detach(p), returned[p])
            again = {p: self._again(p, returned) for p in results}  # one tensor however often it is returned
            epilogue.outputs = substitute(old.outputs, again)
        return self.new, epilogue

    def _again(self, p: Proxy, returned: dict[Proxy, Proxy]) -> Any:
        """`p` from storage that is real by then: an input's own, or what the computation returned."""
        if p in self.parent:
            view = self.parent[p]
            view_again = view.symbol(self._again(view.args[0], returned), **view.kwargs)
            if p in returned:
                return prims.with_history(view_again, returned[p])
            return prims.detach(view_again) if self.history and _is_untracked(p, view) else view_again
        if p in self.renewed and self._is_real(self.renewed[p], returned):
            memory = self._again(self.renewed[p], returned)
            return prims.with_history(memory, returned[p]) if p in returned else memory
        return p if p in self.provided else returned[p]

    def _is_apart(self, p: Proxy) -> bool:
        """Return whether the history of `p` is that of what was written into a view that does not share the one of its memory."""
        while p in self.parent:
            if not shares_history(self.parent[p]):
                return p in self.own
            p = self.parent[p].args[0]
        return False

    def _is_real(self, p: Proxy, returned: dict[Proxy, Proxy]) -> bool:
        """Return whether there is the storage of `p` when the computation has ended."""
        root = self.root(p)
        return root in self.provided or root in returned or (root in self.renewed and self._is_real(self.renewed[root], returned))


def _is_untracked(p: Proxy, view: BoundSymbol) -> bool:
    """Return whether `p` was computed with grad mode off, of a tensor that requires grad: then no gradient flows through it."""
    base = view.args[0]
    if not shares_history(view) or not (isinstance(p, TensorProxy) and isinstance(base, TensorProxy)):
        return False
    return p.spec.dtype.inexact and base.spec.requires_grad and not p.spec.requires_grad


def _window_before(view: BoundSymbol, window: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]] | None:
    """Return what a window of a view is as one of what that is a view of; None where it is none, or not each of its elements once."""
    if view.symbol is prims.strided_slice and all([step == 1 for step in view.kwargs["steps"]]):
        starts = view.kwargs["starts"]
        moved = {name: tuple([start + n for start, n in zip(starts, window[name], strict=True)]) for name in ("starts", "stops")}
        return window | moved
    if view.symbol is prims.squeeze:
        dims, rank = view.kwargs["dims"], len(view.args[0].spec.shape)
        rows = {name: iter(window[name]) for name in window}
        return {name: tuple([int(name != "starts") if d in dims else next(rows[name]) for d in range(rank)]) for name in window}
    return _window_of_repeated(view, window) if view.symbol is prims.broadcast_in_dim else None


def _window_of_repeated(repeated: BoundSymbol, window: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]] | None:
    """Return what a window of a `repeated` tensor is as one of the tensor, where it has each element of that once."""
    base, shape, dims = repeated.args[0], repeated.kwargs["shape"], repeated.kwargs["dims"]
    kept = {d for d, n in zip(dims, base.spec.shape, strict=True) if n == shape[d]}
    sizes = prims.strided_slice.meta(repeated.out.spec, **window).shape
    if len(kept) == len(shape) or any([n != 1 for d, n in enumerate(sizes) if d not in kept]):
        return None
    return {name: tuple([window[name][d] if d in kept else int(name != "starts") for d in dims]) for name in window}


def _shares(line: BoundSymbol, bases: dict[Proxy, Proxy]) -> bool:
    """Whether two results of `line` view one storage that only its body owns; then the body has to be seen.

    A single result that views such a storage stands for it from then on.
    """
    if len(line.writes) < 2 or not bases:
        return False
    reads = set(line.reads)
    roots = [root for p in line.writes if (root := root_of(p, bases)) not in reads]
    return len(set(roots)) < len(roots)


def _is_alike(value: Proxy, root: Proxy) -> bool:
    return isinstance(value, TensorProxy) and value.spec.strides == root.spec.strides and value.spec.dtype == root.spec.dtype


def _laid_out(new: Proxy, like: Proxy) -> Proxy:
    """`new` in the layout of `like`: another one would show in the strides of later results."""
    return in_layout_of(like, new) if isinstance(new, TensorProxy) else new
