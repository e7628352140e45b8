"""What the kernels take besides their arguments is reckoned as it is taken, and before."""

import subprocess
import sys
import threading

import pytest

from llmpy import cpu
from llmpy.cpu import memory
from llmpy.cpu.footprint import scratch_words
from llmpy.sizes import GPT2Config

from ..random_model import random_batch, random_model


def sizes(V, T, NH, C):
    return GPT2Config(max_seq_len=T, vocab_size=V, num_layers=1, num_heads=NH, channels=C)


# fmt: off
SIZES = [  # what takes most: gradients of the MLP, logits, attention, A or B packed for all threads
    (sizes(V=65, T=64, NH=4, C=96), 9, 64),
    (sizes(V=9000, T=64, NH=2, C=16), 9, 64),
    (sizes(V=20, T=700, NH=1, C=48), 1, 700),
    (sizes(V=5000, T=300, NH=2, C=64), 3, 300),
    (sizes(V=33, T=130, NH=4, C=256), 2, 130),
    (sizes(V=65, T=24, NH=16, C=512), 1, 24),
    (sizes(V=5000, T=300, NH=2, C=600), 1, 300),  # logits in strips
    (sizes(V=3, T=1, NH=1, C=1), 1, 1),
]
# fmt: on


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("config", "B", "T"), SIZES)
def test_scratch_is_reckoned_as_it_is_taken(config, B, T, dtype):
    dims, taken, reckoned = {**config.dims, "B": B, "T": T}, {}, {}

    def step():
        model = random_model(config, "cpu", dtype)
        reckoned.update(scratch_words(dims, dtype == "bfloat16"))
        model.forward_backward(*random_batch(B, T, config.vocab_size))
        taken.update({use: array.size for use, (array, _) in vars(memory._scratch).items()})

    thread = threading.Thread(target=step)  # which has no scratch yet
    thread.start()
    thread.join()
    assert taken == reckoned
    assert sum(taken.values()) * 4 <= cpu.scratch_bytes(dims)


def test_nothing_is_compiled_to_reckon():
    """Not even loaded: what a run takes is told before that begins."""
    code = """
from numba.core.dispatcher import Dispatcher
from llmpy import cpu
def refuse(self, signature):
    raise SystemExit(f"compiles {self.py_func.__name__}")
Dispatcher.compile = refuse
print(cpu.scratch_bytes({"B": 2, "T": 130, "C": 64, "NH": 4, "V": 65}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stderr, int(done.stdout) > 0) == ("", True)
