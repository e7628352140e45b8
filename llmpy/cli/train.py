"""`llmpy train`: run a training run, and tell its events on the console."""

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ..config import BABY, DeviceConfig, RunConfig, TrainConfig
from ..console import Progress, TextStream, is_terminal, note, write
from ..generate import generate, sampling_rng, start_token
from ..model import GPT2
from ..tensors import PARAMS, table_size
from ..train import Checkpoint, Event, Finished, Sample, Step, Validation, train
from .flags import Command, flag_of, make
from .recipe import run_recipe_command
from .training_run import Run, make_model, open_run

LAST_SAMPLE_TOKENS = 400  # with which the baby recipe ends


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy train`."""
    config: RunConfig = make(RunConfig, values)
    settings = {k: v for k, v in values.items() if k in TrainConfig.__dataclass_fields__}
    TrainConfig(**{**settings, "total_batch_size": None})  # what is wrong by itself, first
    device: DeviceConfig = make(DeviceConfig, values)
    if config.recipe is not None:
        return run_recipe_command(config, settings, device)
    return run_training(config, settings, device)


def run_training(run: RunConfig, given: Mapping[str, Any], device: DeviceConfig) -> int:
    """Carry out `llmpy train` without --recipe."""
    with ExitStack() as open_files:
        opened = open_run(run, given, device, open_files)
        for text in (opened.device, *_model_lines(opened), opened.memory, *opened.notes):
            note(text)
        model = make_model(opened.init, opened.config, opened.sizes, opened.backend, device.dtype)
        if opened.folder is not None:
            opened.folder.start()
            if opened.tokenizer is not None:
                opened.folder.write_tokenizer(opened.tokenizer)
        _tell_events(opened, model)
    if opened.folder is not None and opened.config.steps:
        _draw_curve(opened)
    if opened.baby:
        _last_sample(opened, model)
    return 0


def _model_lines(run: Run) -> tuple[str, str]:
    c, t = run.sizes, run.config
    batches = f"{t.accumulation_steps} batches of " if t.accumulation_steps > 1 else ""
    return (
        f"model: L {c.num_layers}, NH {c.num_heads}, C {c.channels}, maxT {c.max_seq_len},"
        f" V {c.vocab_size}, {table_size(PARAMS, c.dims):,} parameters",
        f"training: {t.steps} steps of {t.tokens_per_step:,} tokens,"
        f" {batches}B {t.batch_size}, T {t.seq_len}",
    )


def _tell_events(run: Run, model: GPT2) -> None:
    """Train; print llm.c's lines.

    A bar on the terminal shows what would otherwise scroll by: for the baby recipe its 2000 step
    lines, unless stdout goes elsewhere; else a run whose stdout goes elsewhere.
    """
    scrolls = is_terminal(sys.stdout)
    shown = is_terminal(sys.stderr) and (run.baby or not scrolls)
    progress = Progress(run.config.steps or 0, shown)
    quiet = shown and scrolls
    events = train(
        model,
        run.train_loader,
        run.val_loader,
        run.config,
        folder=run.folder,
        start_token=start_token(run.tokenizer),
        working=progress.working,
    )
    try:
        for event in events:
            if isinstance(event, Step):
                if not quiet:
                    _tell(run, event)
                progress.advance(f"loss {event.loss:.4f}, {event.tokens_per_second:,.0f} tokens/s")
            else:
                with progress.hidden():
                    _tell(run, event)
    finally:
        progress.close()


def _tell(run: Run, event: Event) -> None:
    if isinstance(event, Sample):
        write("generating:\n---\n")
        write_tokens(run, event.tokens)
        write("\n---\n")
    elif isinstance(event, Checkpoint):
        note(f"wrote {event.path}")
    elif isinstance(event, Validation | Step | Finished):
        line = event.line()
        if line is not None:
            write(line + "\n")


def write_tokens(run: Run, tokens: tuple[int, ...]) -> None:
    """Write tokens as text, or as ids if there is no tokenizer."""
    if run.tokenizer is None:
        write("".join(f"{token} " for token in tokens))
        return
    stream = TextStream()
    stream.write(run.tokenizer.decode(tokens))
    stream.end()


def _draw_curve(run: Run) -> None:
    assert run.folder is not None
    path = run.folder.write_curve()
    note(f"no loss.png: {path}" if isinstance(path, str) else f"wrote {path}")


def _last_sample(run: Run, model: GPT2) -> None:
    if run.tokenizer is None:
        return
    rng = sampling_rng(run.config.seed, sample=1)  # not what the samples before have shown
    tokens = generate(model, [start_token(run.tokenizer)], LAST_SAMPLE_TOKENS, rng=rng)
    stream = TextStream()
    write("\n")
    for token in tokens:
        stream.write(run.tokenizer.token_table[token])
    stream.end()
    write("\n")


_BABY = ", ".join(
    f"{flag_of(name)} {value:g}" if isinstance(value, float) else f"{flag_of(name)} {value}"
    for name, value in vars(BABY).items()
    if value != getattr(TrainConfig(), name)
)

TRAIN = Command(
    name="train",
    text="Train a model: without --init a small one on the plays that come with llmpy.",
    run=run,
    settings=(RunConfig, TrainConfig, DeviceConfig),
    not_built=(
        "--keep", "--major-every", "--resume", "--skip-loss-z", "--skip-norm-z",
        "--hellaswag", "--config",
    ),
    more=f"""\
Without --init, the baby recipe: {_BABY}, and --out out, which is started over if it holds a run.
With --init, the defaults above, which are llm.c's: T is at most the model's, and files are written
only with --out. --recipe train_gpt2.c has the C program's defaults, and writes no file.
llm.c's own short flags (-i -j -e -o -b -t -d -x -k -l -u -q -c -v -m -s -g -a -n and more) are
taken with llm.c's meaning.""",
)  # fmt: skip
