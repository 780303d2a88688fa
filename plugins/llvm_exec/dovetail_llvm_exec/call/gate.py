"""The code of an entry, as IR: one builtin function for all of them, which checks a call's arguments and runs its kernels.

The words of `self` are its fields, then instructions of four words, then rows that these and the steps are described in, by the number of
their first word.  Values stand in numbered slots.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from dovetail_llvm_exec.call.builtin import NULL, Builtin
from dovetail_llvm_exec.ir.module import Value

GRAD_MODE = "_ZN3c108GradMode10is_enabledEv"  # bool c10::GradMode::is_enabled()
AUTOCAST = "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE"  # bool at::autocast::is_autocast_enabled(c10::DeviceType)
DISPATCH_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"  # int64_t c10::impl::TorchDispatchModeTLS::stack_len()
FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"  # int64_t at::impl::PythonTorchFunctionTLS::stack_len()
KEY_INCLUDED = "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE"  # bool c10::impl::tls_is_dispatch_key_included(c10::DispatchKey)
REQUIRES_GRAD = "_ZNK3c1010TensorImpl13requires_gradEv"  # bool c10::TensorImpl::requires_grad() const
READERS = ("get_dtype", "get_dim", "get_sizes", "get_strides", "get_device_type")


class Check(IntEnum):
    """What an instruction does; its words are (this, a, b, c)."""

    ARGUMENT = 0  # slot a = argument b of the call
    ITEM = 1  # slot a = the item c of the dict in slot b
    LOAD = 2  # slot a = the object b
    IS = 3  # slot a holds the object b
    IS_NOT = 4  # slot a holds another object than b
    TYPE = 5  # the type of what slot a holds is b
    SIZE = 6  # what slot a holds has the length b
    TRUTH = 7  # what slot a holds is true, or not, as b says
    TENSOR = 8  # slot a holds a tensor that is what the row b says
    OTHER = 9  # slots a and b hold two objects
    GRAD = 10  # grad mode is a
    AUTOCAST = 11  # autocast is off for every kind of device
    CALLED = 12  # the function a, of no arguments, gives the object b
    CONTAINS = 13  # the dict in slot a has the key b, or not, as c says
    KEYS = 14  # the dict in slot a has the keys, and no others, that the row b says, in that order
    ATTRIBUTE = 15  # slot a = the attribute c of what is in slot b; it is kept until the call ends
    SUBSCRIPT = 16  # the same with the item c
    STATE = 17  # slot a = the tuple of what the row b finds in many objects, kept until the call ends; its items go to slots, too
    EMPTY = 18  # what the row b lists is empty
    MODES = 19  # no mode is on a stack of torch's, and neither of the dispatch keys a and b is included


class Gate(Builtin):
    """Writes the builtin."""

    name = "llvm_entry"
    symbols = (*(f"aoti_torch_{reader}" for reader in READERS), GRAD_MODE, AUTOCAST, REQUIRES_GRAD, DISPATCH_MODES, FUNCTION_MODES, KEY_INCLUDED)
    fields = (
        *("slow", "slots", "checks", "given", "inputs", "steps", "step_row", "program", "results", "result_row", "single", "attributes"),
        *("offset", "dict_type", "tuple_type", "autocasts", "autocast_row", "version"),
    )

    def body(self) -> None:
        b = self.b
        self.room = b.alloca("i64", 1, align=8)
        self.slots, self.kept = self.pointers(self.field("slots")), self.pointers(self.field("attributes"))
        self.keeps = b.alloca("i64", 1, align=8)  # how many objects are kept
        b.store(b.constant(0, "i64"), self.keeps)
        self.require(b.compare("eq", self.count, 2))
        positional, named = (b.load("ptr", b.address(self.args, "ptr", i), align=8) for i in (0, 1))
        self.require(b.compare("eq", self.kind(positional), self.field("tuple_type")))
        self.require(b.compare("eq", self.kind(named), self.field("dict_type")))
        self.require(b.compare("eq", b.call("PyTuple_Size", "i64", positional), self.field("given")))
        self.require(b.compare("eq", b.call("PyDict_Size", "i64", named), 0))
        self._check(positional)
        self._run()
        b.place(self.slow)
        self._forget()
        self.hand_over()

    def slot(self, number: Value) -> Value:
        """What a slot holds."""
        return self.b.load("ptr", self.b.address(self.slots, "ptr", number), align=8)

    def fill(self, number: Value, value: Value) -> None:
        """Put an object into a slot."""
        self.b.store(value, self.b.address(self.slots, "ptr", number), align=8)

    # --- checks

    def _check(self, positional: Value) -> None:
        b = self.b
        with b.loop(0, self.field("checks")) as loop:
            at = b.add(b.mul(loop.index, 4), len(self.fields))
            op, a, x, y = (self.word(b.add(at, i)) for i in range(4))
            labels = {check: b.label(check.name.lower()) for check in Check}
            following = b.label("checked")
            cases = " ".join(f"i64 {int(check)}, label %{label}" for check, label in labels.items())
            b.line(f"switch {op}, label %{self.slow} [{cases}]")
            for check, label in labels.items():
                b.place(label)
                if check is Check.ARGUMENT:
                    self.fill(a, b.call("PyTuple_GetItem", "ptr", positional, x))
                else:
                    WRITE[check](self, a, x, y)
                b.jump(following)
            b.place(following)

    def item(self, a: Value, x: Value, y: Value) -> None:
        """Of exactly a dict, whose look-up runs no foreign code for keys that are strings."""
        held = self.slot(x)
        self.require(self.b.compare("eq", self.kind(held), self.field("dict_type")))
        found = self.b.call("PyDict_GetItem", "ptr", held, self.pointer(y))
        self.require(self.b.compare("ne", self.b.cast("ptrtoint", found, "i64"), 0))
        self.fill(a, found)

    def attribute(self, a: Value, x: Value, y: Value) -> None:
        """As Python finds it; properties may make new objects, so what is found is kept."""
        self._keep(a, self.b.call("PyObject_GetAttr", "ptr", self.slot(x), self.pointer(y)))

    def subscript(self, a: Value, x: Value, y: Value) -> None:
        """Of whatever has items."""
        self._keep(a, self.b.call("PyObject_GetItem", "ptr", self.slot(x), self.pointer(y)))

    def _keep(self, a: Value, found: Value) -> None:
        b = self.b
        self.answered(b.compare("ne", b.cast("ptrtoint", found, "i64"), 0))
        number = b.load("i64", self.keeps, align=8)
        b.store(found, b.address(self.kept, "ptr", number), align=8)
        b.store(b.add(number, 1), self.keeps, align=8)
        self.fill(a, found)

    def _forget(self) -> None:
        """Let attributes go."""
        self._each(self.kept, self.b.load("i64", self.keeps, align=8), "Py_DecRef")

    def _each(self, objects: Value, count: Value, function: str) -> None:
        """Call a function of C with one object after the other."""
        with self.b.loop(0, count) as loop:
            self.b.call(function, "void", self.b.load("ptr", self.b.address(objects, "ptr", loop.index), align=8))

    def pointer(self, word: Value) -> Value:
        """A word as the object that it stands for."""
        return self.b.cast("inttoptr", word, "ptr")

    def same(self, a: Value, other: Value) -> Value:
        """Whether a slot holds the object that a word stands for."""
        return self.b.compare("eq", self.b.cast("ptrtoint", self.slot(a), "i64"), other)

    def size(self, a: Value, x: Value, y: Value) -> None:
        """An object without a length raises, which the slow way does again."""
        found = self.b.call("PyObject_Size", "i64", self.slot(a))
        self.answered(self.b.compare("eq", found, x))

    def truth(self, a: Value, x: Value, y: Value) -> None:
        """The same for an object without truth."""
        found = self.b.cast("sext", self.b.call("PyObject_IsTrue", "i32", self.slot(a)), "i64")
        self.answered(self.b.compare("eq", found, x))

    def called(self, a: Value, x: Value, y: Value) -> None:
        """For functions that give what is there anyway, such as a dtype."""
        b = self.b
        found = b.call("PyObject_CallNoArgs", "ptr", self.pointer(a))
        number = b.cast("ptrtoint", found, "i64")
        self.answered(b.compare("ne", number, 0))
        b.call("Py_DecRef", "void", found)
        self.require(b.compare("eq", number, x))

    def contains(self, a: Value, x: Value, y: Value) -> None:
        """Of exactly a dict."""
        held = self.slot(a)
        self.require(self.b.compare("eq", self.kind(held), self.field("dict_type")))
        found = self.b.cast("sext", self.b.call("PyDict_Contains", "i32", held, self.pointer(x)), "i64")
        self.answered(self.b.compare("eq", found, y))

    def keys(self, a: Value, x: Value, y: Value) -> None:
        """Row: how many, and the very objects.  Of exactly a dict."""
        b, held = self.b, self.slot(a)
        self.require(b.compare("eq", self.kind(held), self.field("dict_type")))
        many = self.word(x)
        self.require(b.compare("eq", b.call("PyDict_Size", "i64", held), many))
        place, key = b.alloca("i64", 1, align=8), b.alloca("i64", 1, align=8)
        b.store(b.constant(0, "i64"), place)
        with b.loop(0, many) as loop:
            b.call("PyDict_Next", "i32", held, place, key, NULL)
            self.require(b.compare("eq", b.load("i64", key, align=8), self.word(b.add(b.add(x, loop.index), 1))))

    def answered(self, condition: Value) -> None:
        """`require`, where an error may have been raised on the way."""
        self.b.branch(condition, lambda: (), lambda: self.b.call("PyErr_Clear", "void") and ())
        self.require(condition)

    def empty(self, a: Value, x: Value, y: Value) -> None:
        """Row: how many, and the containers."""
        b = self.b
        with b.loop(0, self.word(x)) as loop:
            held = self.word(b.add(b.add(x, loop.index), 1), "ptr")
            self.answered(b.compare("eq", b.call("PyObject_IsTrue", "i32", held), 0))

    def state(self, a: Value, x: Value, y: Value) -> None:
        """What a function finds, asked again only where something has changed since.

        Row: the function, where the sum of all versions stands, a list of the tuple that belongs to it, how many objects, tables and slots;
        then what `_versions` reads, and the slots.  Without objects and tables nothing is known, and the function is called each time.
        """
        b = self.b
        total, last, several = self.word(b.add(x, 1), "ptr"), self.word(b.add(x, 2), "ptr"), self.word(b.add(x, 5))
        before = self._versions(x)
        watched = b.compare("ne", before, 0)
        known = b.and_(watched, b.compare("eq", before, b.load("i64", total, align=8)))

        def again() -> list[Value]:
            found = b.call("PyList_GetItem", "ptr", last, b.constant(0, "i64"))
            b.call("Py_IncRef", "void", found)
            return [found]

        def asked() -> list[Value]:
            return [b.call("PyObject_CallNoArgs", "ptr", self.word(x, "ptr"))]

        def remember() -> tuple[()]:
            b.store(before, total, align=8)  # a change while the function ran has made the sum another one already
            b.call("Py_IncRef", "void", found)
            b.call("PyList_SetItem", "i32", last, b.constant(0, "i64"), found)
            return ()

        (found,) = b.branch(known, again, asked)
        self._keep(a, found)
        self.require(b.compare("eq", self.kind(found), self.field("tuple_type")))
        self.require(b.compare("eq", b.call("PyTuple_Size", "i64", found), several))
        b.branch(b.and_(watched, b.not_(known)), remember, ())
        first = b.add(b.add(x, 6), b.add(b.mul(self.word(b.add(x, 3)), 4), self.word(b.add(x, 4))))
        with b.loop(0, several) as loop:
            self.fill(self.word(b.add(first, loop.index)), b.call("PyTuple_GetItem", "ptr", found, loop.index))

    def _versions(self, x: Value) -> Value:
        """The sum of the versions of dictionaries, each of which only grows; of an object: itself, where its dictionary is, class, dictionary."""
        b = self.b
        objects = self.word(b.add(x, 3))
        with b.loop(0, objects, 1, [b.constant(0, "i64")]) as loop:
            at = b.add(b.add(x, 6), b.mul(loop.index, 4))
            held, place, kind, namespace = (self.word(b.add(at, i)) for i in range(4))
            held = self.pointer(held)
            self.require(b.compare("eq", self.kind(held), kind))
            self.require(b.compare("eq", b.load("i64", b.address(held, "i8", place), align=8), namespace))
            loop.update(b.add(loop.carried[0], self._version(namespace)))
        first = b.add(b.add(x, 6), b.mul(objects, 4))
        with b.loop(0, self.word(b.add(x, 4)), 1, [loop.results[0]]) as each:
            each.update(b.add(each.carried[0], self._version(self.word(b.add(first, each.index)))))
        return each.results[0]

    def _version(self, table: Value) -> Value:
        """Of a dictionary, which gets a new one with each change."""
        return self.b.load("i64", self.b.address(self.pointer(table), "i8", self.field("version")), align=8)

    def autocast(self, a: Value, x: Value, y: Value) -> None:
        """One question for each kind of device that has it."""
        b = self.b
        first = self.field("autocast_row")
        with b.loop(0, self.field("autocasts")) as loop:
            device = b.cast("trunc", self.word(b.add(first, loop.index)), "i8")
            self.require(b.not_(self.holds(AUTOCAST, device)))

    def modes(self, a: Value, x: Value, y: Value) -> None:
        """Of this thread."""
        b = self.b
        for stack in (DISPATCH_MODES, FUNCTION_MODES):
            self.require(b.compare("eq", b.call(stack, "i64"), 0))
        for key in (a, x):
            self.require(b.not_(self.holds(KEY_INCLUDED, b.cast("trunc", key, "i16"))))

    def tensor(self, a: Value, x: Value, y: Value) -> None:
        """Row: type, dtype, requires_grad, dimensions, sizes, strides, of which those of dimensions of one element do not count."""
        b, given = self.b, self.slot(a)
        expected = [self.word(b.add(x, i)) for i in range(4)]
        self.require(b.compare("eq", self.kind(given), expected[0]))
        handle = b.address(given, "i8", self.field("offset"))
        cpu = b.constant(0, "i64")
        for name, wanted in (("get_dtype", expected[1]), ("get_device_type", cpu)):
            self.require(b.compare("eq", b.cast("sext", self.asked(name, handle, "i32"), "i64"), wanted))
        self.require(b.compare("eq", self.asked("get_dim", handle, "i64"), expected[3]))
        flag = self.holds(REQUIRES_GRAD, b.load("ptr", handle, align=8))
        self.require(b.compare("eq", b.cast("zext", flag, "i64"), expected[2]))
        sizes, strides = self.asked("get_sizes", handle, "ptr"), self.asked("get_strides", handle, "ptr")
        row = b.address(self.words, "i64", b.add(x, 4))
        with b.loop(0, expected[3]) as loop:
            wanted, size = (b.load("i64", b.address(where, "i64", loop.index), align=8) for where in (row, sizes))
            self.require(b.compare("eq", size, wanted))
            step = b.load("i64", b.address(row, "i64", b.add(expected[3], loop.index)), align=8)
            same = b.compare("eq", b.load("i64", b.address(strides, "i64", loop.index), align=8), step)
            self.require(b.or_(same, b.compare("eq", size, 1)))

    def asked(self, name: str, handle: Value, type: str) -> Value:
        """What torch's C interface says of a tensor."""
        status = self.b.call(f"aoti_torch_{name}", "i32", handle, self.room)
        self.require(self.b.compare("eq", status, 0))
        return self.b.load(type, self.room, align=8)

    # --- what runs

    def _run(self) -> None:
        """The program on the inputs, or kernel after kernel."""
        b = self.b
        inputs, row = self.field("inputs"), b.add(b.mul(self.field("checks"), 4), len(self.fields))
        self.given = self.pointers(inputs)
        with b.loop(0, inputs) as loop:
            b.store(self.slot(self.word(b.add(row, loop.index))), b.address(self.given, "ptr", loop.index), align=8)
        whole, steps = b.label("whole"), b.label("steps")
        b.jump_if(b.compare("eq", self.field("steps"), 0), whole, steps)
        b.place(whole)
        answer = self.vectorcall(self.field("program", "ptr"), self.given, inputs)
        self._forget()
        b.ret(answer)
        b.place(steps)
        self._each(self.given, inputs, "Py_IncRef")
        self.made = self.pointers(self.field("steps"))
        ran = self._steps()
        failed, done = b.label("failed"), b.label("done")
        b.jump_if(b.compare("lt", ran, 0), failed, done)
        b.place(failed)
        b.call("PyErr_Clear", "void")  # the slow way raises it again, from a program that can be read
        self._let_go(inputs, b.sub(b.sub(b.constant(0, "i64"), ran), 1))
        b.jump(self.slow)
        b.place(done)
        result = self._result()
        self._let_go(inputs, self.field("steps"))
        self._forget()
        b.ret(result)

    def _let_go(self, inputs: Value, made: Value) -> None:
        self._each(self.made, made, "Py_DecRef")
        self._each(self.given, inputs, "Py_DecRef")

    def _steps(self) -> Value:
        """Run each step; gives 0, or -1 - n where step n failed.  Row of a step: function, numbers of inputs and outputs, their slots."""
        b = self.b
        room = self.pointers(self.field("slots"))
        broken, over = b.label("broken"), b.label("over")
        with b.loop(0, self.field("steps"), 1, [self.field("step_row")]) as loop:
            row = loop.carried[0]
            inputs, outputs, first = self.word(b.add(row, 1)), self.word(b.add(row, 2)), b.add(row, 3)
            with b.loop(0, inputs) as each:
                b.store(self.slot(self.word(b.add(first, each.index))), b.address(room, "ptr", each.index), align=8)
            made = self.vectorcall(self.word(row, "ptr"), room, inputs)
            going = b.label("going")
            at, index = self.b.alloca("i64", 1, align=8), loop.index
            b.store(index, at, align=8)
            b.jump_if(b.compare("eq", b.cast("ptrtoint", made, "i64"), 0), broken, going)
            b.place(going)
            b.store(made, b.address(self.made, "ptr", index), align=8)
            second = b.add(first, inputs)
            with b.loop(0, outputs) as each:
                self.fill(self.word(b.add(second, each.index)), b.call("PyTuple_GetItem", "ptr", made, each.index))
            loop.update(b.add(second, outputs))
        finished = b.current
        b.jump(over)
        b.place(broken)
        which = b.sub(b.constant(-1, "i64"), b.load("i64", at, align=8))
        b.jump(over)
        b.place(over)
        return b.phi([(b.constant(0, "i64"), finished), (which, broken)])

    def _result(self) -> Value:
        """The slot that is the result, or a tuple of slots."""
        b = self.b
        row = self.field("result_row")

        def one() -> list[Value]:
            found = self.slot(self.word(row))
            b.call("Py_IncRef", "void", found)
            return [found]

        def several() -> list[Value]:
            made = b.call("PyTuple_New", "ptr", self.field("results"))
            with b.loop(0, self.field("results")) as loop:
                found = self.slot(self.word(b.add(row, loop.index)))
                b.call("Py_IncRef", "void", found)
                b.call("PyTuple_SetItem", "i32", made, loop.index, found)
            return [made]

        return b.branch(b.compare("ne", self.field("single"), 0), one, several)[0]


def _grad(gate: Gate, a: Value, x: Value, y: Value) -> None:
    gate.require(gate.b.compare("eq", gate.b.cast("zext", gate.holds(GRAD_MODE), "i64"), a))


def _other(gate: Gate, a: Value, x: Value, y: Value) -> None:
    found = [gate.b.cast("ptrtoint", gate.slot(slot), "i64") for slot in (a, x)]
    gate.require(gate.b.compare("ne", *found))


WRITE: dict[Check, Callable[[Gate, Value, Value, Value], None]] = {
    Check.ITEM: Gate.item,
    Check.LOAD: lambda gate, a, x, y: gate.fill(a, gate.pointer(x)),
    Check.IS: lambda gate, a, x, y: gate.require(gate.same(a, x)),
    Check.IS_NOT: lambda gate, a, x, y: gate.require(gate.b.not_(gate.same(a, x))),
    Check.TYPE: lambda gate, a, x, y: gate.require(gate.b.compare("eq", gate.kind(gate.slot(a)), x)),
    Check.SIZE: Gate.size,
    Check.TRUTH: Gate.truth,
    Check.TENSOR: Gate.tensor,
    Check.OTHER: _other,
    Check.GRAD: _grad,
    Check.AUTOCAST: Gate.autocast,
    Check.CALLED: Gate.called,
    Check.CONTAINS: Gate.contains,
    Check.KEYS: Gate.keys,
    Check.ATTRIBUTE: Gate.attribute,
    Check.SUBSCRIPT: Gate.subscript,
    Check.STATE: Gate.state,
    Check.EMPTY: Gate.empty,
    Check.MODES: Gate.modes,
}
