"""`llmpy generate`: read the prompt, find the vocabulary, and write what comes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import DeviceConfig, GenerateConfig, SamplingConfig
from ..console import TextStream, is_terminal, note, passing, write
from ..data.vocabulary import find_tokenizer
from ..device import open_backend
from ..errors import FormatError, UsageError
from ..footprint import largest_tensor
from ..formats.checkpoint import read_checkpoint_config
from ..formats.header import read_all
from ..formats.tokenizer import TOKENIZER_NAME, Tokenizer
from ..generate import generate, sampling_rng, start_token
from ..model import GPT2
from .flags import Command, make

MAX_PROMPT_BYTES = 1 << 26  # of which the model sees the last max_seq_len tokens
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def run(values: Mapping[str, Any]) -> int:
    """Carry out `llmpy generate`.

    Raises UsageError if there is no vocabulary, FormatError for a prompt file that is not UTF-8.
    """
    config: GenerateConfig = make(GenerateConfig, values)
    sampling: SamplingConfig = make(SamplingConfig, values)
    device: DeviceConfig = make(DeviceConfig, values)
    path = values["model"]
    sizes, _ = read_checkpoint_config(path)
    backend, line = open_backend(device, largest_tensor(sizes, 1, sizes.max_seq_len)[1])
    tokenizer = find_tokenizer(sizes, config.tokenizer, path)
    if tokenizer is None:
        raise UsageError(
            f"{path}: vocab_size is {sizes.vocab_size}, and there is no"
            f" {Path(path).parent / TOKENIZER_NAME}. Give --tokenizer FILE."
        )
    ids = encode_prompt(tokenizer, config)
    passing("reading the model")
    model = GPT2.from_checkpoint(path, backend, device.dtype)
    note(line)
    for i in range(config.num_samples):
        if i > 0:
            write("\n---\n")
        stream = TextStream()
        stream.write(tokenizer.decode(ids))
        rng = sampling_rng(sampling.seed, i)
        for token in generate(model, ids or [start_token(tokenizer)], config.n, sampling, rng):
            stream.write(tokenizer.token_table[token])
        stream.end()
    if is_terminal(sys.stdout):
        write("\n")
    return 0


def encode_prompt(tokenizer: Tokenizer, config: GenerateConfig) -> list[int]:
    """Give the ids of the prompt; a vocabulary that can only decode will do for an empty one.

    Raises UsageError for --prompt, FormatError for a file with what the vocabulary does not have.
    """
    prompt = read_prompt(config)
    try:
        return tokenizer.encode(prompt) if prompt else []
    except UsageError as error:
        what = str(error).removeprefix("encode: ")
        if config.prompt_file is None:
            raise UsageError(f"--prompt: {what}") from None
        raise FormatError(f"{config.prompt_file}: {what}") from None


def read_prompt(config: GenerateConfig) -> str:
    """Give the prompt; a byte order mark at the beginning of a file is dropped."""
    if config.prompt_file is None:
        return from_argument(config.prompt or "")
    name = config.prompt_file
    if name == "-":
        name = "stdin"
        content = b"" if sys.stdin is None else read_all(sys.stdin.buffer, name, MAX_PROMPT_BYTES)
    else:
        with open(name, "rb") as file:
            content = read_all(file, name, MAX_PROMPT_BYTES)
    if content.startswith(UTF16_MARKS):
        raise FormatError(f"{name}: text is UTF-16, expected UTF-8")
    content = content.removeprefix(UTF8_MARK)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{name}: byte {error.start:,} is 0x{content[error.start]:02x}, expected UTF-8"
        ) from None


def from_argument(text: str) -> str:
    """Give an argument of the command line as UTF-8 text, whatever the locale made of it."""
    try:
        return os.fsencode(text).decode("utf-8", "replace")
    except UnicodeEncodeError:  # not from a command line
        return text


GENERATE = Command(
    name="generate",
    text="Continue a text.",
    run=run,
    settings=(GenerateConfig, SamplingConfig, DeviceConfig),
    positionals={"model": "model FILE.bin"},
    more="""\
The prompt and its continuation go to stdout as UTF-8, and nothing else. An empty prompt starts from
end-of-text, or from a newline where the vocabulary has none. Each token sees the last max_seq_len
before it, so exactly N tokens come. <|endoftext|> in a prompt is ordinary text.""",
)
