"""The memory that a batch needs: its tokens, the activations, the scratch of the backward pass.

Each table lies at the front of a block of its own, which grows when a batch is larger than any
before and is used again when it is not. Within a block, tensors.py says what shares memory.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .footprint import backward_bytes, forward_bytes, model_bytes, ops_bytes, require_memory
from .sizes import GPT2Config
from .tensors import SCRATCH, Tensors, acts_table, table_places

BATCH: dict[str, tuple[str, ...]] = {"tokens": ("B", "T"), "targets": ("B", "T")}


class Workspace:
    """The tensors of one batch after another, on one backend.

    recompute  what the backward pass makes again; see REMADE in tensors.py
    shape      (B, T) of the batch at hand; (0, 0) before the first
    batch      tokens and targets, int32
    acts       activations
    scratch    gradients of activations, one layer after the other; None until there is a backward
    """

    def __init__(self, config: GPT2Config, backend: Any, dtype: str, recompute: int = 0) -> None:
        """Make an empty one: the first batch sets the size."""
        self.config = config
        self.backend = backend
        self.dtype = dtype
        self.recompute = recompute
        self.free()

    def free(self) -> None:
        """Let go of all memory."""
        self.shape = (0, 0)
        self.batch: Any = None
        self.acts: Any = None
        self.scratch: Any = None
        self._blocks: dict[str, tuple[int, Any]] = {}
        self._queue: Any = None
        self._queue_size = 0

    def fit_forward(self, B: int, T: int) -> None:
        """Make room for a forward pass. Raises UsageError if memory does not suffice."""
        if self.shape == (B, T):
            return
        needed = forward_bytes(self.config, B, T, self._itemsize, self.recompute)
        needed -= self._held("acts")
        require_memory("GPT2", f"a forward pass with B={B} and T={T}", needed, self.backend)
        # the views go first: they would keep a block that is too small alive beside the new one
        self.shape, self.batch, self.acts, self.scratch = (0, 0), None, None, None
        self.batch = self._prefix("batch", BATCH, B, T, "int32")
        self.acts = self._prefix("acts", acts_table(self.recompute), B, T, self.dtype)
        self.shape = (B, T)

    def fit_backward(self, with_grads: bool) -> None:
        """Make room for the backward pass of the batch at hand.

        with_grads  whether the gradients of the parameters are still to be made

        Raises UsageError if memory does not suffice.
        """
        if self.scratch is not None:
            return
        B, T = self.shape
        needed = backward_bytes(self.config, B, T, self._itemsize) - self._held("scratch")
        needed += ops_bytes(self.backend, self.config, B, T, self._itemsize)
        needed += model_bytes(self.config, self._itemsize) if with_grads else 0
        require_memory("GPT2", f"a backward pass with B={B} and T={T}", needed, self.backend)
        self.scratch = self._prefix("scratch", SCRATCH, B, T, self.dtype)

    def queue(self, batches: NDArray[np.int32]) -> None:
        """Bring micro-batches (batches, 2, B, T), of the shape at hand, to the backend at once."""
        if self._queue_size != batches.size:
            self._queue, self._queue_size = None, 0  # before the new one is made
            self._queue = self.backend.alloc((batches.size,), "int32")
            self._queue_size = batches.size
        self.backend.upload(self._queue, batches.reshape(-1))

    def take_queued(self, i: int) -> None:
        """Make micro-batch i of the queue the batch at hand."""
        size = math.prod(self.shape)
        for k, tensor in enumerate((self.batch.tokens, self.batch.targets)):
            queued = self.backend.view(self._queue, (2 * i + k) * size, self.shape)
            self.backend.copy(tensor, queued)

    def lnf_rows(self, start: int, count: int) -> Any:
        """Give rows of lnf as (count, C), all positions in one line."""
        C = self.config.channels
        offset = self.acts.offsets["lnf"] + start * C
        return self.backend.view(self.acts.memory, offset, (count, C))

    @property
    def _itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    def _held(self, name: str) -> int:
        return self._blocks.get(name, (0, None))[0] * self._itemsize

    def _prefix(
        self, name: str, table: Mapping[str, tuple[str, ...]], B: int, T: int, dtype: str
    ) -> Tensors:
        dims = {**self.config.dims, "B": B, "T": T}
        _, sizes = table_places(table, dims)
        block = self._blocks.get(name, (0, None))[1]
        memory = None if block is None else self.backend.fit_places(block, sizes)
        if memory is None:
            block = None
            self._blocks.pop(name, None)  # before the new one is made
            memory = self.backend.alloc_places(sizes, dtype, apart=True)
            self._blocks[name] = (sum(sizes), memory)
        return Tensors(self.backend, table, dims, dtype, memory)
