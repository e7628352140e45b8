"""Sizes of models: each message, and the parameters that llm.c counts by descriptor."""

import numpy as np
import pytest

from llmpy.errors import ConfigError
from llmpy.sizes import GPT2Config, descriptor_config
from llmpy.tensors import PARAMS, table_size

SIZES = {"max_seq_len": 1024, "num_layers": 12, "num_heads": 12, "channels": 768}


def test_channels_are_shared_out_among_the_heads():
    with pytest.raises(ConfigError) as error:
        GPT2Config(max_seq_len=4, vocab_size=5, num_layers=1, num_heads=3, channels=8)
    assert str(error.value) == "channels is 8, expected a multiple of num_heads = 3"


@pytest.mark.parametrize("name", ["vocab_size", *SIZES])
def test_sizes_are_at_least_one(name):
    with pytest.raises(ConfigError) as error:
        GPT2Config(**{"vocab_size": 65, **SIZES, name: 0})
    assert str(error.value) == f"{name} is 0, expected at least 1"


def test_sizes_are_whole_numbers_of_python():
    """Those of NumPy would overflow where sizes are multiplied."""
    config = GPT2Config(
        vocab_size=np.int32(2**31 - 1), **{k: np.int32(v) for k, v in SIZES.items()}
    )
    assert config == GPT2Config(vocab_size=2**31 - 1, **SIZES)
    assert table_size(PARAMS, config.dims) > 2**40
    with pytest.raises(ConfigError, match=r"^vocab_size is 20\.0, expected a whole number$"):
        GPT2Config(vocab_size=20.0, **SIZES)


# P of FORMATS.md, padded
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("d6", 30_357_504),
        ("d12", 124_475_904),
        ("gpt2:d24", 354_871_296),
        ("d36", 774_090_240),
        ("d48", 1_557_686_400),
        ("d60", 2_754_259_200),
        ("d72", 7_316_887_680),
        ("d84", 12_220_657_920),
        ("gpt2:d12", 124_475_904),
        ("gpt3:c384", 30_750_720),
        ("gpt3:c768", 125_262_336),
        ("gpt3:c1024", 355_919_872),
        ("gpt3:c1536", 760_372_224),
        ("gpt3:c2048", 1_315_819_520),
        ("gpt3:c2560", 2_651_673_600),
        ("gpt3:c4096", 6_658_596_864),
    ],
)
def test_descriptors_have_the_parameters_of_llmc(name, count):
    assert table_size(PARAMS, descriptor_config(name).dims) == count


@pytest.mark.parametrize(
    "name", ["d7", "d06", "gpt2:baby", "gpt2:gpt3:c384", "gpt3:d12", "c768", ""]
)
def test_unknown_descriptor(name):
    with pytest.raises(ConfigError) as error:
        descriptor_config(name)
    assert str(error.value) == (
        f"descriptor is {name!r}, expected one of baby, d6, d12, d24, d36, d48, d60, d72, d84,"
        " gpt3:c384, gpt3:c768, gpt3:c1024, gpt3:c1536, gpt3:c2048, gpt3:c2560, gpt3:c4096,"
        " gpt3:c12288"
    )


def test_a_baby_needs_a_vocabulary():
    with pytest.raises(ConfigError) as error:
        descriptor_config("baby")
    assert str(error.value) == "descriptor baby needs a vocab_size: that of its tokenizer"
