"""GPT2: a model with its weights, gradients and moments, and what may be called when.

The passes themselves are two lists of op calls, in passes.py. All memory is the backend's; nothing
here indexes into it. What a batch needs is in workspace.py.
"""

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .backends import check_dtype, load_backend, tensor_dtype
from .errors import OrderError, UsageError
from .footprint import model_bytes, require_memory
from .model_checks import (
    check_batch,
    check_batches,
    check_tokens,
    check_update,
    require_float32,
)
from .passes import backward_pass, forward_pass
from .sizes import GPT2Config, descriptor_config
from .tensors import PARAMS, REMADE, Tensors, decay_ranges, table_size
from .workspace import Workspace


class GPT2:
    """A GPT-2 with its weights and, once they are needed, gradients and moments of AdamW.

    config      sizes
    backend     the backend module
    dtype       what it computes in: `float32`, `bfloat16` or `float64`
    params      the weights
    grads       the gradients; None before the first backward pass or zero_grad
    m, v        the moments of AdamW; None before the first update
    mean_loss   of the last forward pass; None if that had no targets or was part of train_step

    >>> model = GPT2.from_descriptor("d12")
    >>> loss = model.forward_backward(tokens, targets)
    >>> model.update(1e-4, 0.9, 0.999, 1e-8, 0.0, step=1)
    """

    def __init__(
        self,
        config: GPT2Config,
        backend: Any = "cpu",
        dtype: str = "float32",
        recompute: int = 0,
    ) -> None:
        """Make a model of zeros.

        backend    `cpu`, `webgpu`, `numpy` or a backend module
        dtype      `float32`; `bfloat16`, which rounds the operands of matrix products, all tensors
                   being float32; `float64` on numpy only
        recompute  what the backward pass makes again instead of keeping it. At any level GELU and
                   LayerNorm, which are llm.c's -r 1 and 2 and cost next to nothing here; at 2 also
                   the product before GELU. The gradients have the same bits.

        Raises UsageError if the backend or dtype is not to be had, or memory does not suffice.
        """
        if recompute not in REMADE:
            raise UsageError(f"GPT2: recompute is {recompute!r}, expected 0, 1 or 2")
        self.config = config
        self.backend = load_backend(backend) if isinstance(backend, str) else backend
        self.dtype = dtype
        check_dtype("GPT2", dtype, self.backend.name)
        self._tensor_dtype = tensor_dtype(dtype)
        require_memory("GPT2", "the model", self._model_bytes, self.backend)
        self.params = Tensors(self.backend, PARAMS, config.dims, self._tensor_dtype)
        self.grads: Tensors | None = None
        self.m: Tensors | None = None
        self.v: Tensors | None = None
        self._decay_2d = decay_ranges(self.params)
        self.mean_loss: float | None = None
        self._work = Workspace(config, self.backend, self._tensor_dtype, recompute)
        self._outcome = self.backend.alloc((2,), self._tensor_dtype)  # loss and norm of a step
        self._passes: dict[Any, Callable[[], None]] = {}  # as the backend recorded them
        self._held_pass = "missing"  # the pass whose activations are held, in words for errors

    @classmethod
    def from_checkpoint(
        cls,
        path: str | PathLike[str],
        backend: Any = "cpu",
        dtype: str = "float32",
        recompute: int = 0,
    ) -> Self:
        """Make a model of a checkpoint in llm.c's format. Raises FormatError as the reader does."""
        from .formats.checkpoint import read_checkpoint, read_checkpoint_config

        config, _ = read_checkpoint_config(path)
        # first, so that memory is refused before the read
        model = cls(config, backend, dtype, recompute)
        _, memory = read_checkpoint(path)
        model.backend.upload(model.params.memory, memory)
        return model

    @classmethod
    def from_descriptor(
        cls,
        name: str,
        seed: int = 42,
        vocab_size: int | None = None,
        backend: Any = "cpu",
        dtype: str = "float32",
        recompute: int = 0,
    ) -> Self:
        """Make a model of random weights, those that PyTorch draws from the same seed.

        name        `d12`, `gpt3:c768`, `baby`, ...: see sizes.py
        vocab_size  V; None is GPT-2's 50257
        """
        from .rng import init_params

        model = cls(descriptor_config(name, vocab_size), backend, dtype, recompute)
        model.backend.upload(model.params.memory, init_params(model.config, seed))
        return model

    def save(self, path: str | PathLike[str], version: int = 3) -> None:
        """Write the weights as a checkpoint in llm.c's format: version 1, 3 or 5."""
        from .formats.checkpoint import write_checkpoint

        self._require_life("save")
        self.backend.sync()
        memory = self.backend.download(self.params.memory)
        write_checkpoint(path, self.config, np.asarray(memory, np.float32), version)

    def free(self) -> None:
        """Let go of the model's memory. It cannot be used afterwards."""
        self.params = None  # type: ignore[assignment]
        self.grads = self.m = self.v = self.mean_loss = self._outcome = None
        self._passes = {}
        self._work.free()

    @property
    def num_parameters(self) -> int:
        """P: the elements of all parameters, padding included."""
        return table_size(PARAMS, self.config.dims)

    # passes

    def forward(self, tokens: ArrayLike, targets: ArrayLike | None = None) -> Any:
        """Run the model.

        tokens   integers (B, T) in [0, V), B >= 1, 1 <= T <= maxT
        targets  integers (B, T) in [0, V), the token that follows each; or None

        Returns the mean loss (float) with targets, else the logits, a NumPy array (B, T, V).
        Raises UsageError for tokens or targets that are not so, or if memory does not suffice.
        """
        self._start("forward", tokens, targets)
        ops, work = self.backend, self._work
        (B, T), V, Vp = work.shape, self.config.vocab_size, self.config.padded_vocab_size
        if targets is None:  # the logits, and a copy without padding
            needed = B * T * (Vp + V) * np.dtype(self._tensor_dtype).itemsize
            require_memory("GPT2", f"an array of logits with B={B} and T={T}", needed)
        if targets is not None:
            self._run(self._loss_pass, "loss")
            return self._finish_loss()
        self._run(self._forward_pass, "forward")
        logits = ops.alloc((B * T, Vp), self._tensor_dtype)
        ops.logits_forward(logits, work.lnf_rows(0, B * T), self.params.wte, bf16=self._bf16)
        return self._download_logits(logits).reshape(B, T, V)

    def next_logits(self, tokens: ArrayLike) -> NDArray[Any]:
        """Give the logits (B, V) of the token that follows `tokens`, integers (B, T).

        Where the backend records passes, T is rounded up: no token sees those behind it, and a text
        that grows token by token needs few recordings.
        """
        checked = check_tokens("GPT2.next_logits", "tokens", tokens, self.config)
        B, T = checked.shape
        unit = self.backend.T_UNIT
        longer = min(-(-T // unit) * unit, self.config.max_seq_len)
        self._start("next_logits", np.pad(checked, ((0, 0), (0, longer - T))), None)
        self._run(self._forward_pass, "forward")
        Vp = self.config.padded_vocab_size
        rows = self._work.lnf_rows
        block = self.backend.alloc((B * Vp,), self._tensor_dtype)
        for b in range(B):  # the last position of each sequence
            row = self.backend.view(block, b * Vp, (1, Vp))
            self.backend.logits_forward(
                row, rows(b * longer + T - 1, 1), self.params.wte, bf16=self._bf16
            )
        return self._download_logits(self.backend.view(block, 0, (B, Vp)))

    def zero_grad(self) -> None:
        """Set the gradients to zero, making them if there are none."""
        self._require_life("zero_grad")
        self.backend.zero(self._made_grads().memory)

    def backward(self) -> None:
        """Add the gradients of the mean loss of the last forward pass to `grads`.

        Raises OrderError unless that pass had targets and the weights are still the same.
        """
        self._require_life("backward")
        if self._held_pass != "with targets":
            raise OrderError(
                f"GPT2.backward: the last forward pass is {self._held_pass},"
                " expected one with targets and no update since"
            )
        B, T = self._work.shape
        self._fit_backward()
        self._run(self._backward_pass, "backward", 1 / (B * T), True)

    def forward_backward(
        self,
        tokens: ArrayLike,
        targets: ArrayLike,
        dloss: float | None = None,
        accumulate: bool = False,
    ) -> float:
        """Run the model forward and backward: a training step without its update.

        tokens, targets  integers (B, T), as in `forward`
        dloss            gradient of each position's loss; None is 1 / (B*T), that of the mean
        accumulate       add to the gradients instead of writing them, for micro-batches

        Returns the mean loss. A loss or gradient that is not finite stays visible.
        """
        if dloss is not None:
            require_float32("GPT2.forward_backward", dloss=dloss)
        self._start("forward_backward", tokens, targets)
        self._fit_backward()
        B, T = self._work.shape
        mean = 1 / (B * T)
        dloss = mean if dloss is None else dloss
        self._run(self._training_pass, "training", dloss, accumulate, mean, False)
        return self._finish_loss()

    def train_step(
        self,
        batches: Sequence[tuple[ArrayLike, ArrayLike]],
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        step: int,
        *,
        max_norm: float = 0.0,
        decay: str = "all",
    ) -> None:
        """Take one training step: forward, backward, clip, update. Nothing is read back meanwhile.

        batches   micro-batches, tokens and targets as in `forward`, all of one shape (B, T)
        max_norm  the norm that gradients are clipped to; 0 is no clipping
        others    as in `update`

        Gradients are of the mean over all micro-batches. If loss or norm is not finite, nothing is
        updated; `outcome` tells.
        """
        self._require_life("train_step")
        check_update("GPT2.train_step", lr, beta1, beta2, eps, weight_decay, step, decay)
        checked = check_batches("GPT2.train_step", batches, self.config)
        self._fit_forward(*checked.shape[2:])
        self._fit_backward()
        self._work.queue(checked)
        mean = 2 / checked.size  # half of it are targets
        for i in range(len(batches)):
            self._work.take_queued(i)
            self._run(self._training_pass, "training", mean, i > 0, mean, i > 0)
            self._held_pass = "with targets"
        grads = self._required_grads("train_step")
        self.backend.global_norm(self._outcome, grads.memory)
        self._adamw(
            self._outcome, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            step=step, grad_scale=1.0, max_norm=max_norm, decay=decay,
        )  # fmt: skip

    def outcome(self) -> tuple[float, float]:
        """Give mean loss and gradient norm, before clipping, of the last train_step."""
        self._require_life("outcome")
        loss, norm = self.backend.download(self._outcome)
        return float(loss), float(norm)

    def grad_norm(self) -> float:
        """Give the L2 norm of all gradients. Raises OrderError if there are none."""
        self.backend.global_norm(self._outcome, self._required_grads("grad_norm").memory)
        return self.outcome()[1]

    def update(
        self,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        step: int,
        *,
        grad_scale: float = 1.0,
        decay: str = "all",
    ) -> None:
        """Take one step of AdamW with the gradients as they are.

        step        counts updates from 1, for the correction of the moments' bias
        grad_scale  multiplies each gradient: the clip
        decay       `all` tensors, as llm.c's CPU program; `2d`, as its CUDA program

        The activations of the last forward pass no longer belong to these weights, so `backward`
        wants a new one. Raises OrderError if there are no gradients.
        """
        self._required_grads("update")
        check_update("GPT2.update", lr, beta1, beta2, eps, weight_decay, step, decay)
        require_float32("GPT2.update", grad_scale=grad_scale)
        self._adamw(
            None, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay,
            step=step, grad_scale=grad_scale, max_norm=0.0, decay=decay,
        )  # fmt: skip

    def intermediates(self, tokens: ArrayLike, targets: ArrayLike) -> dict[str, NDArray[Any]]:
        """Compute the 23 activations of the C program by its names; see SEED_ACTS for shapes.

        Raises UsageError on another backend than numpy.
        """
        from .intermediates import seed_forward

        if self.backend.name != "numpy":
            raise UsageError(
                f"GPT2.intermediates: backend is {self.backend.name}, expected numpy,"
                " because only the reference keeps every tensor"
            )
        self._start("intermediates", tokens, targets)
        batch = self._work.batch
        return dict(seed_forward(self.config, self.params, batch.tokens, batch.targets).items())

    # around a pass

    def _start(self, who: str, tokens: ArrayLike, targets: ArrayLike | None) -> None:
        """Check a batch before anything changes, then copy it to the backend."""
        self._require_life(who)
        checked, follow = check_batch(f"GPT2.{who}", tokens, targets, self.config)
        self._fit_forward(*checked.shape)
        self.backend.upload(self._work.batch.tokens, checked)
        if follow is not None:
            self.backend.upload(self._work.batch.targets, follow)

    def _fit_forward(self, B: int, T: int) -> None:
        """Make room for a batch, whose passes are still to come."""
        self._held_pass, self.mean_loss = "missing", None
        if self._work.shape != (B, T):
            self._passes.clear()  # they are of the memory of another shape
        self._work.fit_forward(B, T)

    def _run(self, passes: Callable[..., None], *key: Any) -> None:
        """Run passes, which are functions of the key's numbers, as the backend recorded them."""
        which = (id(self.backend), *key)  # another may stand in its place, to be watched
        if which not in self._passes:
            self._passes[which] = self.backend.record(partial(passes, *key[1:]))
        self._passes[which]()

    def _forward_pass(self) -> None:
        forward_pass(self.backend, self.config, self.params, self._work, bf16=self._bf16)

    def _loss_pass(self) -> None:
        self._forward_pass()
        acts, (B, T) = self._work.acts, self._work.shape
        self.backend.classifier_forward(
            acts.losses, acts.lnf, self.params.wte, self._work.batch.targets,
            V=self.config.vocab_size, bf16=self._bf16,
        )  # fmt: skip
        self.backend.mean_loss(self._outcome, acts.losses, scale=1 / (B * T), accumulate=False)

    def _backward_pass(self, dloss: float, accumulate: bool) -> None:
        backward_pass(
            self.backend, self.config, self.params, self._made_grads(), self._work,
            dloss=dloss, accumulate=accumulate, bf16=self._bf16,
        )  # fmt: skip

    def _training_pass(self, dloss: float, accumulate: bool, scale: float, add_loss: bool) -> None:
        """Forward, backward, and the loss times `scale`, added to that before with `add_loss`."""
        self._forward_pass()
        self._backward_pass(dloss, accumulate)
        losses = self._work.acts.losses
        self.backend.mean_loss(self._outcome, losses, scale=scale, accumulate=add_loss)

    def _adamw(self, outcome: Any, *, decay: str, **scalars: float) -> None:
        """Update the weights, making the moments if there are none."""
        if self.m is None or self.v is None:
            require_memory("GPT2", "the first update", 2 * self._model_bytes, self.backend)
            self.m = Tensors(self.backend, PARAMS, self.config.dims, self._tensor_dtype)
            self.v = Tensors(self.backend, PARAMS, self.config.dims, self._tensor_dtype)
        grads = self._made_grads()
        self.backend.adamw(
            self.params.memory, grads.memory, self.m.memory, self.v.memory, outcome,
            decay=self._decay_2d if decay == "2d" else None, **scalars,
        )  # fmt: skip
        if self._held_pass != "missing":
            self._held_pass = "older than the last update"

    def _finish_loss(self) -> float:
        self.mean_loss = self.outcome()[0]
        self._held_pass = "with targets"
        return self.mean_loss

    def _download_logits(self, logits: Any) -> NDArray[Any]:
        self._held_pass = "without targets"
        rows = np.asarray(self.backend.download(logits))
        return np.ascontiguousarray(rows[:, : self.config.vocab_size])

    @property
    def _bf16(self) -> bool:
        return self.dtype == "bfloat16"

    @property
    def _model_bytes(self) -> int:
        return model_bytes(self.config, np.dtype(self._tensor_dtype).itemsize)

    def _fit_backward(self) -> None:
        self._work.fit_backward(with_grads=self.grads is None)
        self._made_grads()

    def _made_grads(self) -> Tensors:
        if self.grads is None:
            self.grads = Tensors(self.backend, PARAMS, self.config.dims, self._tensor_dtype)
        return self.grads

    def _required_grads(self, who: str) -> Tensors:
        self._require_life(who)
        if self.grads is None:
            raise OrderError(f"GPT2.{who}: there are no gradients, expected a backward pass first")
        return self.grads

    def _require_life(self, who: str) -> None:
        if self.params is None:
            raise OrderError(f"GPT2.{who}: the model is freed, expected no call after free")
