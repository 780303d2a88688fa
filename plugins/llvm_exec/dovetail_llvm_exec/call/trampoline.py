"""The code between Python and a kernel, as IR: one builtin function serves every kernel, its `self` says which.

The words of `self` are its fields and then one row for each output: dimensions, dtype, sizes, strides.  The builtin takes the input tensors,
finds their memory through torch's C interface, makes the outputs, runs the kernel, and gives the tuple of the outputs.  The workspace is
allocated for the call; where `workspace` is -1, the last of the inputs is it.  A kernel for many sizes has another builtin, which reads the sizes
off the inputs, and gets what else differs between calls from `shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_llvm_exec.call.builtin import Builtin
from dovetail_llvm_exec.call.shapes import HEAD
from dovetail_llvm_exec.ir.values import Value

WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"  # PyObject* THPVariable_Wrap(const at::TensorBase&)
NEGATED = "_ZN2at6native6is_negERKNS_6TensorE"  # bool at::native::is_neg(const at::Tensor&)
ZEROS = "_ZN2at6native14_is_zerotensorERKNS_6TensorE"  # bool at::native::_is_zerotensor(const at::Tensor&)
THREADS = "_ZN2at15get_num_threadsEv"  # int at::get_num_threads()
SIZES = "aoti_torch_get_sizes"
MAKE, LET_GO, PLACE = "aoti_torch_empty_strided", "aoti_torch_delete_tensor_object", "aoti_torch_get_data_ptr"


class Launch(Builtin):
    """Writes the builtin."""

    name = "llvm_kernel"  # also an attribute of what a kernel is remade as in another process
    symbols = (MAKE, LET_GO, PLACE, WRAP, NEGATED, ZEROS, THREADS)
    fields = (
        *("kernel", "table", "inputs", "outputs", "workspace", "release", "parallel", "alone"),
        *("tensor", "parameter", "slow", "failed", "offset"),
    )

    def body(self) -> None:
        b = self.b
        inputs, outputs = self.field("inputs"), self.field("outputs")
        words = b.add(b.add(inputs, outputs), self.more_words())
        buffer = b.emit("ptr", f"alloca i64, {words}, align 16")  # status, workspace, inputs, outputs, symbols of sizes
        self.handles = self.pointers(outputs)
        self.output_count = b.alloca("i64", 1, align=8)  # how many of the outputs there are
        b.store(b.constant(0, "i64"), buffer)
        b.store(b.constant(0, "i64"), self.output_count)
        places = b.address(buffer, "i64", 2)
        self._read(places, inputs)
        self.compute_shapes(buffer, b.add(inputs, outputs))
        self._make(b.address(places, "i64", inputs), outputs)
        self._run(buffer)
        self._return(buffer, outputs)
        b.place(self.slow)
        with b.loop(0, b.load("i64", self.output_count, align=8)) as loop:
            b.call(LET_GO, "i32", self.handle(loop.index))
        self.hand_over()

    def more_words(self) -> Value | int:
        """Return how many words `run` gets beside the addresses of inputs and outputs."""
        return 2

    def compute_shapes(self, buffer: Value, tensors: Value) -> None:
        """Set where the rows of the outputs are, the bytes of the workspace, and whether other threads of Python may run."""
        self.rows = self.b.address(self.words, "i64", len(self.fields))
        self.workspace, self.release = self.field("workspace"), self.field("release")

    def handle(self, number: Value) -> Value:
        """Return the handle of an output."""
        return self.b.load("ptr", self.b.address(self.handles, "ptr", number), align=8)

    def _read(self, places: Value, inputs: Value) -> None:
        """Read where the inputs lie; leave other objects, and tensors without memory or with a pending sign, to the slow way."""
        b = self.b
        tensor, parameter, offset = self.field("tensor"), self.field("parameter"), self.field("offset")
        with b.loop(0, inputs) as loop:
            argument = b.load("ptr", b.address(self.args, "ptr", loop.index), align=8)
            kind = self.kind(argument)
            self.require(b.or_(b.compare("eq", kind, tensor), b.compare("eq", kind, parameter)))
            handle = b.address(argument, "i8", offset)
            self.require(b.compare("eq", b.call(PLACE, "i32", handle, b.address(places, "ptr", loop.index)), 0))
            for property in (NEGATED, ZEROS):
                self.require(b.not_(self.holds(property, handle)))

    def _make(self, places: Value, outputs: Value) -> None:
        """Make the outputs: new tensors, their handles, their memory; the slow way reports where there is no more of it."""
        b = self.b
        zero = b.constant(0, "i32")
        with b.loop(0, outputs, 1, [self.rows]) as loop:
            row, handle = loop.carried[0], b.address(self.handles, "ptr", loop.index)
            rank = b.load("i64", row, align=8)
            dtype = b.cast("trunc", b.load("i64", b.address(row, "i64", 1), align=8), "i32")
            sizes = b.address(row, "i64", 2)
            strides = b.address(sizes, "i64", rank)
            self.require(b.compare("eq", b.call(MAKE, "i32", rank, sizes, strides, dtype, zero, zero, handle), 0))
            b.store(b.add(loop.index, 1), self.output_count, align=8)
            b.call(PLACE, "i32", self.handle(loop.index), b.address(places, "i64", loop.index))
            loop.update(b.address(strides, "i64", rank))

    def _room(self, size: Value) -> Sequence[Value]:
        """Allocate memory for the workspace."""
        pointer = self.b.call("malloc", "ptr", size)
        self.require(self.b.compare("ne", self.b.cast("ptrtoint", pointer, "i64"), 0))
        return [pointer]

    def _run(self, buffer: Value) -> None:
        b = self.b
        size = self.workspace
        needs = b.compare("gt", size, 0)
        (room,) = b.branch(needs, lambda: self._room(size), [Value("null", "ptr")])
        aligned = b.cast("ptrtoint", room, "i64")
        b.store(b.and_(b.add(aligned, 63), -64), b.address(buffer, "i64", 1))
        last = b.address(buffer, "i64", b.add(self.field("inputs"), 1))
        b.branch(b.compare("lt", size, 0), lambda: b.store(b.load("i64", last, align=8), b.address(buffer, "i64", 1)) or (), ())
        serial = b.load("i32", self.field("alone", "ptr"))
        several = b.and_(b.compare("ne", self.field("parallel"), 0), b.compare("eq", serial, 0))
        (threads,) = b.branch(several, lambda: [b.call(THREADS, "i32")], [b.constant(1, "i32")])
        kernel, table = self.field("kernel", "ptr"), self.field("table", "ptr")

        def call() -> Sequence[Value]:
            b.line(f"call void {kernel.name}({buffer}, {threads}, {table})")
            return ()

        def released() -> Sequence[Value]:
            state = b.call("PyEval_SaveThread", "ptr")
            call()
            b.call("PyEval_RestoreThread", "void", state)
            return ()

        b.branch(b.compare("ne", self.release, 0), released, call)
        b.branch(needs, lambda: b.call("free", "void", room) and (), ())

    def _return(self, buffer: Value, outputs: Value) -> None:
        b = self.b
        results = b.call("PyTuple_New", "ptr", outputs)
        with b.loop(0, outputs) as loop:
            handle = self.handle(loop.index)
            b.call("PyTuple_SetItem", "i32", results, loop.index, b.call(WRAP, "ptr", handle))
            b.call(LET_GO, "i32", handle)
        status = b.load("i64", buffer, align=8)
        wrong, right = b.label("wrong"), b.label("right")
        b.jump_if(b.compare("ne", status, 0), wrong, right)
        b.place(wrong)
        b.call("Py_DecRef", "void", results)
        number = b.call("PyLong_FromLongLong", "ptr", status)
        message = b.alloca("ptr", 1, align=8)
        b.store(number, message, align=8)
        answer = self.vectorcall(self.field("failed", "ptr"), message, b.constant(1, "i64"))
        b.call("Py_DecRef", "void", number)
        b.ret(answer)
        b.place(right)
        b.ret(results)


class SizedLaunch(Launch):
    """Writes the builtin for kernels of many sizes.

    The rows of its `self` are places of symbols: the number of an input, a dimension, and what to subtract from its size and to divide by.
    A symbol that is an input itself, an int, has the dimension -1.  Behind them is the kernel's recipe for `shapes`.
    """

    symbols = (*Launch.symbols, SIZES)
    fields = (*Launch.fields, "places", "computed", "shapes", "row_words", "large")

    def more_words(self) -> Value | int:
        return self.b.add(self.b.add(self.field("places"), self.field("computed")), 2)

    def compute_shapes(self, buffer: Value, tensors: Value) -> None:
        """Read the symbols, and compute the other sizes and the rows; what is large is left to the slow way, which has a pool for it."""
        b, room = self.b, self.b.alloca("ptr", 1, align=8)
        with b.loop(0, self.field("places")) as loop:
            at = b.add(b.mul(loop.index, 4), len(self.fields))
            number, dim, constant, factor = (self.word(b.add(at, i)) for i in range(4))
            value = b.load("ptr", b.address(self.args, "ptr", number), align=8)

            def read(value: Value = value, dim: Value = dim) -> Sequence[Value]:
                self.require(b.compare("eq", b.call(SIZES, "i32", b.address(value, "i8", self.field("offset")), room), 0))
                return [b.load("i64", b.address(b.load("ptr", room, align=8), "i64", dim), align=8)]

            def convert(value: Value = value) -> Sequence[Value]:
                return [b.call("PyLong_AsLongLong", "i64", value)]

            (size,) = b.branch(b.compare("ge", dim, 0), read, convert)
            b.store(b.div(b.sub(size, constant), factor), b.address(buffer, "i64", b.add(b.add(tensors, loop.index), 2)), align=8)
        count, shapes = self.field("row_words"), self.field("shapes", "ptr")
        rows = b.emit("ptr", f"alloca i64, {count}, align 16")
        recipe = b.address(self.words, "i64", b.add(b.mul(self.field("places"), 4), len(self.fields)))
        b.line(f"call void {shapes.name}({buffer}, {recipe}, {rows}, {count})")
        self.workspace, cost, bytes = (b.load("i64", b.address(rows, "i64", i), align=8) for i in range(HEAD))
        self.release = b.cast("zext", b.compare("ge", cost, self.field("release")), "i64")
        self.require(b.compare("lt", bytes, self.field("large")))
        self.rows = b.address(rows, "i64", HEAD)
