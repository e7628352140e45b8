"""Tasks on all threads: one parallel kernel, which calls what it is given the address of.

Numba compiles a parallel function with all that it calls, several times over, and LLVM takes
seconds for a matrix product. So what is large is a serial function `f(task, thread, arguments)`,
compiled once, and this kernel, which is small, calls it: a launch costs a call for each task.

`arguments` is the address of integers: sizes, flags and other addresses, see `integers`.
"""

import ctypes
from array import array

from llvmlite import ir
from numba import carray, config, get_thread_id, njit, prange, types

from .jit import parallel
from .simd import i64, with_twin

SIGNATURE = types.void(types.intp, types.intp, types.intp)


def integers_pointer_twin(address):
    return ctypes.cast(int(address), ctypes.POINTER(ctypes.c_int64))


@with_twin(integers_pointer_twin)
def integers_pointer(typingctx, address):
    """Turn an address into a pointer to int64, for numba.carray."""
    kind = types.CPointer(types.int64)(types.intp)
    return kind, lambda _, builder, __, args: builder.inttoptr(args[0], i64.as_pointer())


@njit(inline="always")
def integers(address, count):
    """View `count` int64 at an address as an array."""
    return carray(integers_pointer(address), (count,))


def call_twin(function, task, thread, arguments):
    function(task, thread, arguments)


@with_twin(call_twin)
def call(typingctx, function, task, thread, arguments):
    """Call the function at an address: void f(int64, int64, int64)."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [i64] * 3)
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@parallel
def run_tasks(function, tasks, arguments):
    for task in prange(tasks):  # what a task does depends on its number alone
        call(function, task, get_thread_id(), arguments)


_addresses: dict[object, object] = {}


def address_of(function):
    """Compile a serial function of SIGNATURE, and give its address; without the JIT, itself."""
    if config.DISABLE_JIT:
        return function
    found = _addresses.get(function)
    if found is None:
        function.compile(SIGNATURE)
        compiled = function.overloads[SIGNATURE.args]
        name = compiled.fndesc.llvm_cfunc_wrapper_name  # what C could call
        found = _addresses[function] = compiled.library.get_pointer_to_function(name)
    return found


def launch(function, tasks, arguments):
    """Call `function(task, thread, arguments)` for each task.

    arguments  tuple of integers
    """
    values = array("q", arguments)
    run_tasks(address_of(function), tasks, values.buffer_info()[0])
