"""The training loop of llm.c, as an iterator of events.

At each step, counted from 0 to `steps`, in this order:

    1  validation   step % val_every == 0, or the last
    2  sample       step > 0 and step % sample_every == 0, or the last
    3  checkpoint   step > 0 and step % checkpoint_every == 0, or the last
    4  the last step ends here
    5  training     micro-batches, learning rate, norm, clip, update

Gradients are of the mean loss over the step, which is what is told. Clipping scales all gradients
by clip / norm where the norm is larger. Weight decay is on 2-D tensors.

A loss or norm that is not finite ends the run, and the model leaves the update out. Source: llm.c,
train_gpt2.cu.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .config import TrainConfig
from .errors import ConfigError, NonFiniteError
from .generate import generate, sampling_rng
from .outliers import OutlierDetector
from .run_folder import RunFolder
from .schedule import learning_rate

EPS = 1e-8  # AdamW's; same as llm.c


Batch = tuple[NDArray[np.int32], NDArray[np.int32]]  # tokens and targets, (B, T)


class Loader(Protocol):
    """Where batches come from."""

    @property
    def num_batches(self) -> int:
        """Batches in all tokens, as the C program counts them."""

    @property
    def batches_per_epoch(self) -> int:
        """Batches of one pass."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all files."""

    def next_batch(self) -> Batch:
        """Give the next tokens and targets, which stay as they are."""

    def reset(self) -> None:
        """Go back to the beginning."""


@dataclass(frozen=True)
class Validation:
    """A validation loss, before the update of `step`."""

    step: int
    loss: float

    def line(self) -> str:
        """Give llm.c's line."""
        return f"val loss {self.loss:f}"


@dataclass(frozen=True)
class Sample:
    """Tokens that the model made from nothing."""

    step: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A model file that was written."""

    step: int
    path: Path


@dataclass(frozen=True)
class Step:
    """One update; z-scores are None while there are too few values."""

    step: int  # counted from 0
    steps: int
    loss: float
    loss_z: float | None
    norm: float  # of all gradients, before clipping
    norm_z: float | None
    lr: float
    seconds: float
    tokens_per_second: float  # smoothed, without the first step

    def line(self) -> str:
        """Give llm.c's line; its share of the peak is -100% where the device's is unknown."""
        loss_z = math.nan if self.loss_z is None else self.loss_z
        norm_z = math.nan if self.norm_z is None else self.norm_z
        return (
            f"step {self.step + 1:4d}/{self.steps} | loss {self.loss:7.6f} ({loss_z:+.2f}z)"
            f"| norm {self.norm:6.4f} ({norm_z:+.2f}z)| lr {self.lr:.2e}"
            f" | {1000 * self.seconds:.2f} ms | -100.0% bf16 MFU"
            f" | {self.tokens_per_second:.0f} tok/s"
        )


@dataclass(frozen=True)
class Finished:
    """The end. The mean leaves out the first step, which warms up."""

    steps: int
    seconds_per_step: float | None  # None if there were fewer than two

    def line(self) -> str | None:
        """Give llm.c's line."""
        if self.seconds_per_step is None:
            return None
        return f"total average iteration time: {1000 * self.seconds_per_step:f} ms"


Event = Validation | Sample | Checkpoint | Step | Finished


class Speed:
    """Tokens per second, smoothed as llm.c does, and the mean time of a step."""

    def __init__(self) -> None:
        self.total = 0.0
        self.counted = 0
        self.average = 0.0

    def update(self, tokens: int, seconds: float, first: bool) -> float:
        """Take a step; give the smoothed tokens per second. The first step is not counted."""
        rate = tokens / max(seconds, 1e-9)
        if first:
            return rate
        self.total += seconds
        self.counted += 1
        self.average = 0.95 * self.average + 0.05 * rate
        return self.average / (1 - 0.95**self.counted)


def train(
    model: Any,
    train_loader: Loader,
    val_loader: Loader | None,
    config: TrainConfig,
    *,
    folder: RunFolder | None = None,
    start_token: int = 0,
    working: Callable[[str], None] = lambda what: None,
) -> Iterator[Event]:
    """Train a model; iterate over what happens.

    model         a GPT2, which is changed
    train_loader  of batches (B, T) as in `config`
    val_loader    None: no validation
    folder        where checkpoints and the log go, started already; None: nowhere
    start_token   id from which samples begin
    working       told what is being done between two events, such as `validation 3/20`

    Settings are checked at the call; the work is done as the iterator is read. Raises ConfigError
    for settings that don't fit the model or data, NonFiniteError as the work is done.

    >>> for event in train(model, loader, None, TrainConfig(seq_len=64, steps=10)):
    ...     print(event)
    """
    steps = count_steps(config, train_loader)
    check_seq_len(config.seq_len, model.config.max_seq_len)
    return _loop(model, train_loader, val_loader, config, steps, folder, start_token, working)


def check_seq_len(T: int, maxT: int) -> None:
    """Raise ConfigError if the model can't take T tokens."""
    if maxT < T:
        raise ConfigError(
            f"--seq-len is {T}, expected at most {maxT}, the model's max_seq_len."
            f" The nearest is {maxT}."
        )


def count_steps(config: TrainConfig, loader: Loader) -> int:
    """Give the number of steps: as set, else one pass over the data."""
    if config.steps is not None:
        return config.steps
    steps = loader.num_tokens // config.tokens_per_step
    if steps == 0:
        raise ConfigError(
            f"--total-batch-size is {config.tokens_per_step} tokens, expected at most"
            f" {loader.num_tokens}, the tokens of the training data. Give --steps for more than"
            " one pass."
        )
    return steps


def _loop(
    model: Any,
    train_loader: Loader,
    val_loader: Loader | None,
    config: TrainConfig,
    steps: int,
    folder: RunFolder | None,
    start_token: int,
    working: Callable[[str], None],
) -> Iterator[Event]:
    speed, losses, norms = Speed(), OutlierDetector(), OutlierDetector()
    last_norm: float | None = None
    for step in range(steps + 1):
        last = step == steps
        if val_loader is not None and _due(step, config.val_every, last, at_zero=True):
            loss = validate(model, val_loader, config.val_batches, working)
            if last_norm is not None or last:  # else the first training step tells, with its norm
                require_finite(f"step {step}", "validation loss", loss, last_norm)
            if folder is not None:
                folder.log_validation(step, loss)
            yield Validation(step, loss)
        if step > 0 and _due(step, config.sample_every, last):
            rng = sampling_rng(config.seed)  # anew each time, as llm.c
            with _naming_step(step, last_norm):
                tokens = []
                for token in generate(model, [start_token], config.sample_tokens, rng=rng):
                    tokens.append(token)
                    working(f"sample {len(tokens)}/{config.sample_tokens}")
            yield Sample(step, tuple(tokens))
        if folder is not None and (last or _due(step, config.checkpoint_every, last)):
            with _naming_step(step, last_norm):
                path = folder.checkpoint(model, step)
            yield Checkpoint(step, path)
        if last:
            break
        begin = time.perf_counter()
        lr = _training_step(model, _micro_batches(train_loader, config), config, step, steps)
        loss, last_norm = model.outcome()
        require_finite(f"step {step + 1}", "loss", loss, last_norm)
        seconds = time.perf_counter() - begin
        if folder is not None:
            folder.log_step(step, loss, lr, last_norm)
        rate = speed.update(config.tokens_per_step, seconds, first=step == 0)
        yield Step(
            step, steps, loss, losses.update(loss), last_norm, norms.update(last_norm), lr,
            seconds, rate,
        )  # fmt: skip
    yield Finished(steps, speed.total / speed.counted if speed.counted else None)


def _due(step: int, every: int, last: bool, at_zero: bool = False) -> bool:
    return every > 0 and (last or (step % every == 0 and (step > 0 or at_zero)))


def validate(
    model: Any, loader: Loader, batches: int, working: Callable[[str], None] = lambda what: None
) -> float:
    """Give the mean loss over so many batches from the beginning; -1 is all of them."""
    loader.reset()
    count = loader.batches_per_epoch if batches == -1 else batches
    losses = []
    for i in range(count):
        working(f"validation {i + 1}/{count}")
        losses.append(model.forward(*loader.next_batch()))
    return math.fsum(losses) / count


def _micro_batches(loader: Loader, config: TrainConfig) -> list[Batch]:
    """Give the batches of one step."""
    if config.overfit:
        loader.reset()
    batches = [loader.next_batch() for _ in range(config.accumulation_steps)]
    for tokens, _ in batches:
        if tokens.shape != (config.batch_size, config.seq_len):  # what total_batch_size counts
            raise ConfigError(
                f"train: the loader's batch has shape {tokens.shape}, expected"
                f" (--batch-size, --seq-len) = ({config.batch_size}, {config.seq_len})"
            )
    return batches


def require_finite(when: str, what: str, loss: float, norm: float | None) -> None:
    """Raise NonFiniteError unless the loss, and the gradient norm if there is one, are finite.

    when  such as `step 3`
    what  such as `loss`
    """
    if not (math.isfinite(loss) and (norm is None or math.isfinite(norm))):
        with_norm = "" if norm is None else f" and gradient norm {norm:g}"
        raise NonFiniteError(
            f"train: {what} is {loss:g}{with_norm} at {when}, expected finite numbers."
            " Nothing was updated or written."
        )


@contextlib.contextmanager
def _naming_step(step: int, norm: float | None) -> Iterator[None]:
    """Say after which step the weights turned out not to be finite."""
    try:
        yield
    except NonFiniteError as error:
        tail = "" if norm is None else f" of gradient norm {norm:g}"
        raise NonFiniteError(f"train: after step {step}{tail}: {error}") from None


def _training_step(
    model: Any, batches: list[Batch], config: TrainConfig, step: int, steps: int
) -> float:
    """Have the model take a step; give the learning rate."""
    lr = learning_rate(
        step,
        lr=config.lr,
        schedule=config.schedule,
        warmup=config.warmup,
        steps=steps,
        final_lr_frac=config.final_lr_frac,
    )
    model.train_step(
        batches,
        lr,
        config.beta1,
        config.beta2,
        EPS,
        config.weight_decay,
        step + 1,
        max_norm=config.grad_clip,
        decay="2d",
    )
    return lr
