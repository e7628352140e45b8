"""What is this file? A description of any format of llm.c, by its content and not its name."""

from ..errors import FormatError
from .checkpoint import DTYPES, checkpoint_header, num_parameters
from .debug_state import debug_state_header
from .header import (
    CHECKPOINT,
    DEBUG_STATE,
    EVALUATION,
    HEADER_BYTES,
    HEADER_INTS,
    KINDS,
    LLAMA_MODEL,
    LLAMA_TOKENS,
    TOKENIZER,
    TOKENS,
    TRAINING_STATE,
    InputFile,
    PathLike,
)
from .tokenizer import read_tokenizer
from .tokens import TokenFile

Rows = list[tuple[str, str]]

# named and shown, but not read by this package
OTHERS = (EVALUATION, TRAINING_STATE, LLAMA_TOKENS, LLAMA_MODEL)


def describe_file(path: PathLike) -> list[str]:
    """Say in lines what a file is: kind, version, sizes, dtype, number of parameters, bytes.

    The first line has the path and the kind, the others a name and a value each.
    Raises FormatError for a file that is damaged, or is not one of llm.c's.

    >>> describe_file("gpt2_124M.bin")[0]
    'gpt2_124M.bin: a checkpoint (magic number 20240326), version 3'
    """
    with InputFile(path) as file:
        head = file.head()
        magic = int.from_bytes(head[:4], "little")
        if magic not in KINDS:
            file.refuse_others(head, "one of llm.c's files")
        if magic == CHECKPOINT:
            version, rows = _checkpoint(file)
        elif magic == DEBUG_STATE:
            version, rows = _debug_state(file)
        elif magic in OTHERS:
            version, rows = _other(file, magic)
        elif magic == TOKENIZER:
            version, rows = _tokenizer(file)
        else:
            return _tokens(file)
        kind = f"{file.path}: {KINDS[magic]} (magic number {magic}), version {version}"
        return _lines(kind, rows, file.size)


def _lines(first: str, rows: Rows, size: int) -> list[str]:
    rows = [*rows, ("bytes", f"{size:,}")]
    width = max(len(name) for name, _ in rows)
    return [first, *(f"{name:{width}}  {value}" for name, value in rows)]


def _checkpoint(file: InputFile) -> tuple[int, Rows]:
    config, version, wte_rows = checkpoint_header(file)
    rows: Rows = [
        ("max_seq_len", str(config.max_seq_len)),
        ("vocab_size", str(config.vocab_size)),
        ("padded_vocab_size", "none" if version == 1 else str(wte_rows)),
        ("num_layers", str(config.num_layers)),
        ("num_heads", str(config.num_heads)),
        ("channels", str(config.channels)),
        ("dtype", DTYPES[version]),
        ("num_parameters", f"{num_parameters(config, wte_rows):,}"),
    ]
    return version, rows


def _debug_state(file: InputFile) -> tuple[int, Rows]:
    version, B, T = debug_state_header(file)
    rest = file.size - HEADER_BYTES - 4 * (2 * B * T + 1)  # V and the model's sizes are not known
    if rest <= 0 or rest % 4:
        raise FormatError(
            f"{file.path}: {file.size:,} bytes, expected {file.size - rest:,} "
            f"({HEADER_BYTES:,} of header, batch of B*T = {B}*{T}, loss) and float32 logits and "
            "gradients. The file may be cut short."
        )
    rows: Rows = [
        ("B", str(B)),
        ("T", str(T)),
        ("dtype", "float32"),
        ("logits and gradients", f"{rest // 4:,}"),
    ]
    return version, rows


def _tokenizer(file: InputFile) -> tuple[int, Rows]:
    version = file.header(TOKENIZER)[1]
    tokenizer = read_tokenizer(file.path)
    rows: Rows = [
        ("vocab_size", str(tokenizer.vocab_size)),
        ("end-of-text", "none" if tokenizer.eot is None else str(tokenizer.eot)),
        ("entries", "characters" if tokenizer.is_char else "bytes"),
    ]
    return version, rows


def _tokens(file: InputFile) -> list[str]:
    with TokenFile(file.path) as tokens:
        if tokens.version == "int32":
            start = tokens.read(0, min(HEADER_INTS, tokens.num_tokens))
            if start.max() >= 2**20:  # no vocabulary is so large: some other binary file
                raise FormatError(
                    f"{file.path}: magic number is {start[0]}, "
                    "expected that of one of llm.c's files, or token ids"
                )
            first = f"{file.path}: {KINDS[TOKENS]} without a header"
            dtype = "int32"
        else:
            first = f"{file.path}: {KINDS[TOKENS]} (magic number {TOKENS}), version 1"
            dtype = "uint16"
        rows: Rows = [("num_tokens", f"{tokens.num_tokens:,}"), ("dtype", dtype)]
        return _lines(first, rows, file.size)


def _other(file: InputFile, magic: int) -> tuple[int, Rows]:
    header = file.header(magic)
    rows: Rows = [(f"header[{i}]", str(header[i])) for i in range(2, HEADER_INTS) if header[i]]
    return header[1], [*rows, ("read by llmpy", "no")]
