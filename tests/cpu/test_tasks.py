"""Kernels called by their address, task by task."""

import numpy as np
import pytest
from numba import njit

from llmpy.cpu.jit import kernel
from llmpy.cpu.memory import data
from llmpy.cpu.simd import floats
from llmpy.cpu.tasks import call_twin, integers, integers_twin, numbers, numbers_twin, run


@kernel
def note_task(arguments, task, thread):
    out, count, factor = integers(arguments, 3)
    floats(out, count)[task] += np.float32(factor * task + 1)


@pytest.mark.parametrize("tasks", [1, 2, 7, 1000])
def test_each_task_runs_once(tasks):
    out = np.zeros(1000, np.float32)
    run(note_task, tasks, data(out), 1000, 5)
    want = np.where(np.arange(1000) < tasks, 5 * np.arange(1000) + 1, 0)
    np.testing.assert_array_equal(out, want)


def test_large_and_negative_integers_arrive():
    block = np.array([2**62 + 1, -(2**61)])

    @njit
    def read(address):
        first, second = integers(address, 2)
        return first, second

    assert read(data(block)) == integers_twin(data(block), 2) == (2**62 + 1, -(2**61))


def test_numbers_arrive():
    block = np.array([0.1, -np.inf, 3], np.float32)

    @njit
    def read(address):
        first, second = numbers(address, 2)
        return first, second

    assert read(data(block)) == numbers_twin(data(block), 2) == (np.float32(0.1), -np.inf)


def test_the_twin_of_a_call_calls():
    calls = []
    call_twin(lambda *arguments: calls.append(arguments), 1, 2, 3)
    assert calls == [(1, 2, 3)]
