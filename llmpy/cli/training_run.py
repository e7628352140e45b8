"""Set up a training run: from the settings that were given to a model, loaders and a folder.

Without --init it is the baby recipe on the embedded corpus: the last tenth of its characters is the
validation data. With --init it has llm.c's settings, T the largest up to 1024, llm.c's data paths.

The vocabulary is that of --tokenizer; else, for a baby on the embedded corpus, its characters; else
tokenizer.bin beside the model file or the training data; else GPT-2's if it fits.

Everything is checked before a file is written or memory for the model taken.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config import (
    BABY,
    VOCAB_SIZE,
    GPT2Config,
    RunConfig,
    TrainConfig,
    descriptor_config,
)
from ..data.corpus import corpus_text
from ..data.loader import DataLoader
from ..data.vocabulary import char_tokenizer, find_tokenizer, gpt2_tokenizer
from ..errors import UsageError
from ..formats.checkpoint import read_checkpoint_config
from ..formats.tokenizer import TOKENIZER_NAME, Tokenizer, read_tokenizer
from ..memory import require_memory, training_bytes
from ..model import GPT2
from ..run_folder import RunFolder
from ..train import check_seq_len, count_steps
from .flags import make

BABY_OUT = "out"
VALIDATION_FRACTION = 0.1  # of the embedded corpus, from its end; same as nanoGPT
TRAIN_DATA = "dev/data/tinyshakespeare/tiny_shakespeare_train.bin"  # same as llm.c
VAL_DATA = "dev/data/tinyshakespeare/tiny_shakespeare_val.bin"


@dataclass
class Run:
    """A training run, ready to start."""

    model: GPT2
    config: TrainConfig
    train_loader: DataLoader
    val_loader: DataLoader | None
    tokenizer: Tokenizer | None
    folder: RunFolder | None = None
    baby: bool = False
    notes: list[str] = field(default_factory=list)


def open_run(run: RunConfig, given: Mapping[str, Any], backend: Any, open_files: ExitStack) -> Run:
    """Check all settings and make what a training run needs.

    given       values of TrainConfig's fields, those that were set
    backend     module
    open_files  closes the data

    Raises UsageError, ConfigError or FormatError, and OSError for a file that can't be read.
    """
    notes: list[str] = []
    baby = run.init is None
    embedded = run.train_data is None and (baby or run.init == "baby")
    text = corpus_text() if embedded else None
    sizes, tokenizer = _sizes_and_tokenizer(run, text, notes)
    base = BABY if baby else TrainConfig()
    if "seq_len" not in given:
        base = replace(base, seq_len=min(base.seq_len, sizes.max_seq_len))
    config: TrainConfig = make(TrainConfig, given, base)
    check_seq_len(config.seq_len, sizes.max_seq_len)
    if text is not None and tokenizer is not None:
        train_loader, val_loader = _embedded_loaders(run, config, text, tokenizer)
    else:
        train_loader, val_loader = _file_loaders(run, config, sizes, notes)
    open_files.enter_context(train_loader)
    if val_loader is not None:
        open_files.enter_context(val_loader)
    config = replace(config, steps=count_steps(config, train_loader))
    folder = _checked_folder(run, baby, notes)
    require_memory(
        "train",
        f"B={config.batch_size} and T={config.seq_len}",
        training_bytes(sizes, config.batch_size, config.seq_len),
    )
    model = make_model(run.init or "baby", config.seed, sizes, backend)
    return Run(model, config, train_loader, val_loader, tokenizer, folder, baby, notes)


def _sizes_and_tokenizer(
    run: RunConfig, text: str | None, notes: list[str]
) -> tuple[GPT2Config, Tokenizer | None]:
    """Give the sizes of the model, whose V may be the tokenizer's, and the tokenizer."""
    if run.init is not None and run.init.endswith(".bin"):
        sizes, _ = read_checkpoint_config(run.init)
        return sizes, find_tokenizer(sizes, run.tokenizer, run.init, run.train_data)
    if run.init is not None and run.init != "baby":
        if Path(run.init).is_dir():
            raise UsageError(
                f"--init is {run.init}, which is a folder, expected a model FILE.bin or a name"
                " like d12"
            )
        sizes = descriptor_config(run.init)
        return sizes, find_tokenizer(sizes, run.tokenizer, run.train_data)
    tokenizer = _baby_tokenizer(run, text, notes)
    return descriptor_config("baby", tokenizer.vocab_size), tokenizer


def _baby_tokenizer(run: RunConfig, text: str | None, notes: list[str]) -> Tokenizer:
    if run.tokenizer is not None:
        return read_tokenizer(run.tokenizer)
    if text is not None:
        return char_tokenizer(text)
    beside = Path(run.train_data or "").parent / TOKENIZER_NAME
    if beside.is_file():
        notes.append(f"tokenizer: {beside}")
        return read_tokenizer(beside)
    notes.append(
        f"tokenizer: GPT-2's (V {VOCAB_SIZE}), because there is no {beside}; --tokenizer names one"
    )
    return gpt2_tokenizer()


def _embedded_loaders(
    run: RunConfig, config: TrainConfig, text: str, tokenizer: Tokenizer
) -> tuple[DataLoader, DataLoader | None]:
    tokens = np.array(tokenizer.encode(text), np.int32)
    cut = len(tokens) - int(VALIDATION_FRACTION * len(tokens))
    sizes = (config.batch_size, config.seq_len)
    seen = tokens[cut:] if config.overfit else tokens[:cut]
    shuffle = not (run.no_shuffle or config.overfit)
    train_loader = DataLoader.from_tokens(seen, *sizes, shuffle=shuffle, seed=config.seed)
    if run.val_data is not None:
        return train_loader, DataLoader(run.val_data, *sizes, vocab_size=tokenizer.vocab_size)
    return train_loader, DataLoader.from_tokens(tokens[cut:], *sizes) if config.val_every else None


def _file_loaders(
    run: RunConfig, config: TrainConfig, sizes: GPT2Config, notes: list[str]
) -> tuple[DataLoader, DataLoader | None]:
    B, T, V = config.batch_size, config.seq_len, sizes.vocab_size
    train_data, val_data = run.train_data, run.val_data
    if train_data is None:
        if not Path(TRAIN_DATA).exists():
            raise UsageError(f"--train-data is not given, and its default {TRAIN_DATA} is missing")
        train_data = TRAIN_DATA
        if val_data is None and Path(VAL_DATA).exists():
            val_data = VAL_DATA
    shuffle = not (run.no_shuffle or config.overfit)
    source = val_data if config.overfit and val_data is not None else train_data
    train_loader = DataLoader(source, B, T, shuffle=shuffle, seed=config.seed, vocab_size=V)
    if val_data is not None and config.val_every > 0:
        with ExitStack() as undo:
            undo.enter_context(train_loader)
            val_loader = DataLoader(val_data, B, T, vocab_size=V)
            undo.pop_all()
        return train_loader, val_loader
    what = "--val-data is not given" if val_data is None else "--val-every is 0"
    notes.append(f"no validation: {what}")
    return train_loader, None


def _checked_folder(run: RunConfig, baby: bool, notes: list[str]) -> RunFolder | None:
    """Give the folder to write to. Only the baby recipe's own `out` is started over."""
    if run.out is None and not baby:
        return None
    own = run.out is None
    folder = RunFolder(BABY_OUT if own else run.out or "")
    if folder.check(start_over=own):
        notes.append(f"{folder.path} holds an earlier run, which is deleted: starting over")
    return folder


def make_model(init: str, seed: int, sizes: GPT2Config, backend: Any) -> GPT2:
    """Make the model of a checkpoint FILE.bin or of a descriptor."""
    if init.endswith(".bin"):
        return GPT2.from_checkpoint(init, backend)
    return GPT2.from_descriptor(init, seed, sizes.vocab_size, backend)
