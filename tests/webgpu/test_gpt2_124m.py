"""GPT-2 124M fits what every WebGPU device has: bindings of 128 MiB, buffers of 256 MiB.

Its wte has 154,389,504 bytes, so that no binding can hold it.
"""

import pytest

from llmpy import cpu
from llmpy.model import GPT2

from .. import golden_state as golden
from ..random_model import random_batch
from .training import ADAMW, host

B, T = 1, 32


def stepped(backend):
    """Give a model after one step, and its loss and norm."""
    model = GPT2.from_descriptor("d12", backend=backend)
    model.train_step([random_batch(B, T, model.config.vocab_size)], **ADAMW, step=1)
    return model, model.outcome()


@pytest.mark.webgpu
def test_a_whole_step_is_that_of_the_cpu(webgpu):
    limits = webgpu.device().limits
    assert limits["max-storage-buffer-binding-size"] == 128 << 20
    assert limits["max-buffer-size"] == 256 << 20
    model, want = stepped(cpu)
    grads, params = host(model, "grads"), host(model, "params")
    model.free()
    model, got = stepped(webgpu)
    assert got == pytest.approx(want, rel=1e-4)
    got_grads, got_params = host(model, "grads"), host(model, "params")
    model.free()
    golden.assert_grads_close(got_grads, grads, model.config.dims, 1e-3)
    for name, start, stop in golden.tensor_ranges(model.config.dims):
        # weights of about 0.02 have moved by 0.003, but where the gradient is all but zero
        error = golden.relative_l2(got_params[start:stop], params[start:stop])
        assert error <= 1e-3 or name == "qkvb", f"{name}: relative error {error:.3g}"
