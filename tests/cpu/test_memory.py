"""Aligned arrays, and how little scratch a training step keeps."""

import mmap
import threading

import numba
import numpy as np
import pytest

from llmpy import cpu
from llmpy.cpu import attention, memory
from llmpy.model import GPT2
from llmpy.sizes import GPT2Config


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 1, 2)])
def test_arrays_are_aligned_zeros(shape, dtype):
    array = memory.alloc(shape, dtype)
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous
    assert not array.any()


def test_large_arrays_are_aligned_zeros():
    array = memory.alloc((3, memory.LARGE // 8 + 1))
    assert array.shape == (3, memory.LARGE // 8 + 1)
    assert array.ctypes.data % 64 == 0
    assert not array.any()
    array[:] = 1
    assert array.sum() == array.size


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="NumPy allocates here")
@pytest.mark.parametrize("exponents", [(50,), (62,), (40, 40)])
def test_too_large_an_array_is_a_memory_error(exponents):
    """As NumPy's: a command ends with one line. The size never wraps."""
    with pytest.raises(MemoryError) as error:
        memory.alloc([1 << n for n in exponents])
    size = f"{4 << sum(exponents):,}"
    assert str(error.value) == f"cpu: an array of {size} bytes is more than there is"


def test_scratch_grows_and_is_used_again():
    first = memory.scratch("a test", 10)
    assert first.size == 10
    assert memory.scratch("a test", 4) is first
    assert memory.scratch("a test", 11).size == 11
    assert memory.scratch_at("a test", 11) == memory.data(memory.scratch("a test", 11))
    del vars(memory._scratch)["a test"]


def test_each_thread_has_scratch_of_its_own():
    """Another may train a model between two kernels that hand on logits."""
    first, others = memory.scratch("a test", 10), []
    thread = threading.Thread(target=lambda: others.append(memory.scratch("a test", 10)))
    thread.start()
    thread.join()
    assert not np.shares_memory(first, others[0])
    del vars(memory._scratch)["a test"]


def test_neither_attention_matrices_nor_logits_are_kept_whole(monkeypatch, rng):
    """No piece of scratch is of the size of (B, NH, T, T) or (B*T, V) in a training step."""
    B, T, NH, V = 4, 300, 4, 20_000
    config = GPT2Config(max_seq_len=T, vocab_size=V, num_layers=1, num_heads=NH, channels=16)
    monkeypatch.setattr(memory, "_scratch", threading.local())
    monkeypatch.setattr(attention, "max_threads", lambda: 1)  # scratch is by thread
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        tokens, targets = rng.integers(0, V, (2, B, T))
        GPT2(config, cpu).forward_backward(tokens, targets)
    finally:
        numba.set_num_threads(threads)
    sizes = {use: array.size for use, (array, _) in vars(memory._scratch).items()}
    assert 0 < sizes["attention"] < B * NH * T * T / 10
    assert sizes["logits"] > 0
    assert max(sizes.values()) < B * T * V / 2
