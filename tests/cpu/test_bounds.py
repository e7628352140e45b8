"""No kernel reads or writes outside its arrays: they work on plain addresses, unchecked.

Every array, and all scratch memory, lies against a page that may not be touched, so that a step
outside ends the process. Once the page is behind the array, once before.
"""

import ctypes
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llmpy.cpu.attention import BLOCK, ROW_BLOCK
from llmpy.cpu.gemm import KC
from llmpy.cpu.simd import MR, NR

from ..op_cases import OPS, all_calls, op_file, sizes_of

PAGE = mmap.PAGESIZE
PROT_NONE = 0

# sizes around the tile of this machine, beside every third of those that op_cases.py has
MORE = {
    "matmul": [
        {"B": 1, "T": 50 * MR + 1, "C": KC + 1, "OC": 2 * NR + 1},
        {"B": 1, "T": 9 * MR + 1, "C": KC + 1, "OC": 26 * NR + 1},
        {"B": 1, "T": 9 * MR, "C": 1024, "OC": 1024},  # rows 4 KiB apart are packed
        {"B": 1, "T": 1, "C": 1024, "OC": NR - 1},
    ],
    "attention": [
        {"B": 1, "T": KC + MR + 1, "NH": 2, "C": 2 * (NR + 1)},
        {"B": 1, "T": ROW_BLOCK + 1, "NH": 1, "C": KC + 3},
        {"B": 1, "T": 4 * BLOCK + 1, "NH": 1, "C": 2},  # a head in pieces
    ],
    "classifier": [{"B": 5, "T": 130, "C": 9, "V": 70, "Vp": 128, "N": 650}],
}


class Guarded:
    """Allocates arrays that end, or begin, where a forbidden page begins, or ends."""

    def __init__(self, page_behind):
        self.page_behind = page_behind
        self.maps = []
        self.protect = ctypes.CDLL(None, use_errno=True).mprotect
        self.protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def alloc(self, shape, dtype="float32"):
        count, kind = int(np.prod(shape)), np.dtype(dtype)
        size = count * kind.itemsize
        inside = max(1, -(-size // PAGE)) * PAGE
        block = mmap.mmap(-1, inside + 2 * PAGE)
        at = ctypes.addressof(ctypes.c_char.from_buffer(block))
        for page in (at, at + PAGE + inside):
            assert self.protect(page, PAGE, PROT_NONE) == 0, os.strerror(ctypes.get_errno())
        self.maps.append((block, at, inside))
        start = PAGE + inside - size if self.page_behind else PAGE
        return np.frombuffer(block, kind, count, start).reshape(shape)

    def copy(self, array):
        if array is None:
            return None
        copied = self.alloc(array.shape, "int32" if array.dtype == np.int32 else "float32")
        copied[...] = array
        return copied


def run_all(page_behind, seed):
    """Call every op on guarded arrays."""
    from llmpy import cpu
    from llmpy.cpu import memory

    rng = np.random.default_rng(seed)
    for name in OPS:
        sizes = [*sizes_of(name)[::3], *MORE.get(op_file(name), ())]
        for _, arrays, scalars in all_calls(name, rng, sizes):
            guarded = Guarded(page_behind)
            vars(memory._scratch).clear()
            memory.alloc = guarded.alloc
            getattr(cpu, name)(*map(guarded.copy, arrays.values()), **scalars)


def python(code):
    """Run code in the repository, in a process of its own.

    On one thread, so that behind its scratch lies the page, not the scratch of the next.
    """
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        cwd=Path(__file__).parent.parent.parent,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")
@pytest.mark.parametrize("page_behind", [True, False])
def test_nothing_outside_is_touched(page_behind, rng):
    done = python(
        f"from tests.cpu.test_bounds import run_all; run_all({page_behind}, {rng.integers(1e9)})"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is POSIX")
@pytest.mark.parametrize(("page_behind", "inside", "outside"), [(True, 6, 7), (False, 0, -1)])
def test_a_step_outside_ends_the_process(page_behind, inside, outside):
    """So the test above can fail."""
    code = (
        "import ctypes; from tests.cpu.test_bounds import Guarded;"
        f"x = Guarded({page_behind}).alloc((7,));"
        "print(ctypes.c_float.from_address(x.ctypes.data + 4 * ({})).value)"
    )
    assert python(code.format(inside)).stdout == "0.0\n"
    assert python(code.format(outside)).returncode < 0
