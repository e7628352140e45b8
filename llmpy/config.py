"""The settings of each command: one frozen dataclass per concern.

The command line is made from them: field `val_every` is flag `--val-every`, with the field's
default, llm.c's short flag and help text. So messages name fields by their flags.
"""

import math
from dataclasses import dataclass

from .errors import ConfigError
from .setting import (
    at_least,
    check_recompute,
    check_seed,
    fits_float32,
    one_of,
    setting,
    within,
)

SCHEDULES = ("cosine", "linear", "constant", "wsd")
RECOMPUTE = (
    "2: less memory for a tenth more time: the product before GELU is made again; 0 and 1 are alike"
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a training loop. The defaults are llm.c's (train_gpt2.cu)."""

    # tokens of a step
    batch_size: int = setting(4, "-b", "sequences in a micro-batch (B)")
    seq_len: int = setting(1024, "-t", "tokens in a sequence (T)")
    total_batch_size: int | None = setting(
        None, "-d", "tokens of one step, a multiple of B*T", unset="B*T"
    )
    steps: int | None = setting(None, "-x", "optimizer steps", unset="one pass over the data")

    # optimizer
    lr: float = setting(3e-4, "-l", "largest learning rate")
    schedule: str = setting("cosine", "-k", "how the learning rate falls", choices=SCHEDULES)
    warmup: int = setting(0, "-u", "steps in which the learning rate rises")
    final_lr_frac: float = setting(1.0, "-q", "last learning rate as a fraction of the largest")
    weight_decay: float = setting(0.0, "-c", "AdamW's decay, on 2-D tensors only")
    beta1: float = setting(0.9, None, "AdamW's decay of the first moment")
    beta2: float = setting(0.95, None, "AdamW's decay of the second moment")
    grad_clip: float = setting(1.0, None, "largest norm of all gradients; 0 or less: no clipping")

    # what happens between steps
    val_every: int = setting(20, "-v", "steps between validations, and one at the end; 0: none")
    val_batches: int = setting(20, "-m", "batches of a validation; -1: all of the data")
    sample_every: int = setting(20, "-s", "steps between samples, and one at the end; 0: none")
    sample_tokens: int = setting(64, "-g", "tokens of a sample")
    checkpoint_every: int = setting(
        0, "-n", "steps between checkpoints in --out; 0: only at the end"
    )
    overfit: bool = setting(False, "-a", "train on one batch of the validation data")
    seed: int = setting(42, None, "of initial weights, shuffling and sampling")
    recompute: int = setting(0, "-r", RECOMPUTE)

    def __post_init__(self) -> None:
        at_least("--batch-size", self.batch_size, 1)
        at_least("--seq-len", self.seq_len, 1)
        at_least("--steps", self.steps, 0)
        within("--lr", self.lr, 0, math.inf, "a number of at least 0")
        one_of("--schedule", self.schedule, SCHEDULES)
        at_least("--warmup", self.warmup, 0)
        within("--final-lr-frac", self.final_lr_frac, 0, math.inf, "a number of at least 0")
        within("--weight-decay", self.weight_decay, 0, math.inf, "a number of at least 0")
        fits_float32("--lr", self.lr)
        fits_float32("--final-lr-frac", self.final_lr_frac)
        fits_float32("--lr times --final-lr-frac", self.lr * self.final_lr_frac)
        fits_float32("--weight-decay", self.weight_decay)
        within("--beta1", self.beta1, 0, 1, "at least 0 and below 1")
        within("--beta2", self.beta2, 0, 1, "at least 0 and below 1")
        within("--grad-clip", self.grad_clip, -math.inf, math.inf, "a number")
        at_least("--val-every", self.val_every, 0)
        if self.val_batches != -1 and self.val_batches < 1:
            raise ConfigError(
                f"--val-batches is {self.val_batches}, expected at least 1, or -1 for all"
            )
        at_least("--sample-every", self.sample_every, 0)
        at_least("--sample-tokens", self.sample_tokens, 1)
        at_least("--checkpoint-every", self.checkpoint_every, 0)
        check_seed(self.seed)
        check_recompute(self.recompute)
        self._check_total_batch_size()

    def _check_total_batch_size(self) -> None:
        total, micro = self.total_batch_size, self.batch_size * self.seq_len
        if total is not None and (total < 1 or total % micro):
            nearest = max(1, (total + micro // 2) // micro) * micro
            raise ConfigError(
                f"--total-batch-size is {total} tokens, expected a multiple of"
                f" B*T = {self.batch_size}*{self.seq_len} = {micro}. The nearest is {nearest}."
            )

    @property
    def accumulation_steps(self) -> int:
        """Micro-batches in one step."""
        return (self.total_batch_size or self.tokens_per_micro_batch) // self.tokens_per_micro_batch

    @property
    def tokens_per_micro_batch(self) -> int:
        """B * T."""
        return self.batch_size * self.seq_len

    @property
    def tokens_per_step(self) -> int:
        """Tokens of all micro-batches of one step."""
        return self.accumulation_steps * self.tokens_per_micro_batch


# fmt: off
BABY = TrainConfig(  # nanoGPT's small recipe, config/train_shakespeare_char.py, for a CPU
    batch_size=12, seq_len=64, steps=2000,
    lr=1e-3, schedule="cosine", warmup=100, final_lr_frac=0.1,
    weight_decay=0.1, beta1=0.9, beta2=0.99, grad_clip=1.0,
    val_every=250, val_batches=20, sample_every=1000, sample_tokens=200,
)
SEED_RECIPE = TrainConfig(  # llm.c's train_gpt2.c; it decays nothing and clips nothing
    batch_size=4, seq_len=64, steps=41,
    lr=1e-4, schedule="constant",
    weight_decay=0.0, beta1=0.9, beta2=0.999, grad_clip=0.0,
    val_every=10, val_batches=5, sample_every=20, sample_tokens=64,
)
# fmt: on

RECIPES = ("train_gpt2.c",)
ORDERS = ("seed", "llm.c")
BACKENDS = ("auto", "cpu", "webgpu", "numpy")
DTYPES = ("float32", "bfloat16")
WORKLOADS = ("124m-t64", "124m-t256", "124m-t1024", "char-384", "baby")  # bench/workloads.py
PEERS = ("torch", "jax")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a training run reads and writes."""

    init: str | None = setting(
        None,
        "-e",
        "start: baby, d6, d12, ..., gpt3:c384, ..., or a model FILE.bin",
        metavar="MODEL",
        unset="baby, with the recipe below",
    )
    train_data: str | None = setting(
        None,
        "-i",
        "pattern of the token files to train on",
        metavar="PATTERN",
        unset="for a baby the plays, else llm.c's dev/data/tinyshakespeare",
    )
    val_data: str | None = setting(
        None,
        "-j",
        "pattern of the token files to validate on",
        metavar="PATTERN",
        unset="that of the default training data, else none",
    )
    tokenizer: str | None = setting(
        None,
        None,
        "tokenizer file",
        metavar="FILE",
        unset="tokenizer.bin beside the model or the data, else GPT-2's",
    )
    out: str | None = setting(
        None,
        "-o",
        "folder for checkpoints, log, tokenizer and loss curve",
        metavar="DIR",
        unset="out with the baby recipe, else none",
    )
    no_shuffle: bool = setting(False, None, "go through the training data in order")
    recipe: str | None = setting(
        None, None, "do what llm.c's C program does, line by line", choices=RECIPES
    )
    order: str | None = setting(
        None,
        None,
        "walk through the data: in order, as in April 2024, or shuffled, as llm.c today",
        choices=ORDERS,
        unset="seed with --recipe, else llm.c",
    )


@dataclass(frozen=True, kw_only=True)
class DeviceConfig:
    """What a command computes with."""

    backend: str = setting(
        "auto", None, "what computes; auto is a GPU, never one in software, or the CPU",
        choices=BACKENDS,
    )  # fmt: skip
    adapter: str | None = setting(
        None, None, "GPU of `llmpy info --adapters`, by its name or a part of it, or its index",
        metavar="NAME|INDEX", unset="the best",
    )  # fmt: skip
    tile: str | None = setting(
        None, None, "shape of matrix products on a GPU, of `llmpy bench --profile`",
        metavar="SHAPE", unset="one that suits such adapters",
    )  # fmt: skip
    dtype: str = setting(
        "float32",
        None,
        "operands of matrix products; all else is float32",
        choices=DTYPES,
    )
    threads: int | None = setting(None, None, "threads of the cpu backend", unset="all it may use")

    def __post_init__(self) -> None:
        one_of("--backend", self.backend, BACKENDS)
        one_of("--dtype", self.dtype, DTYPES)
        at_least("--threads", self.threads, 1)
        name = self.backend
        if self.adapter is not None and name not in ("auto", "webgpu"):
            raise ConfigError(
                f"--adapter is given with --backend {name}, expected --backend webgpu"
            )
        if self.threads is not None and name not in ("auto", "cpu"):
            raise ConfigError(f"--threads is given with --backend {name}, expected --backend cpu")
        if self.tile is not None and name != "webgpu":
            raise ConfigError(f"--tile is given with --backend {name}, expected --backend webgpu")
        if self.threads is not None and self.adapter is not None:
            raise ConfigError("--threads and --adapter are both given, expected one of them")
        on_gpu = "--backend webgpu" if name == "webgpu" else self.adapter and "--adapter"
        if self.dtype != "float32" and on_gpu:
            raise ConfigError(
                f"--dtype is {self.dtype} with {on_gpu}, expected float32. Use --backend cpu."
            )


@dataclass(frozen=True, kw_only=True)
class InfoConfig:
    """What to tell about."""

    adapters: bool = setting(False, None, "list the GPUs that --backend webgpu can use")


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How a token is drawn from the logits."""

    temperature: float = setting(1.0, None, "divides the logits; 0: always the likeliest token")
    top_k: int | None = setting(None, None, "draw among the k likeliest tokens")
    top_p: float | None = setting(
        None, None, "draw among the likeliest tokens of this probability together"
    )
    seed: int = setting(42, None, "of the draws")

    def __post_init__(self) -> None:
        within("--temperature", self.temperature, 0, math.inf, "a number of at least 0")
        at_least("--top-k", self.top_k, 1)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p is {self.top_p:g}, expected above 0 and at most 1")
        check_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """What to continue, and how far."""

    prompt: str | None = setting(None, None, "text to continue", unset="none")
    prompt_file: str | None = setting(
        None, None, "file with the text to continue, UTF-8; - is stdin", metavar="FILE"
    )
    n: int = setting(256, "-n", "tokens to generate")
    num_samples: int = setting(1, None, "continuations of the prompt")
    no_cache: bool = setting(False, None, "run the whole model for every token (now always so)")
    tokenizer: str | None = setting(
        None,
        None,
        "tokenizer file",
        metavar="FILE",
        unset="tokenizer.bin beside the model, else GPT-2's",
    )

    def __post_init__(self) -> None:
        at_least("-n", self.n, 0)
        at_least("--num-samples", self.num_samples, 1)
        if self.prompt is not None and self.prompt_file is not None:
            raise ConfigError("--prompt and --prompt-file are both given, expected one of them")


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """What a model is checked against."""

    steps: int = setting(10, None, "AdamW steps")
    losses: str | None = setting(
        None, None, "file of expected losses, one number a line", metavar="FILE"
    )
    tolerance: float | None = setting(
        None, None, "largest absolute difference allowed", unset="llm.c's, wider in bfloat16"
    )

    def __post_init__(self) -> None:
        at_least("--steps", self.steps, 0)
        if self.tolerance is not None:
            within("--tolerance", self.tolerance, 0, math.inf, "a number of at least 0")
            fits_float32("--tolerance", self.tolerance)


@dataclass(frozen=True, kw_only=True)
class DumpConfig:
    """What to compute, and where to put it."""

    tokens: str | None = setting(
        None, None, "token file; the batch is its first B*T+1 tokens", metavar="FILE"
    )
    batch_size: int = setting(4, None, "sequences (B)")
    seq_len: int = setting(64, None, "tokens in a sequence (T)")
    state: str | None = setting(None, None, "debug state to write, version 2", metavar="FILE")
    npz: str | None = setting(
        None, None, "file for every intermediate and gradient by name", metavar="FILE"
    )

    def __post_init__(self) -> None:
        at_least("--batch-size", self.batch_size, 1)
        at_least("--seq-len", self.seq_len, 1)


@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What to time."""

    workload: str | None = setting(None, None, "one workload", choices=WORKLOADS, unset="all")
    profile: bool = setting(False, None, "tell the time of each op, beside its limit")
    peer: str | None = setting(
        None, None, "framework to run in turns with, from a checkout", choices=PEERS, unset="none"
    )
    peer_python: str | None = setting(
        None, None, "the Python that has the framework", metavar="FILE", unset="this one"
    )
    recompute: int = setting(0, None, RECOMPUTE)
    json: str | None = setting(None, None, "file for the results", metavar="FILE")

    def __post_init__(self) -> None:
        check_recompute(self.recompute)
        if self.peer is None and self.peer_python is not None:
            raise ConfigError("--peer-python is given without --peer, expected both")
