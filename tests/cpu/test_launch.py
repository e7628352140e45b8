"""Functions called by their address, task by task."""

import numpy as np
import pytest
from numba import njit

from llmpy.cpu.jit import serial
from llmpy.cpu.launch import call_twin, integers, integers_pointer_twin, launch
from llmpy.cpu.memory import data
from llmpy.cpu.simd import floats


@serial
def note_task(task, thread, arguments):
    x = integers(arguments, 3)
    out = floats(x[0], x[1])
    out[task] += np.float32(x[2] * task + 1)


@pytest.mark.parametrize("tasks", [1, 2, 7, 1000])
def test_each_task_runs_once(tasks):
    out = np.zeros(1000, np.float32)
    launch(note_task, tasks, (data(out), 1000, 5))
    want = np.where(np.arange(1000) < tasks, 5 * np.arange(1000) + 1, 0)
    np.testing.assert_array_equal(out, want)


def test_large_and_negative_integers_arrive():
    out, got = np.zeros(4, np.float32), np.zeros(2, np.int64)

    @njit
    def read(address):
        return integers(address, 2)[0], integers(address, 2)[1]

    got[:] = 2**62 + 1, -(2**61)
    assert read(data(got)) == (2**62 + 1, -(2**61))
    assert integers_pointer_twin(data(got))[1] == -(2**61)
    call_twin(lambda task, thread, arguments: out.__setitem__(task, thread + arguments), 1, 2, 3)
    assert out[1] == 5
