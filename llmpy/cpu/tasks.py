"""Tasks shared out among the threads by one loop, compiled once for all kernels that use it.

A kernel is a function of three integers, `kernel` in jit.py: the address of its arguments, which
are integers too, the number of the task, and that of the thread. The loop calls it by its address.
A prange of its own would have Numba compile a kernel three times: by itself, within the body of the
loop, and within the function around that.
"""

import ctypes
from array import array
from functools import cache

from llvmlite import ir
from numba import config, get_thread_id, prange, types
from numba.core.errors import RequireLiteralValue

from .jit import parallel
from .simd import f32, i64, with_twin

KERNEL = (types.intp, types.intp, types.intp)  # arguments, task, thread


def _define_numbers(kind, llvm_kind, c_kind, name):
    """Define the intrinsic that gives the `count` numbers at an address; `count` is a constant."""

    def twin(address, count):
        return tuple((c_kind * count).from_address(address))

    def typing(typingctx, address, count):
        if not isinstance(count, types.IntegerLiteral):
            raise RequireLiteralValue(f"{name}: the count is no constant")
        made = types.UniTuple(kind, count.literal_value)

        def codegen(context, builder, signature, args):
            first = builder.inttoptr(args[0], llvm_kind.as_pointer())
            places = [builder.gep(first, [ir.Constant(i64, i)]) for i in range(len(made))]
            return context.make_tuple(builder, made, [builder.load(place) for place in places])

        return made(types.intp, count), codegen

    typing.__name__ = name
    return twin, with_twin(twin)(typing)


integers_twin, integers = _define_numbers(types.int64, i64, ctypes.c_int64, "integers")
numbers_twin, numbers = _define_numbers(types.float32, f32, ctypes.c_float, "numbers")


def call_twin(kernel, arguments, task, thread):
    kernel(arguments, task, thread)


@with_twin(call_twin)
def call(typingctx, kernel, arguments, task, thread):
    """Call a kernel by its address."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [i64] * len(KERNEL))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.intp, *KERNEL), codegen


@parallel
def share_out(kernel, arguments, tasks):
    """Call a kernel for each task."""
    for task in prange(tasks):
        call(kernel, arguments, task, get_thread_id())


@cache
def address_of(kernel):
    """Compile a kernel, or load it, and give the address at which C code would call it."""
    if config.DISABLE_JIT:
        return kernel
    kernel.compile(KERNEL)
    made = kernel.overloads[KERNEL]
    return made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)


def run(kernel, tasks, *arguments):
    """Do the tasks of a kernel, given its arguments."""
    block = array("q", arguments)  # made and asked for its address in a third of NumPy's time
    share_out(address_of(kernel), block.buffer_info()[0], tasks)
