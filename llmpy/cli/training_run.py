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

from ..config import BABY, DeviceConfig, RunConfig, TrainConfig
from ..console import passing
from ..data.corpus import corpus_text
from ..data.loader import DataLoader, MemoryTokens
from ..data.vocabulary import char_tokenizer, find_tokenizer, gpt2_tokenizer
from ..device import open_backend
from ..errors import UsageError
from ..footprint import largest_tensor, require_training_memory
from ..formats.checkpoint import read_checkpoint_config
from ..formats.tokenizer import TOKENIZER_NAME, Tokenizer, read_tokenizer
from ..model import GPT2
from ..run_folder import RunFolder
from ..sizes import DESCRIPTORS, VOCAB_SIZE, GPT2Config, descriptor_config, is_descriptor
from ..train import check_seq_len, count_steps
from .flags import make

Source = str | MemoryTokens  # a pattern of token files, or tokens

BABY_OUT = "out"
VALIDATION_FRACTION = 0.1  # of the embedded corpus, from its end; same as nanoGPT
PLAYS = "the plays that come with llmpy"
TRAIN_DATA = "dev/data/tinyshakespeare/tiny_shakespeare_train.bin"  # same as llm.c
VAL_DATA = "dev/data/tinyshakespeare/tiny_shakespeare_val.bin"


@dataclass
class Run:
    """A training run, ready to start but for its model, which takes memory."""

    init: str  # names the model
    sizes: GPT2Config
    config: TrainConfig
    backend: Any  # module
    device: str  # a line about what computes
    memory: str  # a line about how much of it training takes
    train_loader: DataLoader
    val_loader: DataLoader | None
    tokenizer: Tokenizer | None
    folder: RunFolder | None = None
    baby: bool = False
    notes: list[str] = field(default_factory=list)


def open_run(
    run: RunConfig, given: Mapping[str, Any], device: DeviceConfig, open_files: ExitStack
) -> Run:
    """Check all settings and make what a training run needs, but for the model.

    given       values of TrainConfig's fields, those that were set
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
    if config.seq_len < sizes.max_seq_len:
        notes.append(
            f"--seq-len is {config.seq_len}, below the model's max_seq_len {sizes.max_seq_len}:"
            " the positions from there on are not trained"
        )
    _, largest = largest_tensor(sizes, config.batch_size, config.seq_len)
    backend, computes = open_backend(device, largest)
    data = _data(run, text, tokenizer)
    train_loader, val_loader = _loaders(run, config, data, sizes.vocab_size, notes, open_files)
    steps = count_steps(config, train_loader)
    if 0 < steps < config.warmup:
        notes.append(
            f"--warmup is {config.warmup}, above the {steps} steps: the learning rate never"
            f" reaches --lr {config.lr:g}"
        )
    config = replace(config, steps=steps)
    folder = _checked_folder(run, baby, notes)
    memory = require_training_memory("train", backend, sizes, config)
    init = run.init or "baby"
    return Run(
        init, sizes, config, backend, computes, memory, train_loader, val_loader, tokenizer, folder,
        baby, notes,
    )  # fmt: skip


def _sizes_and_tokenizer(
    run: RunConfig, text: str | None, notes: list[str]
) -> tuple[GPT2Config, Tokenizer | None]:
    """Give the sizes of the model, whose V may be the tokenizer's, and the tokenizer."""
    if run.init is None or run.init == "baby":
        tokenizer = _baby_tokenizer(run, text, notes)
        return init_sizes("baby", tokenizer.vocab_size), tokenizer
    sizes = init_sizes(run.init)
    model = run.init if is_model_file(run.init) else None
    return sizes, find_tokenizer(sizes, run.tokenizer, model, run.train_data)


def is_model_file(init: str) -> bool:
    """Whether --init is a checkpoint, as in llm.c by its ending, or any file that is there."""
    return init.endswith(".bin") or (not is_descriptor(init) and Path(init).is_file())


def init_sizes(init: str, vocab_size: int | None = None) -> GPT2Config:
    """Give the sizes of the model that --init names; V of a descriptor is `vocab_size`.

    Raises UsageError if there is no such model, FormatError for a file that is none.
    """
    if is_model_file(init):
        return read_checkpoint_config(init)[0]
    if is_descriptor(init):
        return descriptor_config(init, vocab_size)
    names = ", ".join(DESCRIPTORS)
    if Path(init).is_dir():
        raise UsageError(
            f"--init is {init}, which is a folder: those of Hugging Face are not built yet,"
            f" expected a model FILE.bin or one of {names}"
        )
    raise UsageError(f"--init is {init}, expected a model FILE.bin or one of {names}")


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


def _data(
    run: RunConfig, text: str | None, tokenizer: Tokenizer | None
) -> tuple[Source, Source | None]:
    """Give what to train and what to validate on: of the embedded text, else files."""
    if text is not None and tokenizer is not None:
        tokens = np.array(tokenizer.encode(text), np.int32)
        cut = len(tokens) - int(VALIDATION_FRACTION * len(tokens))
        train, val = MemoryTokens(tokens[:cut], PLAYS), MemoryTokens(tokens[cut:], PLAYS)
        return train, val if run.val_data is None else run.val_data
    if run.train_data is not None:
        return run.train_data, run.val_data
    if not Path(TRAIN_DATA).exists():
        raise UsageError(f"--train-data is not given, and its default {TRAIN_DATA} is missing")
    if run.val_data is None and Path(VAL_DATA).exists():
        return TRAIN_DATA, VAL_DATA
    return TRAIN_DATA, run.val_data


def _loaders(
    run: RunConfig,
    config: TrainConfig,
    data: tuple[Source, Source | None],
    V: int,
    notes: list[str],
    open_files: ExitStack,
) -> tuple[DataLoader, DataLoader | None]:
    """Open the data to train and to validate on; without the second no validation."""

    def load(source: Source, **how: Any) -> DataLoader:
        loader = DataLoader(source, config.batch_size, config.seq_len, vocab_size=V, **how)
        return open_files.enter_context(loader)

    train, val = data
    if config.overfit and val is None:
        notes.append("overfit: --val-data is not given, so it is on a batch of the training data")
    source = val if config.overfit and val is not None else train
    in_order = run.no_shuffle or config.overfit or run.order == "seed"
    train_loader = load(source, shuffle=not in_order, seed=config.seed)
    if val is not None and config.val_every > 0:
        return train_loader, load(val)
    what = "--val-data is not given" if val is None else "--val-every is 0"
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


def make_model(init: str, config: TrainConfig, sizes: GPT2Config, backend: Any, dtype: str) -> GPT2:
    """Make the model that --init names."""
    how: dict[str, Any] = {"backend": backend, "dtype": dtype, "recompute": config.recompute}
    if is_model_file(init):
        passing("reading the model")
        return GPT2.from_checkpoint(init, **how)
    passing("drawing the initial weights")
    return GPT2.from_descriptor(init, config.seed, sizes.vocab_size, **how)
