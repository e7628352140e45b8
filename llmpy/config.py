"""The sizes of a model, and the names under which llm.c knows some of them.

Descriptors (llm.c, train_gpt2.cu): `dN` or `gpt2:dN` for GPT-2 with N layers, `gpt3:cN` for GPT-3
with N channels; and `baby`, the small character model of `llmpy train`.
"""

from dataclasses import dataclass

from .errors import ConfigError

VOCAB_SIZE = 50257  # GPT-2's
PADDING = 128  # Vp is a multiple of it; same as llm.c


@dataclass(frozen=True, kw_only=True)
class GPT2Config:
    """Sizes of a GPT-2 model. The letters are those of the table in tensors.py."""

    max_seq_len: int  # maxT
    vocab_size: int  # V
    num_layers: int  # L
    num_heads: int  # NH
    channels: int  # C

    def __post_init__(self) -> None:
        for name in ("max_seq_len", "vocab_size", "num_layers", "num_heads", "channels"):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} is {value}, expected at least 1")
        if self.channels % self.num_heads:
            raise ConfigError(
                f"channels is {self.channels}, expected a multiple of num_heads = {self.num_heads}"
            )

    @property
    def padded_vocab_size(self) -> int:
        """Vp: V rounded up to a multiple of 128."""
        return -(-self.vocab_size // PADDING) * PADDING

    @property
    def dims(self) -> dict[str, int]:
        """The sizes by their letters, as the tables of tensors.py want them."""
        return {
            "maxT": self.max_seq_len,
            "V": self.vocab_size,
            "Vp": self.padded_vocab_size,
            "L": self.num_layers,
            "NH": self.num_heads,
            "C": self.channels,
        }


# name -> L, NH, C; same as llm.c, train_gpt2.cu
# fmt: off
GPT2_DEPTHS = {
    6: (6, 6, 384),      12: (12, 12, 768),   24: (24, 16, 1024),  36: (36, 20, 1280),
    48: (48, 25, 1600),  60: (60, 30, 1920),  72: (72, 30, 2880),  84: (84, 36, 3456),
}
GPT3_CHANNELS = {
    384: (6, 6, 384),       768: (12, 12, 768),     1024: (24, 16, 1024),
    1536: (24, 16, 1536),   2048: (24, 16, 2048),   2560: (32, 32, 2560),
    4096: (32, 32, 4096),   12288: (96, 96, 12288),
}
# fmt: on


def descriptor_config(name: str, vocab_size: int | None = None) -> GPT2Config:
    """Give the sizes that a descriptor names.

    name        `baby`, `d12`, `gpt2:d12`, `gpt3:c768`, ...
    vocab_size  V; None is GPT-2's 50257; `baby` must be given one

    Raises ConfigError for an unknown name.
    """
    V = VOCAB_SIZE if vocab_size is None else vocab_size
    if name == "baby":
        if vocab_size is None:
            raise ConfigError("descriptor baby needs a vocab_size: that of its tokenizer")
        return GPT2Config(max_seq_len=64, vocab_size=V, num_layers=4, num_heads=4, channels=128)
    for prefix, table, max_seq_len in (
        ("gpt2:d", GPT2_DEPTHS, 1024),
        ("d", GPT2_DEPTHS, 1024),
        ("gpt3:c", GPT3_CHANNELS, 2048),
    ):
        number = name.removeprefix(prefix)
        if number != name and number.isdecimal() and int(number) in table:
            L, NH, C = table[int(number)]
            return GPT2Config(
                max_seq_len=max_seq_len, vocab_size=V, num_layers=L, num_heads=NH, channels=C
            )
    known = ["baby", *(f"d{d}" for d in GPT2_DEPTHS), *(f"gpt3:c{c}" for c in GPT3_CHANNELS)]
    raise ConfigError(f"descriptor is {name!r}, expected one of {', '.join(known)}")
