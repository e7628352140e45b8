"""The golden files of tests/golden, read without llmpy's readers, and how a tensor is judged.

The files hold what float64 PyTorch computed, rounded to float32; the losses are not rounded.
"""

from pathlib import Path

import numpy as np

from llmpy.model import GPT2
from llmpy.sizes import GPT2Config
from llmpy.tensors import PARAMS, Tensors

FOLDER = Path(__file__).parent / "golden"
CONFIG = GPT2Config(max_seq_len=19, vocab_size=61, num_layers=2, num_heads=3, channels=24)
B, T, V = 3, 13, 61
HEADER_BYTES = 1024

BODY = (FOLDER / "state_v2.bin").read_bytes()[HEADER_BYTES:]
TOKENS = np.frombuffer(BODY, "<i4", B * T).reshape(B, T)
TARGETS = np.frombuffer(BODY, "<i4", B * T, 4 * B * T).reshape(B, T)
FLOATS = np.frombuffer(BODY, "<f4", offset=8 * B * T)
LOGITS = FLOATS[: B * T * V].reshape(B, T, V)
LOSS = float(FLOATS[B * T * V])
GRADS = FLOATS[B * T * V + 1 :]
WEIGHTS = np.fromfile(FOLDER / "model_v3.bin", "<f4", offset=HEADER_BYTES)
LOSSES = np.loadtxt(FOLDER / "losses.txt")
CLIP_LOSSES, CLIP_NORMS = np.loadtxt(FOLDER / "losses_clip.txt").T


def golden_model(backend, dtype="float32"):
    """Make the model of the golden files."""
    model = GPT2(CONFIG, backend, dtype)
    model.backend.upload(model.params.memory, WEIGHTS)
    return model


def relative_l2(got, want):
    """Give ||got - want|| / ||want||, in float64."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def assert_grads_close(got, want, dims, limit):
    """Judge each of the 16 tensors of two flat blocks by itself.

    The gradient of a key's bias is zero in exact arithmetic: softmax does not see what is added to
    a whole row of scores. So the key third of qkvb is judged by its size beside the rest.
    """
    assert got.shape == want.shape
    C = dims["C"]
    for name, offset, stop in tensor_ranges(dims):
        a, b = got[offset:stop], want[offset:stop]
        if name == "qkvb":
            a, b = a.reshape(-1, 3, C), b.reshape(-1, 3, C)
            assert np.abs(a[:, 1]).max() <= limit * np.linalg.norm(b), "the key third of qkvb"
            a, b = a[:, ::2], b[:, ::2]
        error = relative_l2(a, b)
        assert error <= limit, f"d{name}: relative error {error:.3g}, allowed {limit:.3g}"


def tensor_ranges(dims):
    """Go through name, start and stop of the 16 tensors, worked from llm.c's order of sizes."""
    maxT, Vp, L, C = (dims[x] for x in ("maxT", "Vp", "L", "C"))
    layer = (C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C)
    sizes = (Vp * C, maxT * C, *(L * n for n in layer), C, C)
    stops = np.cumsum(sizes)
    return list(zip(PARAMS, (stops - sizes).tolist(), stops.tolist(), strict=True))


def tensors_of(model, memory):
    """Give named views of a flat NumPy block of a model."""
    from llmpy import ops

    return Tensors(ops, PARAMS, model.config.dims, memory=memory)
