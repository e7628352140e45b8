"""What the kernels take besides their arguments is reckoned about right."""

import threading

import pytest

from llmpy import cpu
from llmpy.cpu import memory
from llmpy.sizes import GPT2Config

from ..random_model import random_batch, random_model

# fmt: off
SIZES = [  # what takes most: gradients of the MLP, logits, attention
    (GPT2Config(max_seq_len=64, vocab_size=65, num_layers=1, num_heads=4, channels=96), 9, 64),
    (GPT2Config(max_seq_len=64, vocab_size=9000, num_layers=1, num_heads=2, channels=16), 9, 64),
    (GPT2Config(max_seq_len=700, vocab_size=20, num_layers=1, num_heads=1, channels=48), 1, 700),
]
# fmt: on


@pytest.mark.parametrize(("config", "B", "T"), SIZES)
def test_scratch_is_reckoned_within_a_factor_of_two(config, B, T):
    """The numbers depend on tiles and caches, so they can't be exact."""
    taken = []

    def step():
        model = random_model(config, "cpu", "float32")
        model.forward_backward(*random_batch(B, T, config.vocab_size))
        taken.append(sum(array.nbytes for array, _ in vars(memory._scratch).values()))

    thread = threading.Thread(target=step)  # which has no scratch yet
    thread.start()
    thread.join()
    reckoned = cpu.scratch_bytes({**config.dims, "B": B, "T": T})
    assert taken[0] / 2 <= reckoned <= 2 * taken[0]
