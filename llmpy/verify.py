"""Compare a model with a debug state, as llm.c's test_gpt2 does, and print what it prints.

Logits, loss and all 16 gradients of the state's batch, then AdamW steps on that batch against a
list of losses: lr 1e-4, betas 0.9 and 0.999, eps 1e-8, decay 0.01 on all tensors, no clipping.
All of the table's P elements are compared, each once: padded rows must have gradient 0.

Differences are taken in float32 as in C. A difference that is NaN is not OK.

Source: llm.c, test_gpt2.c.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .backends import load_backend, tensor_dtype
from .c_lines import activations_line, model_lines
from .errors import FormatError, UsageError
from .footprint import require_memory, training_footprint
from .formats.checkpoint import read_checkpoint_config
from .formats.debug_state import DebugState, read_debug_state
from .formats.header import read_all
from .model import GPT2
from .sizes import GPT2Config, descriptor_config

PrintLine = Callable[[str], None]

# of GPT-2 124M on the first 4 x 64 tokens of tiny_shakespeare_val, in PyTorch; test_gpt2.c
LOSSES_124M = (
    5.270007133483887,
    4.059706687927246,
    3.3751230239868164,
    2.8007826805114746,
    2.315382242202759,
    1.8490285873413086,
    1.3946564197540283,
    0.9991465210914612,
    0.6240804195404053,
    0.37651097774505615,
)
PRINTED_LOGITS = 3
PRINTED_GRADS = 5  # of each tensor
MAX_LOSSES_BYTES = 1 << 26


@dataclass(frozen=True)
class Tolerances:
    """The largest absolute differences allowed; by default those of the C program."""

    # C asks for less than 1e-2: as much as the double before it, at most
    logits: float = math.nextafter(1e-2, 0)
    loss: float = math.nextafter(1e-2, 0)
    grads: float = float(np.float32(2e-2))  # a float in C
    step_loss: float = math.nextafter(1e-2, 0)
    grads_relative: float = 0.0  # of each element, besides

    def line(self) -> str:
        """Say them."""
        return (
            f"logits {self.logits:g}, loss {self.loss:g}, gradients {self.grads:g} and"
            f" {self.grads_relative:.1%}, losses of steps {self.step_loss:g}"
        )


# Rounded operands of 8 bits: logits near 40 move by some tenths. The losses of steps and the
# relative part are those of llm.c's test_gpt2.cu in bfloat16, whose activations are rounded, too.
BFLOAT16 = Tolerances(
    logits=1.0, loss=5e-2, grads=float(np.float32(2e-2)), step_loss=5e-2, grads_relative=0.079
)


def verify(
    model_path: str | PathLike[str],
    state_path: str | PathLike[str],
    print_line: PrintLine,
    *,
    steps: int = 10,
    losses_path: str | PathLike[str] | None = None,
    tolerance: float | None = None,
    backend: Any = "cpu",
    dtype: str = "float32",
) -> bool:
    """Check a checkpoint against a debug state and say whether all is well.

    print_line   takes each line, without its end
    steps        AdamW steps; 0 compares the state alone
    losses_path  one expected loss a line, for each step; None: those of GPT-2 124M where they fit
    tolerance    replaces all of Tolerances, or of BFLOAT16

    Raises FormatError for a file that is not what it should be, UsageError for too few losses.
    """
    limits = tolerances_of(dtype, tolerance)
    config, version = read_checkpoint_config(model_path)
    state = read_debug_state(state_path, config)
    expected = expected_losses(config, state, losses_path, steps)
    backend = load_backend(backend) if isinstance(backend, str) else backend
    if steps > 0:  # else the gradients are enough, which GPT2 reckons with
        require_steps_memory(backend, config, state, steps, dtype)
    model = GPT2.from_checkpoint(model_path, backend, dtype)

    for line in head_lines(config, version, state):
        print_line(line)
    all_ok = True
    for step in range(max(steps, 1)):
        start = time.perf_counter()
        loss = model.forward_backward(state.tokens, state.targets)
        model.backend.sync()
        seconds = time.perf_counter() - start
        if step == 0:
            all_ok &= check_state(model, loss, state, limits, print_line)
        if step == steps:
            break
        model.update(1e-4, 0.9, 0.999, 1e-8, 0.01, step + 1)
        want = expected[step] if step < len(expected) else None
        all_ok &= check_step(step, loss, seconds, want, limits.step_loss, print_line)
    if len(expected) < steps:
        print_line(
            f"steps {len(expected)} to {steps - 1}: nothing to compare the losses with."
            " Give a list with --losses."
        )
    print_line(f"overall okay: {all_ok:d}")
    return all_ok


def tolerances_of(dtype: str, tolerance: float | None) -> Tolerances:
    """Give the tolerances for a dtype, or one number in the place of all of them."""
    if tolerance is not None:
        return Tolerances(*[tolerance] * 4)
    return BFLOAT16 if dtype == "bfloat16" else Tolerances()


def require_steps_memory(
    backend: Any, config: GPT2Config, state: DebugState, steps: int, dtype: str
) -> None:
    """Raise UsageError if there is less memory than steps on the state's batch take."""
    B, T = state.tokens.shape
    itemsize = np.dtype(tensor_dtype(dtype)).itemsize
    needed = training_footprint(backend, config, B, T, itemsize=itemsize).total
    require_memory("verify", f"{steps} steps with B={B} and T={T}", needed, backend)


def head_lines(config: GPT2Config, version: int, state: DebugState) -> list[str]:
    """Give what the C program prints first: that of April 2024 for version 1, else today's."""
    B, T = state.tokens.shape
    order = "seed" if version == 1 else "llm.c"
    sizes = ["[State]", f"batch_size: {B}", f"seq_len: {T}"]
    return [*model_lines(config, order), *sizes, activations_line(config, B, T, order)]


def expected_losses(
    config: GPT2Config, state: DebugState, path: str | PathLike[str] | None, steps: int
) -> tuple[float, ...]:
    """Give the losses to compare with: of the file, else of GPT-2 124M if this is it, else none."""
    if path is not None:
        losses = read_losses(path)
        if len(losses) < steps:
            raise UsageError(
                f"{path}: {len(losses)} losses, expected at least {steps}, one for each of --steps"
            )
        return losses
    is_124m = config == descriptor_config("d12") and state.tokens.shape == (4, 64)
    return LOSSES_124M if is_124m and abs(state.loss - LOSSES_124M[0]) <= 1e-2 else ()


def read_losses(path: str | PathLike[str]) -> tuple[float, ...]:
    """Read a text of one number a line. Raises FormatError at the first line that is not one."""
    with open(path, "rb") as file:
        content = read_all(file, str(path), MAX_LOSSES_BYTES)
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise FormatError(f"{path}: content is not text, expected one number a line") from None
    losses = []
    for number, line in enumerate(lines, 1):
        try:
            losses.append(float(line))
        except ValueError:
            raise FormatError(f"{path}: line {number} is {line!r}, expected one number") from None
    return tuple(losses)


def check_state(
    model: GPT2, loss: float, state: DebugState, limits: Tolerances, print_line: PrintLine
) -> bool:
    """Compare loss and gradients, which the model holds, and logits, which it makes again."""
    logits_ok = check_logits(model.forward(state.tokens), state.logits, limits.logits, print_line)
    loss_ok = bool(difference(loss, state.loss) <= limits.loss)
    if loss_ok:
        print_line(f"LOSS OK: {loss:f} {state.loss:f}")
    else:
        print_line(f"LOSS MISMATCH: {loss:f} {state.loss:f}")
    assert model.grads is not None  # of the pass that gave the loss
    got = np.asarray(model.backend.download(model.grads.memory))
    assert got.shape == state.grads.shape
    grads_ok = [  # a list, so that every tensor is told
        check_tensor(f"d{name}", got[a:b], state.grads[a:b], limits, print_line)
        for name, a, b in model.grads.ranges()
    ]
    return logits_ok and loss_ok and all(grads_ok)


def check_step(
    step: int, loss: float, seconds: float, want: float | None, limit: float, print_line: PrintLine
) -> bool:
    """Compare the loss of a step with the one expected; without one, it must be finite."""
    line = f"step {step}: loss {loss:f} (took {1000 * seconds:f} ms)"
    ok = math.isfinite(loss) if want is None else bool(difference(loss, want) <= limit)
    print_line(line if want is None else f"{line} OK = {ok:d}")
    return ok


def check_logits(
    got: NDArray[Any], want: NDArray[np.float32], limit: float, print_line: PrintLine
) -> bool:
    """Compare logits (B, T, V), and name the first that is too far off."""
    got, want = got.reshape(-1), want.reshape(-1)
    near = difference(got, want) <= limit
    first_off = None if near.all() else int(np.argmin(near))
    for i in range(min(PRINTED_LOGITS, got.size)):
        print_line(f"{want[i]:f} {got[i]:f}")
        if i == first_off:
            break
    if first_off is None:
        print_line("OK (LOGITS)")
        return True
    print_line(f"MISMATCH AT INDEX {first_off}: {want[first_off]:f} {got[first_off]:f}")
    print_line("NOT OK (LOGITS)")
    return False


def check_tensor(
    label: str,
    got: NDArray[Any],
    want: NDArray[np.float32],
    limits: Tolerances,
    print_line: PrintLine,
) -> bool:
    """Compare two flat gradients element by element, and print the first few."""
    print_line(label)
    off_by = difference(got, want)
    near = off_by <= limits.grads
    if limits.grads_relative:
        near |= off_by <= limits.grads + limits.grads_relative * np.abs(want)
    for i in range(min(PRINTED_GRADS, got.size)):
        print_line(f"{'OK' if near[i] else 'NOT OK'} {got[i]:f} {want[i]:f}")
    ok = bool(near.all())
    # the largest is NaN if there is one
    print_line(f"TENSOR {'OK' if ok else 'NOT OK'}, maxdiff = {off_by.max():e}")
    return ok


def difference(got: Any, want: Any) -> Any:
    """Give |got - want| in float32; NaN where it has no value."""
    with np.errstate(all="ignore"):  # NaN, infinity and overflow are answers here
        return np.abs(np.asarray(got, np.float32) - np.asarray(want, np.float32))
