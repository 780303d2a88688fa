"""The code of an entry, as IR: one builtin function for all of them, which checks a call's arguments and runs its kernels.

The words of `self` are its fields, then instructions of four words (an index into INSTRUCTIONS, and three operands a, x, y), then rows that
instructions and steps refer to by the number of their first word.  Values stand in numbered slots.
"""

from __future__ import annotations

from collections.abc import Callable

from dovetail_llvm_exec.call import entry_sizes, settled
from dovetail_llvm_exec.call.builtin import NULL
from dovetail_llvm_exec.call.entry_sizes import SizeInstructions
from dovetail_llvm_exec.call.settled import SettledInstructions
from dovetail_llvm_exec.ir.values import Value

GRAD_MODE = "_ZN3c108GradMode10is_enabledEv"  # bool c10::GradMode::is_enabled()
DISPATCH_MODES = "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"  # int64_t c10::impl::TorchDispatchModeTLS::stack_len()
FUNCTION_MODES = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"  # int64_t at::impl::PythonTorchFunctionTLS::stack_len()
KEY_INCLUDED = "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE"  # bool c10::impl::tls_is_dispatch_key_included(c10::DispatchKey)
ALL_EXCLUDED = "_ZN3c104impl31tls_is_dispatch_keyset_excludedENS_14DispatchKeySetE"  # bool c10::impl::tls_is_dispatch_keyset_excluded(DispatchKeySet)
REQUIRES_GRAD = "_ZNK3c1010TensorImpl13requires_gradEv"  # bool c10::TensorImpl::requires_grad() const
ANY = -1  # a stride that does not count
READERS = ("get_dtype", "get_dim", "get_sizes", "get_strides", "get_device_type")


class EntryCode(SizeInstructions, SettledInstructions):
    """Writes the builtin.  Each instruction is a method that writes its code; the docstring names the operands."""

    name = "llvm_entry"
    symbols = (*(f"aoti_torch_{reader}" for reader in READERS), GRAD_MODE, ALL_EXCLUDED, REQUIRES_GRAD, DISPATCH_MODES, FUNCTION_MODES, KEY_INCLUDED)
    fields = (
        *("slow", "slots", "checks", "arguments", "inputs", "steps", "step_row", "program", "results", "result_row", "single", "owned"),
        *("offset", "dict_type", "tuple_type", "version", "registers"),
        *("settled", "seen", "watched", "watched_tables", "watched_classes", "tag"),
    )

    def body(self) -> None:
        b = self.b
        self.room = b.alloca("i64", 1, align=8)
        self.slots, self.owned = self.pointers(self.field("slots")), self.pointers(self.field("owned"))
        self.numbers = self.pointers(self.field("registers"))
        self.owned_count = b.alloca("i64", 1, align=8)
        b.store(b.constant(0, "i64"), self.owned_count)
        self.require(b.compare("eq", self.count, 2))
        self.positional, named = (b.load("ptr", b.address(self.args, "ptr", i), align=8) for i in (0, 1))
        self.require(b.compare("eq", self.kind(self.positional), self.field("tuple_type")))
        self.require(b.compare("eq", self.kind(named), self.field("dict_type")))
        self.require(b.compare("eq", b.call("PyTuple_Size", "i64", self.positional), self.field("arguments")))
        self.require(b.compare("eq", b.call("PyDict_Size", "i64", named), 0))
        self._checks()
        self._run()
        b.place(self.slow)
        self._release_owned()
        self.hand_over()

    def slot(self, number: Value) -> Value:
        """Return the object in a slot."""
        return self.b.load("ptr", self.b.address(self.slots, "ptr", number), align=8)

    def fill(self, number: Value, value: Value) -> None:
        """Put an object into a slot."""
        self.b.store(value, self.b.address(self.slots, "ptr", number), align=8)

    # --- checks

    def _checks(self) -> None:
        """Run one instruction after the other, without the settled ones where what they depend on is as it was when they held."""
        b, seen = self.b, self.field("seen", "ptr")
        now = self.watched_versions()  # before the checks: a change while they run makes another number
        same = b.and_(b.compare("ne", now, 0), b.compare("eq", now, b.load("i64", seen, align=8)))
        with b.loop(b.select(same, self.field("settled"), b.constant(0, "i64")), self.field("checks")) as loop:
            at = b.add(b.mul(loop.index, 4), len(self.fields))
            op, a, x, y = (self.word(b.add(at, i)) for i in range(4))
            labels = [b.label(write.__name__) for write in INSTRUCTIONS]
            following = b.label("checked")
            cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(labels))
            b.line(f"switch {op}, label %{self.slow} [{cases}]")
            for write, label in zip(INSTRUCTIONS, labels, strict=True):
                b.place(label)
                write(self, a, x, y)
                b.jump(following)
            b.place(following)
        b.store(now, seen, align=8)

    def argument(self, a: Value, x: Value, y: Value) -> None:
        """Load argument x of the call into slot a."""
        self.fill(a, self.b.call("PyTuple_GetItem", "ptr", self.positional, x))

    def dict_item(self, a: Value, x: Value, y: Value) -> None:
        """Load item y of the dict in slot x into slot a: of exactly a dict, whose look-up runs no foreign code for keys that are strings."""
        container = self.slot(x)
        self.require(self.b.compare("eq", self.kind(container), self.field("dict_type")))
        value = self.b.call("PyDict_GetItemWithError", "ptr", container, self.pointer(y))
        self.require_no_error(self.b.compare("ne", self.b.cast("ptrtoint", value, "i64"), 0))
        self.fill(a, value)

    def load(self, a: Value, x: Value, y: Value) -> None:
        """Load the object x into slot a."""
        self.fill(a, self.pointer(x))

    def attribute(self, a: Value, x: Value, y: Value) -> None:
        """Load attribute y of the object in slot x into slot a; properties may make new objects, so the entry owns it until the call ends."""
        self._own(a, self.b.call("PyObject_GetAttr", "ptr", self.slot(x), self.pointer(y)))

    def subscript(self, a: Value, x: Value, y: Value) -> None:
        """Load item y of the object in slot x, of whatever class, into slot a; the entry owns it."""
        self._own(a, self.b.call("PyObject_GetItem", "ptr", self.slot(x), self.pointer(y)))

    def convert(self, a: Value, x: Value, y: Value) -> None:
        """Load what the function y returns for the object in slot x into slot a; the entry owns it."""
        self._own(a, self.b.call("PyObject_CallOneArg", "ptr", self.pointer(y), self.slot(x)))

    def pack(self, a: Value, x: Value, y: Value) -> None:
        """Put the objects in the slots of row x into a tuple in slot a; the entry owns it.  Row: how many, and the slots."""
        b, many = self.b, self.word(x)
        packed = b.call("PyTuple_New", "ptr", many)
        self._own(a, packed)
        with b.loop(0, many) as loop:
            item = self.slot(self.word(b.add(b.add(x, 1), loop.index)))
            b.call("Py_IncRef", "void", item)
            b.call("PyTuple_SetItem", "i32", packed, loop.index, item)

    def _own(self, a: Value, value: Value) -> None:
        b = self.b
        self.require_no_error(b.compare("ne", b.cast("ptrtoint", value, "i64"), 0))
        number = b.load("i64", self.owned_count, align=8)
        b.store(value, b.address(self.owned, "ptr", number), align=8)
        b.store(b.add(number, 1), self.owned_count, align=8)
        self.fill(a, value)

    def _release_owned(self) -> None:
        self._each(self.owned, self.b.load("i64", self.owned_count, align=8), "Py_DecRef")

    def _each(self, objects: Value, count: Value, function: str) -> None:
        """Call a function of C with one object after the other."""
        with self.b.loop(0, count) as loop:
            self.b.call(function, "void", self.b.load("ptr", self.b.address(objects, "ptr", loop.index), align=8))

    def pointer(self, word: Value) -> Value:
        """Return a word as the object that it stands for."""
        return self.b.cast("inttoptr", word, "ptr")

    def _is_same(self, a: Value, x: Value) -> Value:
        return self.b.compare("eq", self.b.cast("ptrtoint", self.slot(a), "i64"), x)

    def is_object(self, a: Value, x: Value, y: Value) -> None:
        """Require that slot a holds the object x."""
        self.require(self._is_same(a, x))

    def holds_word(self, a: Value, x: Value, y: Value) -> None:
        """Require that the word at the address a is x."""
        self.require(self.b.compare("eq", self.b.load("i64", self.pointer(a), align=8), x))

    def is_other_object(self, a: Value, x: Value, y: Value) -> None:
        """Require that slot a holds another object than x."""
        self.require(self.b.not_(self._is_same(a, x)))

    def has_type(self, a: Value, x: Value, y: Value) -> None:
        """Require that the object in slot a is of exactly the type x."""
        self.require(self.b.compare("eq", self.kind(self.slot(a)), x))

    def size(self, a: Value, x: Value, y: Value) -> None:
        """Require that the object in slot a has the length x; one without a length raises, as it does again on the slow path."""
        length = self.b.call("PyObject_Size", "i64", self.slot(a))
        self.require_no_error(self.b.compare("eq", length, x))

    def truth(self, a: Value, x: Value, y: Value) -> None:
        """Require that the object in slot a is true where x is 1, false where it is 0."""
        value = self.b.cast("sext", self.b.call("PyObject_IsTrue", "i32", self.slot(a)), "i64")
        self.require_no_error(self.b.compare("eq", value, x))

    def call_returns(self, a: Value, x: Value, y: Value) -> None:
        """Require that the function a, of no arguments, returns the object x, which lives anyway, as a dtype does."""
        b = self.b
        value = b.call("PyObject_CallNoArgs", "ptr", self.pointer(a))
        number = b.cast("ptrtoint", value, "i64")
        self.require_no_error(b.compare("ne", number, 0))
        b.call("Py_DecRef", "void", value)
        self.require(b.compare("eq", number, x))

    def contains(self, a: Value, x: Value, y: Value) -> None:
        """Require that the dict in slot a has the key x where y is 1, and not where it is 0."""
        container = self.slot(a)
        self.require(self.b.compare("eq", self.kind(container), self.field("dict_type")))
        present = self.b.cast("sext", self.b.call("PyDict_Contains", "i32", container, self.pointer(x)), "i64")
        self.require_no_error(self.b.compare("eq", present, y))

    def keys(self, a: Value, x: Value, y: Value) -> None:
        """Require that the dict in slot a has the keys of row x in their order.  Row: how many, and the objects."""
        b, container = self.b, self.slot(a)
        self.require(b.compare("eq", self.kind(container), self.field("dict_type")))
        many = self.word(x)
        self.require(b.compare("eq", b.call("PyDict_Size", "i64", container), many))
        place, key = b.alloca("i64", 1, align=8), b.alloca("i64", 1, align=8)
        b.store(b.constant(0, "i64"), place)
        with b.loop(0, many) as loop:
            b.call("PyDict_Next", "i32", container, place, key, NULL)
            self.require(b.compare("eq", b.load("i64", key, align=8), self.word(b.add(b.add(x, loop.index), 1))))

    def require_no_error(self, condition: Value) -> None:
        """Emit `require`, and clear the exception that may have been raised where the condition does not hold."""
        self.b.branch(condition, lambda: (), lambda: self.b.call("PyErr_Clear", "void") and ())
        self.require(condition)

    def empty(self, a: Value, x: Value, y: Value) -> None:
        """Require that the containers of row x are empty.  Row: how many, and the containers."""
        b = self.b
        with b.loop(0, self.word(x)) as loop:
            container = self.word(b.add(b.add(x, loop.index), 1), "ptr")
            self.require_no_error(b.compare("eq", b.call("PyObject_IsTrue", "i32", container), 0))

    def module_state(self, a: Value, x: Value, y: Value) -> None:
        """Load the tuple that a function returns into slot a, calling it again only after a change; its items go to the slots of row x.

        Row: the function, the address of the sum of all versions, a list of the tuple that belongs to it, how many objects, tables and slots;
        then what `_versions` reads, and the slots.  Without objects and tables the function is called each time.
        """
        b = self.b
        total, last, several = self.word(b.add(x, 1), "ptr"), self.word(b.add(x, 2), "ptr"), self.word(b.add(x, 5))
        before = self._versions(x)
        watched = b.compare("ne", before, 0)
        unchanged = b.and_(watched, b.compare("eq", before, b.load("i64", total, align=8)))

        def reuse() -> list[Value]:
            value = b.call("PyList_GetItem", "ptr", last, b.constant(0, "i64"))
            b.call("Py_IncRef", "void", value)
            return [value]

        def call() -> list[Value]:
            return [b.call("PyObject_CallNoArgs", "ptr", self.word(x, "ptr"))]

        def remember() -> tuple[()]:
            b.store(before, total, align=8)  # a change while the function ran has made the sum another one already
            b.call("Py_IncRef", "void", state)
            b.call("PyList_SetItem", "i32", last, b.constant(0, "i64"), state)
            return ()

        (state,) = b.branch(unchanged, reuse, call)
        self._own(a, state)
        self.require(b.compare("eq", self.kind(state), self.field("tuple_type")))
        self.require(b.compare("eq", b.call("PyTuple_Size", "i64", state), several))
        b.branch(b.and_(watched, b.not_(unchanged)), remember, ())
        first = b.add(b.add(x, 6), b.add(b.mul(self.word(b.add(x, 3)), 4), self.word(b.add(x, 4))))
        with b.loop(0, several) as loop:
            self.fill(self.word(b.add(first, loop.index)), b.call("PyTuple_GetItem", "ptr", state, loop.index))

    def _versions(self, x: Value) -> Value:
        """Return the sum of the versions of dictionaries, each of which only grows.

        Of an object, the row has: itself, the offset of its dictionary, its class, its dictionary.
        """
        b = self.b
        objects = self.word(b.add(x, 3))
        with b.loop(0, objects, 1, [b.constant(0, "i64")]) as loop:
            at = b.add(b.add(x, 6), b.mul(loop.index, 4))
            instance, place, kind, namespace = (self.word(b.add(at, i)) for i in range(4))
            instance = self.pointer(instance)
            self.require(b.compare("eq", self.kind(instance), kind))
            self.require(b.compare("eq", b.load("i64", b.address(instance, "i8", place), align=8), namespace))
            loop.update(b.add(loop.carried[0], self.version(namespace)))
        first = b.add(b.add(x, 6), b.mul(objects, 4))
        with b.loop(0, self.word(b.add(x, 4)), 1, [loop.results[0]]) as each:
            each.update(b.add(each.carried[0], self.version(self.word(b.add(first, each.index)))))
        return each.results[0]

    def grad_mode(self, a: Value, x: Value, y: Value) -> None:
        """Require that grad mode is on where a is 1, off where it is 0."""
        self.require(self.b.compare("eq", self.b.cast("zext", self.holds(GRAD_MODE), "i64"), a))

    def no_autocast(self, a: Value, x: Value, y: Value) -> None:
        """Require that all dispatch keys whose bits are set in a are excluded, as those of autocast are where it is off."""
        self.require(self.holds(ALL_EXCLUDED, a))

    def no_modes(self, a: Value, x: Value, y: Value) -> None:
        """Require that no mode of torch's is on a stack of this thread, and that neither of the dispatch keys a and x is included."""
        b = self.b
        for stack in (DISPATCH_MODES, FUNCTION_MODES):
            self.require(b.compare("eq", b.call(stack, "i64"), 0))
        for key in (a, x):
            self.require(b.not_(self.holds(KEY_INCLUDED, b.cast("trunc", key, "i16"))))

    def distinct(self, a: Value, x: Value, y: Value) -> None:
        """Require that slots a and x hold two objects."""
        one, other = [self.b.cast("ptrtoint", self.slot(slot), "i64") for slot in (a, x)]
        self.require(self.b.compare("ne", one, other))

    def tensor(self, a: Value, x: Value, y: Value) -> None:
        """Require that slot a holds a tensor on the CPU as row x describes it.

        Row: type, dtype, requires_grad, dimensions, sizes, strides; a stride of ANY does not count.
        """
        first = self.b.add(x, 4)
        self._is_tensor(a, x, lambda number: self.word(self.b.add(first, number)))

    def sized_tensor(self, a: Value, x: Value, y: Value) -> None:
        """Require that slot a holds a tensor as `tensor` does; a size or a stride of the row is a pair: 0 and a number, or 1 and a register."""
        b, first = self.b, self.b.add(x, 4)

        def read(number: Value) -> Value:
            at = b.add(first, b.mul(number, 2))
            in_register, word = b.compare("ne", self.word(at), 0), self.word(b.add(at, 1))
            return b.select(in_register, self.number(b.select(in_register, word, b.constant(0, "i64"))), word)

        self._is_tensor(a, x, read)

    def _is_tensor(self, a: Value, x: Value, layout: Callable[[Value], Value]) -> None:
        b, tensor = self.b, self.slot(a)
        expected = [self.word(b.add(x, i)) for i in range(4)]
        self.require(b.compare("eq", self.kind(tensor), expected[0]))
        handle = b.address(tensor, "i8", self.field("offset"))
        cpu = b.constant(0, "i64")
        for name, wanted in (("get_dtype", expected[1]), ("get_device_type", cpu)):
            self.require(b.compare("eq", b.cast("sext", self.read(name, handle, "i32"), "i64"), wanted))
        self.require(b.compare("eq", self.read("get_dim", handle, "i64"), expected[3]))
        flag = self.holds(REQUIRES_GRAD, b.load("ptr", handle, align=8))
        self.require(b.compare("eq", b.cast("zext", flag, "i64"), expected[2]))
        sizes, strides = self.read("get_sizes", handle, "ptr"), self.read("get_strides", handle, "ptr")
        with b.loop(0, expected[3]) as loop:
            size = b.load("i64", b.address(sizes, "i64", loop.index), align=8)
            self.require(b.compare("eq", size, layout(loop.index)))
            step = layout(b.add(expected[3], loop.index))
            same = b.compare("eq", b.load("i64", b.address(strides, "i64", loop.index), align=8), step)
            self.require(b.or_(same, b.compare("eq", step, ANY)))

    def read(self, name: str, handle: Value, type: str) -> Value:
        """Return a property of a tensor by torch's C interface."""
        status = self.b.call(f"aoti_torch_{name}", "i32", handle, self.room)
        self.require(self.b.compare("eq", status, 0))
        return self.b.load(type, self.room, align=8)

    # --- what runs

    def _run(self) -> None:
        """Run the program on the inputs, or kernel after kernel."""
        b = self.b
        inputs, row = self.field("inputs"), b.add(b.mul(self.field("checks"), 4), len(self.fields))
        self.inputs = self.pointers(inputs)
        with b.loop(0, inputs) as loop:
            b.store(self.slot(self.word(b.add(row, loop.index))), b.address(self.inputs, "ptr", loop.index), align=8)
        whole, steps = b.label("whole"), b.label("steps")
        b.jump_if(b.compare("eq", self.field("steps"), 0), whole, steps)
        b.place(whole)
        result = self.vectorcall(self.field("program", "ptr"), self.inputs, inputs)
        self._release_owned()
        b.ret(result)
        b.place(steps)
        self._each(self.inputs, inputs, "Py_IncRef")
        self.outputs = self.pointers(self.field("steps"))
        ran = self._steps()
        failed, done = b.label("failed"), b.label("done")
        b.jump_if(b.compare("lt", ran, 0), failed, done)
        b.place(failed)
        b.call("PyErr_Clear", "void")  # the slow path raises it again, from a program that can be read
        self._release(inputs, b.sub(b.sub(b.constant(0, "i64"), ran), 1))
        b.jump(self.slow)
        b.place(done)
        result = self._result()
        self._release(inputs, self.field("steps"))
        self._release_owned()
        b.ret(result)

    def _release(self, inputs: Value, outputs: Value) -> None:
        self._each(self.outputs, outputs, "Py_DecRef")
        self._each(self.inputs, inputs, "Py_DecRef")

    def _steps(self) -> Value:
        """Run each step; return 0, or -1 - n where step n failed.  Row of a step: function, numbers of inputs and outputs, their slots."""
        b = self.b
        room = self.pointers(self.field("slots"))
        broken, over = b.label("broken"), b.label("over")
        with b.loop(0, self.field("steps"), 1, [self.field("step_row")]) as loop:
            row = loop.carried[0]
            inputs, outputs, first = self.word(b.add(row, 1)), self.word(b.add(row, 2)), b.add(row, 3)
            with b.loop(0, inputs) as each:
                b.store(self.slot(self.word(b.add(first, each.index))), b.address(room, "ptr", each.index), align=8)
            results = self.vectorcall(self.word(row, "ptr"), room, inputs)
            going = b.label("going")
            at, index = self.b.alloca("i64", 1, align=8), loop.index
            b.store(index, at, align=8)
            b.jump_if(b.compare("eq", b.cast("ptrtoint", results, "i64"), 0), broken, going)
            b.place(going)
            b.store(results, b.address(self.outputs, "ptr", index), align=8)
            second = b.add(first, inputs)
            with b.loop(0, outputs) as each:
                self.fill(self.word(b.add(second, each.index)), b.call("PyTuple_GetItem", "ptr", results, each.index))
            loop.update(b.add(second, outputs))
        finished = b.current
        b.jump(over)
        b.place(broken)
        which = b.sub(b.constant(-1, "i64"), b.load("i64", at, align=8))
        b.jump(over)
        b.place(over)
        return b.phi([(b.constant(0, "i64"), finished), (which, broken)])

    def _result(self) -> Value:
        """Return the slot that is the result, or a tuple of slots."""
        b = self.b
        row = self.field("result_row")

        def one() -> list[Value]:
            value = self.slot(self.word(row))
            b.call("Py_IncRef", "void", value)
            return [value]

        def several() -> list[Value]:
            values = b.call("PyTuple_New", "ptr", self.field("results"))
            with b.loop(0, self.field("results")) as loop:
                value = self.slot(self.word(b.add(row, loop.index)))
                b.call("Py_IncRef", "void", value)
                b.call("PyTuple_SetItem", "i32", values, loop.index, value)
            return [values]

        return b.branch(b.compare("ne", self.field("single"), 0), one, several)[0]


INSTRUCTIONS: tuple[Callable[[EntryCode, Value, Value, Value], None], ...] = (
    EntryCode.argument,
    EntryCode.dict_item,
    EntryCode.load,
    EntryCode.is_object,
    EntryCode.holds_word,
    EntryCode.is_other_object,
    EntryCode.has_type,
    EntryCode.size,
    EntryCode.truth,
    EntryCode.tensor,
    EntryCode.distinct,
    EntryCode.grad_mode,
    EntryCode.no_autocast,
    EntryCode.call_returns,
    EntryCode.contains,
    EntryCode.keys,
    EntryCode.attribute,
    EntryCode.subscript,
    EntryCode.convert,
    EntryCode.pack,
    EntryCode.module_state,
    EntryCode.empty,
    EntryCode.no_modes,
    EntryCode.sized_tensor,
    *entry_sizes.INSTRUCTIONS,
    *settled.INSTRUCTIONS,
)
