"""`llmpy train --recipe train_gpt2.c`: from the settings to a recipe, and its output to stdout."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..config import SEED_RECIPE, DeviceConfig, RunConfig, TrainConfig
from ..console import note, write
from ..data.loader import DataLoader, SeedLoader
from ..device import open_backend
from ..errors import UsageError
from ..footprint import largest_tensor, require_training_memory
from ..formats.tokenizer import check_vocabulary, read_tokenizer
from ..recipe import Recipe, run_recipe
from ..train import Loader, check_seq_len
from .flags import flag_of, make
from .training_run import TRAIN_DATA, VAL_DATA, init_sizes, make_model

# order -> where the data are: the first that exists
# fmt: off
TRAIN_DATA_PATHS = {
    "seed": ("data/tiny_shakespeare_train.bin", "data/TinyStories_train.bin"),
    "llm.c": (TRAIN_DATA, "dev/data/tinystories/TinyStories_train.bin"),
}
VAL_DATA_PATHS = {
    "seed": ("data/tiny_shakespeare_val.bin", "data/TinyStories_val.bin"),
    "llm.c": (VAL_DATA, "dev/data/tinystories/TinyStories_val.bin"),
}
# fmt: on
DEFAULT_MODEL = "gpt2_124M.bin"
DEFAULT_TOKENIZER = "gpt2_tokenizer.bin"

# what flags may change
SETTINGS = (
    "batch_size", "seq_len", "steps", "lr", "beta1", "beta2", "weight_decay", "val_every",
    "val_batches", "sample_every", "sample_tokens", "seed", "recompute",
)  # fmt: skip


def run_recipe_command(run: RunConfig, given: Mapping[str, Any], device: DeviceConfig) -> int:
    """Carry out `llmpy train --recipe train_gpt2.c`."""
    with ExitStack() as open_files:
        recipe = open_recipe(run, given, device, open_files)
        for piece in run_recipe(recipe):
            write(piece)
    return 0


def open_recipe(
    run: RunConfig, given: Mapping[str, Any], device: DeviceConfig, open_files: ExitStack
) -> Recipe:
    """Check the settings and make what `run_recipe` needs; tell what computes, and the memory.

    given       values of TrainConfig's fields, those that were set
    open_files  closes the data

    Raises UsageError for a flag that means nothing here; else as `open_run`.
    """
    refused = [flag_of(name) for name in given if name not in SETTINGS]
    refused += [flag for flag, on in (("--out", run.out), ("--no-shuffle", run.no_shuffle)) if on]
    if refused:
        raise UsageError(
            f"{refused[0]} is given with --recipe {run.recipe}, which has no such thing"
        )
    init = DEFAULT_MODEL if run.init is None else run.init
    tokenizer_path = DEFAULT_TOKENIZER if run.tokenizer is None else run.tokenizer
    tokenizer = read_tokenizer(tokenizer_path) if Path(tokenizer_path).exists() else None
    if init == "baby" and tokenizer is None:
        raise UsageError(
            f"--init is baby, whose vocabulary is that of its tokenizer, but {tokenizer_path} is"
            " missing. Give --tokenizer."
        )
    sizes = init_sizes(init, tokenizer.vocab_size if tokenizer and init == "baby" else None)
    config: TrainConfig = make(TrainConfig, given, SEED_RECIPE)
    check_seq_len(config.seq_len, sizes.max_seq_len)
    _, largest = largest_tensor(sizes, config.batch_size, config.seq_len)
    backend, line = open_backend(device, largest)
    if tokenizer is not None:
        check_vocabulary(tokenizer, sizes, tokenizer_path)
    order = run.order or "seed"
    train_loader, val_loader = _loaders(run, config, order, sizes.vocab_size, open_files)
    memory = require_training_memory("train", backend, sizes, config)
    note(line)
    note(memory)
    model = make_model(init, config, sizes, backend, device.dtype)
    return Recipe(model, config, train_loader, val_loader, tokenizer, tokenizer_path, order)


def _loaders(
    run: RunConfig, config: TrainConfig, order: str, V: int, open_files: ExitStack
) -> tuple[Loader, Loader]:
    train_data = _data_path("--train-data", run.train_data, TRAIN_DATA_PATHS[order])
    val_data = _data_path("--val-data", run.val_data, VAL_DATA_PATHS[order])

    def load(path: str, shuffle: bool) -> Loader:
        B, T = config.batch_size, config.seq_len
        if order == "seed":
            return open_files.enter_context(SeedLoader(path, B, T, V))
        loader = DataLoader(path, B, T, shuffle=shuffle, seed=config.seed, vocab_size=V)
        return open_files.enter_context(loader)

    return load(train_data, shuffle=True), load(val_data, shuffle=False)


def _data_path(flag: str, given: str | None, defaults: tuple[str, ...]) -> str:
    if given is not None:
        return given
    for path in defaults:
        if Path(path).exists():
            return path
    raise UsageError(f"{flag} is not given, and its defaults {' and '.join(defaults)} are missing")
