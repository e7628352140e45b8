"""`llmpy generate`: read the prompt, find the vocabulary, and write what comes."""

import os
import sys
from pathlib import Path
from typing import Any

from .config import GenerateConfig, SamplingConfig
from .console import TextStream, is_terminal, note, write
from .errors import FormatError, UsageError
from .formats.checkpoint import read_checkpoint_config
from .generate import find_tokenizer, generate, sampling_rng, start_token
from .model import GPT2

UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def run_generation(
    model_path: str, config: GenerateConfig, sampling: SamplingConfig, backend: Any, line: str
) -> int:
    """Carry out `llmpy generate`.

    Raises UsageError if there is no vocabulary, FormatError for a prompt file that is not UTF-8.
    """
    sizes, _ = read_checkpoint_config(model_path)
    tokenizer = find_tokenizer(sizes, config.tokenizer, model_path)
    if tokenizer is None:
        folder = Path(model_path).parent
        raise UsageError(
            f"{model_path}: vocab_size is {sizes.vocab_size}, and no tokenizer.bin is in {folder}."
            " Give --tokenizer FILE."
        )
    prompt = read_prompt(config)
    ids = tokenizer.encode(prompt) if prompt else []  # a vocabulary may only decode
    model = GPT2.from_checkpoint(model_path, backend)
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


def read_prompt(config: GenerateConfig) -> str:
    """Give the prompt; a byte order mark at the beginning of a file is dropped."""
    if config.prompt_file is None:
        return from_argument(config.prompt or "")
    name = config.prompt_file
    if name == "-":
        name = "stdin"
        content = b"" if sys.stdin is None else sys.stdin.buffer.read()
    else:
        content = Path(name).read_bytes()
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
