"""Compiled kernels: kept while they are valid, and done without where they cannot be kept."""

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config, njit, types

import llmpy
from llmpy.cpu.jit import kernel, part, serial

NORM = (
    "import numpy as np; from llmpy.cpu import global_norm; x = np.ones(4, 'f4');"
    " global_norm(x[:2], x); print(x[1])"
)


def test_a_change_of_what_a_kernel_calls_compiles_it_again(tmp_path):
    """Numba itself looks at the kernel's own file only, and would go on with the old function."""
    shutil.copytree(
        Path(llmpy.__file__).parent,
        tmp_path / "llmpy",
        ignore=shutil.ignore_patterns("__pycache__"),
    )

    def norm():
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
        command = [sys.executable, "-c", NORM]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert norm() == "2.0\n"
    called = tmp_path / "llmpy" / "cpu" / "vector_math.py"
    source = called.read_text(encoding="utf-8")
    line = "        total += np.float64(row[i]) * np.float64(row[i])\n"
    assert line in source
    called.write_text(source.replace(line, line.replace("+= ", "+= 4 * ")), encoding="utf-8")
    assert norm() == "4.0\n"


def test_read_only_install_without_home(tmp_path):
    """Kernels that cannot be kept are compiled, with a word about it, and no traceback."""
    code = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []  # what a read-only install amounts to

from llmpy.cpu.jit import cache_works
assert cache_works() is False
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == (
        "llmpy: no writable directory for compiled kernels, so they are compiled at each start. "
        "Set NUMBA_CACHE_DIR to a directory to keep them.\n"
    )


def test_constant_integers_make_no_version_of_their_own():
    for compiled in (serial, part):

        @compiled
        def twice(n):
            return 2 * n

        @njit
        def run(n, called=twice):
            return called(n) + called(3) + called(4)

        assert run(1) == 16
        assert len(twice.overloads) == 1


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("compiled", [kernel, part])
def test_what_has_no_entry_refuses_calls_from_python(compiled):
    @compiled
    def twice(n):
        return 2 * n

    for _ in range(2):  # not compiled, and compiled
        with pytest.raises(TypeError) as error:
            twice(1)
        assert str(error.value) == "twice: called from Python, expected a call from a kernel"
        twice.compile((types.int64,))


def test_garbage_is_collected_again_after_compiling():
    @serial
    def half(n):
        return n // 2

    for collecting in (False, True):
        (gc.enable if collecting else gc.disable)()
        half(1 if collecting else np.int32(1))
        assert gc.isenabled() is collecting
