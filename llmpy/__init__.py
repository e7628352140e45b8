"""GPT-2 training in Python, every forward and backward pass written by hand.

What is done to a model lives in modules named for it: llmpy.train.train, llmpy.generate.generate,
llmpy.verify.verify, llmpy.dump.dump. A backend is loaded when a model is made on it.

>>> import llmpy
>>> model = llmpy.GPT2.from_descriptor("d12")
>>> loss = model.forward_backward(tokens, targets)
"""

from .config import TrainConfig
from .data.corpus import corpus_text
from .data.loader import DataLoader, SeedLoader
from .data.vocabulary import char_tokenizer, gpt2_tokenizer
from .errors import (
    BackendError,
    ConfigError,
    FormatError,
    NonFiniteError,
    OrderError,
    UsageError,
)
from .formats.checkpoint import read_checkpoint, write_checkpoint
from .formats.debug_state import DebugState, read_debug_state, write_debug_state
from .formats.tokenizer import Tokenizer, read_tokenizer, write_tokenizer
from .formats.tokens import TokenFile, write_tokens
from .model import GPT2
from .sizes import GPT2Config, descriptor_config

__all__ = [
    "GPT2",
    "BackendError",
    "ConfigError",
    "DataLoader",
    "DebugState",
    "FormatError",
    "GPT2Config",
    "NonFiniteError",
    "OrderError",
    "SeedLoader",
    "TokenFile",
    "Tokenizer",
    "TrainConfig",
    "UsageError",
    "char_tokenizer",
    "corpus_text",
    "descriptor_config",
    "gpt2_tokenizer",
    "read_checkpoint",
    "read_debug_state",
    "read_tokenizer",
    "write_checkpoint",
    "write_debug_state",
    "write_tokenizer",
    "write_tokens",
]
