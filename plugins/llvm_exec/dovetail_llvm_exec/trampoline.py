"""The code between Python and a kernel, as IR: one builtin function serves every kernel, its `self` says which.

`self` is a bytes object of 64-bit words, laid out as FIELDS and then one row for each output: dimensions, dtype, sizes, strides.  The
builtin takes the input tensors, finds their memory through torch's C interface, makes the outputs, runs the kernel, and gives the tuple
of the outputs.  The workspace is allocated for the call; where `workspace` is -1, the last of the inputs is it.  Everything that differs
between processes is in `self`, so the object code can be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_llvm_exec.ir import Module, Value
from dovetail_llvm_exec.target import Target

FIELDS = (
    *("kernel", "inputs", "outputs", "workspace", "release", "parallel", "alone"),
    *("tensor", "parameter", "slow", "failed", "offset", "payload"),
)
NAME = "dovetail_launch"
WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"  # PyObject* THPVariable_Wrap(const at::TensorBase&)
NEGATED = "_ZN2at6native6is_negERKNS_6TensorE"  # bool at::native::is_neg(const at::Tensor&)
THREADS = "_ZN2at15get_num_threadsEv"  # int at::get_num_threads()
SYMBOLS = ("aoti_torch_get_data_ptr", "aoti_torch_empty_strided", "aoti_torch_delete_tensor_object", WRAP, NEGATED, THREADS)


class Launch:
    """Writes the builtin."""

    def __init__(self, target: Target, payload: int):
        self.module = Module(target)
        self.b = self.module.function(NAME, "ptr", [("self", "ptr"), ("args", "ptr"), ("count", "i64")])
        self.payload = payload

    def text(self) -> str:
        """The module."""
        b = self.b
        self.words = b.address(b.params[0], "i8", self.payload)
        inputs, outputs = self.field("inputs"), self.field("outputs")
        total = b.add(b.add(inputs, outputs), 2)
        buffer = b.emit("ptr", f"alloca i64, {total}, align 16")
        handles = b.emit("ptr", f"alloca ptr, {b.add(outputs, 1)}, align 16")
        b.store(b.constant(0, "i64"), buffer)
        places = b.address(buffer, "i64", 2)
        self._read(places, inputs)
        self._make(b.address(places, "i64", inputs), handles, outputs)
        self._run(buffer)
        self._return(buffer, handles, outputs)
        return self.module.text()

    def field(self, name: str, type: str = "i64") -> Value:
        """A word of `self`."""
        return self.b.load(type, self.b.address(self.words, "i64", FIELDS.index(name)), align=8)

    def _read(self, places: Value, inputs: Value) -> None:
        """Where the inputs lie; other objects, and tensors that have no memory or stand for its negative, are for the slow way."""
        b = self.b
        tensor, parameter, offset = self.field("tensor"), self.field("parameter"), self.field("offset")
        with b.loop(0, inputs, 1, [b.constant(True, "i1")]) as loop:
            given = b.load("ptr", b.address(b.params[1], "ptr", loop.index), align=8)
            kind = b.load("i64", b.address(given, "i64", 1), align=8)

            place = b.address(places, "i64", loop.index)

            def look(given: Value = given, place: Value = place) -> Sequence[Value]:
                handle = b.address(given, "i8", offset)
                failure = b.call("aoti_torch_get_data_ptr", "i32", handle, place)
                return [b.and_(b.compare("eq", failure, 0), b.compare("eq", b.and_(b.call(NEGATED, "i8", handle), 1), 0))]

            known = b.or_(b.compare("eq", kind, tensor), b.compare("eq", kind, parameter))
            (plain,) = b.branch(known, look, [b.constant(False, "i1")])
            loop.update(b.and_(loop.carried[0], plain))
        fast, slow = b.label("fast"), b.label("slow")
        b.jump_if(loop.results[0], fast, slow)
        b.place(slow)
        b.ret(b.call("PyObject_Vectorcall", "ptr", self.field("slow", "ptr"), b.params[1], b.params[2], Value("null", "ptr")))
        b.place(fast)

    def _make(self, places: Value, handles: Value, outputs: Value) -> None:
        """The outputs: new tensors, their handles, their memory."""
        b = self.b
        zero = b.constant(0, "i32")
        first = b.address(self.words, "i64", len(FIELDS))
        with b.loop(0, outputs, 1, [first]) as loop:
            row, handle = loop.carried[0], b.address(handles, "ptr", loop.index)
            rank = b.load("i64", row, align=8)
            dtype = b.cast("trunc", b.load("i64", b.address(row, "i64", 1), align=8), "i32")
            sizes = b.address(row, "i64", 2)
            strides = b.address(sizes, "i64", rank)
            b.call("aoti_torch_empty_strided", "i32", rank, sizes, strides, dtype, zero, zero, handle)
            b.call("aoti_torch_get_data_ptr", "i32", b.load("ptr", handle, align=8), b.address(places, "i64", loop.index))
            loop.update(b.address(strides, "i64", rank))

    def _run(self, buffer: Value) -> None:
        b = self.b
        size = self.field("workspace")
        needs = b.compare("gt", size, 0)
        (room,) = b.branch(needs, lambda: [b.call("malloc", "ptr", size)], [Value("null", "ptr")])
        aligned = b.cast("ptrtoint", room, "i64")
        b.store(b.and_(b.add(aligned, 63), -64), b.address(buffer, "i64", 1))
        last = b.address(buffer, "i64", b.add(self.field("inputs"), 1))
        b.branch(b.compare("lt", size, 0), lambda: b.store(b.load("i64", last, align=8), b.address(buffer, "i64", 1)) or (), ())
        serial = b.load("i32", self.field("alone", "ptr"))
        several = b.and_(b.compare("ne", self.field("parallel"), 0), b.compare("eq", serial, 0))
        (threads,) = b.branch(several, lambda: [b.call(THREADS, "i32")], [b.constant(1, "i32")])
        kernel = self.field("kernel", "ptr")

        def call() -> Sequence[Value]:
            b.line(f"call void {kernel.name}({buffer}, {threads})")
            return ()

        def released() -> Sequence[Value]:
            state = b.call("PyEval_SaveThread", "ptr")
            call()
            b.call("PyEval_RestoreThread", "void", state)
            return ()

        b.branch(b.compare("ne", self.field("release"), 0), released, call)
        b.branch(needs, lambda: b.call("free", "void", room) and (), ())

    def _return(self, buffer: Value, handles: Value, outputs: Value) -> None:
        b = self.b
        results = b.call("PyTuple_New", "ptr", outputs)
        with b.loop(0, outputs) as loop:
            handle = b.load("ptr", b.address(handles, "ptr", loop.index), align=8)
            b.call("PyTuple_SetItem", "i32", results, loop.index, b.call(WRAP, "ptr", handle))
            b.call("aoti_torch_delete_tensor_object", "i32", handle)
        status = b.load("i64", buffer, align=8)
        wrong, right = b.label("wrong"), b.label("right")
        b.jump_if(b.compare("ne", status, 0), wrong, right)
        b.place(wrong)
        b.call("Py_DecRef", "void", results)
        number = b.call("PyLong_FromLongLong", "ptr", status)
        said = b.alloca("ptr", 1, align=8)
        b.store(number, said, align=8)
        answer = b.call("PyObject_Vectorcall", "ptr", self.field("failed", "ptr"), said, b.constant(1, "i64"), Value("null", "ptr"))
        b.call("Py_DecRef", "void", number)
        b.ret(answer)
        b.place(right)
        b.ret(results)


def text(target: Target, payload: int) -> str:
    """The module of the builtin; `payload` is where a bytes object holds its bytes."""
    return Launch(target, payload).text()
