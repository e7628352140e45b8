"""Write what a model computes for a batch, from the float64 reference: for who ports kernels.

The batch is the first B*T + 1 tokens of a token file, as in llm.c's own debug state. Two files:

    a debug state  what `llmpy verify` reads: logits, loss and gradients, rounded to float32
    an .npz        float64 arrays by the names of the C program: the 23 activations `encoded` to
                   `losses`, the 16 gradients `dwte` to `dlnfb`, the gradients of the activations
                   that have one (`dencoded`, `dln1`, ... `dlogits`, `dlosses`), and tokens,
                   targets, loss. The loss is the mean over all positions, dlosses is 1 / (B*T).
"""

from collections.abc import Mapping
from os import fspath
from os.path import realpath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import ops
from .errors import FormatError, UsageError
from .footprint import model_bytes, require_memory, training_footprint
from .formats.checkpoint import read_checkpoint_config
from .formats.debug_state import DebugState, write_debug_state
from .formats.header import PathLike, atomic_write, check_target
from .formats.tokens import TokenFile
from .intermediates import NO_GRADIENT, seed_backward, seed_forward
from .model import GPT2
from .sizes import GPT2Config
from .tensors import PARAMS, SEED_ACTS, table_size


def dump(
    model_path: PathLike,
    tokens_path: PathLike,
    *,
    batch_size: int = 4,
    seq_len: int = 64,
    state_path: PathLike | None = None,
    npz_path: PathLike | None = None,
) -> DebugState:
    """Compute a batch and write a debug state (version 2), an .npz, or both.

    batch_size, seq_len  B and T; T at most the model's max_seq_len

    Returns the debug state.
    Raises UsageError if there is nothing to write or the sizes don't fit, FormatError for a file
    that is not what it should be.
    """
    if state_path is None and npz_path is None:
        raise UsageError("dump: neither --state nor --npz is given, expected at least one")
    _check_paths({"the model": model_path, "--tokens": tokens_path}, state_path, npz_path)
    config, _ = read_checkpoint_config(model_path)
    tokens, targets = read_batch(tokens_path, config, batch_size, seq_len)
    if npz_path is None:
        what = f"a debug state of B={batch_size} and T={seq_len} in float64"
        needed = training_footprint(
            ops, config, batch_size, seq_len, itemsize=8, moments=False
        ).total
        require_memory("dump", what, needed)
        state = fused_state(GPT2.from_checkpoint(model_path, "numpy", "float64"), tokens, targets)
    else:
        acts = 2 * table_size(SEED_ACTS, {**config.dims, "B": batch_size, "T": seq_len})
        what = f"every intermediate of B={batch_size} and T={seq_len} in float64"
        require_memory("dump", what, 8 * acts + 2 * model_bytes(config, 8))
        model = GPT2.from_checkpoint(model_path, "numpy", "float64")
        arrays = named_arrays(model, tokens, targets)
        state = plain_state(config, arrays)
        with atomic_write(npz_path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    if state_path is not None:
        write_debug_state(state_path, config, state)
    return state


def _check_paths(
    inputs: Mapping[str, PathLike], state_path: PathLike | None, npz_path: PathLike | None
) -> None:
    """Check before the work that all can be written, and no file over another of the same call."""
    taken = {realpath(path): what for what, path in inputs.items()}
    for flag, path in (("--state", state_path), ("--npz", npz_path)):
        if path is None:
            continue
        target = check_target(path)
        if target in taken:
            raise UsageError(
                f"dump: {flag} is {fspath(path)}, the file of {taken[target]}, expected another"
            )
        taken[target] = flag


def read_batch(
    path: PathLike, config: GPT2Config, B: int, T: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Read tokens and targets, int32 (B, T), from the beginning of a token file."""
    maxT, V = config.max_seq_len, config.vocab_size
    if maxT < T:
        raise UsageError(f"--seq-len is {T}, expected at most {maxT}, the model's max_seq_len")
    count = B * T + 1
    with TokenFile(path) as file:
        if file.num_tokens < count:
            raise FormatError(
                f"{fspath(path)}: {file.num_tokens:,} tokens,"
                f" expected at least {count:,} = B*T + 1 with B={B}, T={T}"
            )
        text = file.read(0, count)
    wrong = text >= V
    if wrong.any():
        i = int(wrong.argmax())
        raise FormatError(
            f"{fspath(path)}: token {i:,} is {text[i]}, expected 0 to {V - 1},"
            f" because the model's vocabulary has V = {V} tokens"
        )
    return text[:-1].reshape(B, T), text[1:].reshape(B, T)


def fused_state(model: GPT2, tokens: NDArray[np.int32], targets: NDArray[np.int32]) -> DebugState:
    """Compute a debug state by the model's own passes, which keep little."""
    loss = model.forward_backward(tokens, targets)
    assert model.grads is not None
    grads = np.asarray(model.grads.memory, np.float32)
    logits = np.asarray(model.forward(tokens), np.float32)
    return DebugState(tokens, targets, logits, loss, grads)


def named_arrays(
    model: GPT2, tokens: NDArray[np.int32], targets: NDArray[np.int32]
) -> dict[str, NDArray[Any]]:
    """Compute every tensor of the C program by the plain ops, one after the other."""
    acts = seed_forward(model.config, model.params, tokens, targets)
    grads, dacts = seed_backward(model.config, model.params, acts, tokens, targets)
    arrays = dict(acts.items())
    arrays.update((f"d{name}", x) for name, x in grads.items())
    arrays.update((f"d{name}", x) for name, x in dacts.items() if name not in NO_GRADIENT)
    loss = np.asarray(acts.losses.mean())
    return {"tokens": tokens, "targets": targets, "loss": loss, **arrays}


def plain_state(config: GPT2Config, arrays: dict[str, NDArray[Any]]) -> DebugState:
    """Make a debug state of what `named_arrays` gives."""
    grads = np.concatenate([arrays[f"d{name}"].reshape(-1) for name in PARAMS], dtype=np.float32)
    logits = arrays["logits"][..., : config.vocab_size].astype(np.float32)
    return DebugState(arrays["tokens"], arrays["targets"], logits, float(arrays["loss"]), grads)
