"""What is timed: the sizes of models and batches, and the least time that a step of each can take.

    operations = 3 * (2 B T (12 L C^2 + Vp C) + 2 B T^2 C L)      matmuls and causal attention;
                                                                  backward is twice forward
    floor      = operations / peak + 28 bytes * parameters / bandwidth

28 bytes are AdamW's: it reads parameter, gradient and two moments, and writes all but the gradient.
"""

import dataclasses

from ..errors import UsageError
from ..sizes import GPT2Config, descriptor_config
from ..tensors import PARAMS, table_size

ADAMW_BYTES = 28  # a parameter


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the machine can do at best."""

    peak_gflops: float
    bandwidth_gbs: float  # bytes read plus bytes written, 1e9 a second


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sizes of a model and a batch, and how many steps to time."""

    config: GPT2Config
    B: int
    T: int
    warm_up: int
    steps: int

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.B * self.T

    @property
    def operations(self) -> int:
        """Floating-point operations of a step."""
        B, T, L, C = self.B, self.T, self.config.num_layers, self.config.channels
        matmuls = 2 * B * T * (12 * L * C * C + self.config.padded_vocab_size * C)
        attention = 2 * B * T * T * C * L
        return 3 * (matmuls + attention)

    @property
    def optimizer_bytes(self) -> int:
        """Bytes that AdamW reads and writes."""
        return ADAMW_BYTES * table_size(PARAMS, self.config.dims)

    def floor_s(self, limits: Limits) -> float:
        """Give the least seconds of a step on a machine of these limits."""
        return self.operations / (limits.peak_gflops * 1e9) + self.optimizer_bytes / (
            limits.bandwidth_gbs * 1e9
        )


D12 = descriptor_config("d12")
CHAR_384 = GPT2Config(max_seq_len=256, vocab_size=65, num_layers=6, num_heads=6, channels=384)
WORKLOADS = {
    "124m-t64": Workload(D12, B=4, T=64, warm_up=2, steps=7),
    "124m-t256": Workload(D12, B=4, T=256, warm_up=1, steps=3),
    "124m-t1024": Workload(D12, B=4, T=1024, warm_up=1, steps=3),
    "char-384": Workload(CHAR_384, B=16, T=256, warm_up=2, steps=7),
    "baby": Workload(descriptor_config("baby", 65), B=12, T=64, warm_up=20, steps=200),
}


def check_workload(name: str | None) -> None:
    """Raise UsageError for the name of no workload."""
    if name is not None and name not in WORKLOADS:
        raise UsageError(f"--workload is {name}, expected one of {', '.join(WORKLOADS)}")
