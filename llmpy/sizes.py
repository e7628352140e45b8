"""The sizes of a model, and the names that llm.c gives to some.

Descriptors (llm.c, train_gpt2.cu): `dN` or `gpt2:dN` for GPT-2 with N layers, `gpt3:cN` for GPT-3
with N channels; and `baby`, the small character model of `llmpy train`.
"""

import operator
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
            try:
                value = operator.index(value)
            except TypeError:
                raise ConfigError(f"{name} is {value!r}, expected a whole number") from None
            if value < 1:
                raise ConfigError(f"{name} is {value}, expected at least 1")
            object.__setattr__(self, name, value)  # a Python int, where NumPy's would overflow
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


# name -> maxT, L, NH, C; all but baby are llm.c's (train_gpt2.cu)
# fmt: off
DESCRIPTORS = {
    "baby":        (64,    4,  4,   128),
    "d6":         (1024,   6,  6,   384),
    "d12":        (1024,  12, 12,   768),
    "d24":        (1024,  24, 16,  1024),
    "d36":        (1024,  36, 20,  1280),
    "d48":        (1024,  48, 25,  1600),
    "d60":        (1024,  60, 30,  1920),
    "d72":        (1024,  72, 30,  2880),
    "d84":        (1024,  84, 36,  3456),
    "gpt3:c384":  (2048,   6,  6,   384),
    "gpt3:c768":  (2048,  12, 12,   768),
    "gpt3:c1024": (2048,  24, 16,  1024),
    "gpt3:c1536": (2048,  24, 16,  1536),
    "gpt3:c2048": (2048,  24, 16,  2048),
    "gpt3:c2560": (2048,  32, 32,  2560),
    "gpt3:c4096": (2048,  32, 32,  4096),
    "gpt3:c12288": (2048, 96, 96, 12288),
}
# fmt: on


def is_descriptor(name: str) -> bool:
    """Whether sizes go by this name."""
    return _plain(name) in DESCRIPTORS


def descriptor_config(name: str, vocab_size: int | None = None) -> GPT2Config:
    """Give the sizes that a descriptor names.

    name        `baby`, `d12`, `gpt2:d12`, `gpt3:c768`, ...
    vocab_size  V; None is GPT-2's 50257; `baby` must be given one

    Raises ConfigError for an unknown name.
    """
    if not is_descriptor(name):
        raise ConfigError(f"descriptor is {name!r}, expected one of {', '.join(DESCRIPTORS)}")
    if name == "baby" and vocab_size is None:
        raise ConfigError("descriptor baby needs a vocab_size: that of its tokenizer")
    maxT, L, NH, C = DESCRIPTORS[_plain(name)]
    V = VOCAB_SIZE if vocab_size is None else vocab_size
    return GPT2Config(max_seq_len=maxT, vocab_size=V, num_layers=L, num_heads=NH, channels=C)


def _plain(name: str) -> str:
    """Give `d12` for `gpt2:d12`."""
    return name.removeprefix("gpt2:") if name.startswith("gpt2:d") else name
