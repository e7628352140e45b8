"""Settings: each message, the defaults of llm.c, and what follows from them."""

import dataclasses
import math

import numpy as np
import pytest

from llmpy.config import (
    BABY,
    SEED_RECIPE,
    DeviceConfig,
    DumpConfig,
    GenerateConfig,
    SamplingConfig,
    TrainConfig,
    VerifyConfig,
)
from llmpy.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "values", "message"),
    [
        (TrainConfig, {"batch_size": 0}, "--batch-size is 0, expected at least 1"),
        (TrainConfig, {"seq_len": 0}, "--seq-len is 0, expected at least 1"),
        (TrainConfig, {"steps": -1}, "--steps is -1, expected at least 0"),
        (TrainConfig, {"lr": -1e-3}, "--lr is -0.001, expected a number of at least 0"),
        (TrainConfig, {"lr": math.nan}, "--lr is nan, expected a number of at least 0"),
        (TrainConfig, {"lr": math.inf}, "--lr is inf, expected a number of at least 0"),
        (
            TrainConfig,
            {"schedule": "cos"},
            "--schedule is cos, expected one of cosine, linear, constant, wsd",
        ),
        (TrainConfig, {"warmup": -1}, "--warmup is -1, expected at least 0"),
        (
            TrainConfig,
            {"final_lr_frac": -0.5},
            "--final-lr-frac is -0.5, expected a number of at least 0",
        ),
        (
            TrainConfig,
            {"weight_decay": -1},
            "--weight-decay is -1, expected a number of at least 0",
        ),
        (TrainConfig, {"beta1": 1.0}, "--beta1 is 1, expected at least 0 and below 1"),
        (TrainConfig, {"beta2": -0.1}, "--beta2 is -0.1, expected at least 0 and below 1"),
        (TrainConfig, {"grad_clip": math.nan}, "--grad-clip is nan, expected a number"),
        (TrainConfig, {"val_every": -1}, "--val-every is -1, expected at least 0"),
        (
            TrainConfig,
            {"val_batches": 0},
            "--val-batches is 0, expected at least 1, or -1 for all",
        ),
        (TrainConfig, {"sample_every": -2}, "--sample-every is -2, expected at least 0"),
        (TrainConfig, {"sample_tokens": 0}, "--sample-tokens is 0, expected at least 1"),
        (TrainConfig, {"checkpoint_every": -1}, "--checkpoint-every is -1, expected at least 0"),
        (TrainConfig, {"seed": -1}, "--seed is -1, expected 0 to 2**64 - 1"),
        (TrainConfig, {"recompute": 3}, "--recompute is 3, expected 0, 1 or 2"),
        (TrainConfig, {"recompute": -1}, "--recompute is -1, expected 0, 1 or 2"),
        (DeviceConfig, {"threads": 0}, "--threads is 0, expected at least 1"),
        (
            DeviceConfig,
            {"backend": "numpy", "threads": 2},
            "--threads is given with --backend numpy, expected --backend cpu",
        ),
        (
            DeviceConfig,
            {"backend": "webgpu", "threads": 2},
            "--threads is given with --backend webgpu, expected --backend cpu",
        ),
        (
            DeviceConfig,
            {"backend": "cpu", "adapter": "0"},
            "--adapter is given with --backend cpu, expected --backend webgpu",
        ),
        (
            DeviceConfig,
            {"tile": "64x64"},
            "--tile is given with --backend auto, expected --backend webgpu",
        ),
        (
            DeviceConfig,
            {"threads": 2, "adapter": "0"},
            "--threads and --adapter are both given, expected one of them",
        ),
        (
            DeviceConfig,
            {"backend": "webgpu", "dtype": "bfloat16"},
            "--dtype is bfloat16 with --backend webgpu, expected float32. Use --backend cpu.",
        ),
        (
            DeviceConfig,
            {"adapter": "0", "dtype": "bfloat16"},
            "--dtype is bfloat16 with --adapter, expected float32. Use --backend cpu.",
        ),
        (
            DeviceConfig,
            {"backend": "cuda"},
            "--backend is cuda, expected one of auto, cpu, webgpu, numpy",
        ),
        (
            DeviceConfig,
            {"dtype": "float16"},
            "--dtype is float16, expected one of float32, bfloat16",
        ),
        (
            SamplingConfig,
            {"temperature": -1.0},
            "--temperature is -1, expected a number of at least 0",
        ),
        (
            SamplingConfig,
            {"temperature": math.nan},
            "--temperature is nan, expected a number of at least 0",
        ),
        (SamplingConfig, {"top_k": 0}, "--top-k is 0, expected at least 1"),
        (SamplingConfig, {"top_p": 0.0}, "--top-p is 0, expected above 0 and at most 1"),
        (SamplingConfig, {"top_p": math.nan}, "--top-p is nan, expected above 0 and at most 1"),
        (SamplingConfig, {"seed": 2**64}, f"--seed is {2**64}, expected 0 to 2**64 - 1"),
        (GenerateConfig, {"n": -5}, "-n is -5, expected at least 0"),
        (GenerateConfig, {"num_samples": 0}, "--num-samples is 0, expected at least 1"),
        (
            GenerateConfig,
            {"prompt": "", "prompt_file": "p"},
            "--prompt and --prompt-file are both given, expected one of them",
        ),
        (VerifyConfig, {"steps": -1}, "--steps is -1, expected at least 0"),
        (
            VerifyConfig,
            {"tolerance": -1.0},
            "--tolerance is -1, expected a number of at least 0",
        ),
        (DumpConfig, {"batch_size": 0}, "--batch-size is 0, expected at least 1"),
        (DumpConfig, {"seq_len": 0}, "--seq-len is 0, expected at least 1"),
    ],
)
def test_messages(setting, values, message):
    with pytest.raises(ConfigError) as error:
        setting(**values)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("setting", "values", "flag", "value"),
    [
        (TrainConfig, {"lr": 1e39}, "--lr", "1e+39"),
        (TrainConfig, {"weight_decay": 1e300}, "--weight-decay", "1e+300"),
        (TrainConfig, {"final_lr_frac": 1e39}, "--final-lr-frac", "1e+39"),
        (
            TrainConfig,
            {"lr": 1e20, "final_lr_frac": 1e20},
            "--lr times --final-lr-frac",
            "1e+40",
        ),
        (VerifyConfig, {"tolerance": 3.5e38}, "--tolerance", "3.5e+38"),
    ],
)
def test_what_float32_does_not_hold(setting, values, flag, value):
    """Refused, since it would be infinite, and NumPy warn of it, in the midst of the work."""
    with pytest.raises(ConfigError) as error:
        setting(**values)
    assert str(error.value) == (
        f"{flag} is {value}, expected at most 3.40282e+38, the largest float32"
    )
    TrainConfig(lr=float(np.finfo(np.float32).max), weight_decay=3.4e38)


@pytest.mark.parametrize(
    ("total", "nearest"),
    [(512, 1024), (1, 1024), (0, 1024), (-3, 1024), (1535, 1024), (1536, 2048), (5000, 5120)],
)
def test_total_batch_size_names_the_nearest(total, nearest):
    with pytest.raises(ConfigError) as error:
        TrainConfig(batch_size=4, seq_len=256, total_batch_size=total)
    assert str(error.value) == (
        f"--total-batch-size is {total} tokens, expected a multiple of B*T = 4*256 = 1024."
        f" The nearest is {nearest}."
    )


def test_tokens_of_a_step():
    config = TrainConfig(batch_size=2, seq_len=8, total_batch_size=48)
    assert (config.accumulation_steps, config.tokens_per_step) == (3, 48)
    assert dataclasses.replace(config, total_batch_size=None).tokens_per_step == 16


def test_defaults_are_those_of_llmc():
    config = TrainConfig()
    assert (config.batch_size, config.seq_len, config.total_batch_size) == (4, 1024, None)
    assert (config.lr, config.schedule, config.warmup, config.final_lr_frac) == (
        3e-4, "cosine", 0, 1.0,
    )  # fmt: skip
    assert (config.weight_decay, config.beta1, config.beta2, config.grad_clip) == (
        0.0, 0.9, 0.95, 1.0,
    )  # fmt: skip
    assert (config.val_every, config.val_batches) == (20, 20)
    assert (config.sample_every, config.sample_tokens, config.checkpoint_every) == (20, 64, 0)


def test_recipes():
    assert (BABY.batch_size, BABY.seq_len, BABY.steps, BABY.lr, BABY.beta2) == (
        12, 64, 2000, 1e-3, 0.99,
    )  # fmt: skip
    assert BABY.lr * BABY.final_lr_frac == pytest.approx(1e-4)
    assert (SEED_RECIPE.steps, SEED_RECIPE.beta2, SEED_RECIPE.weight_decay) == (41, 0.999, 0.0)
