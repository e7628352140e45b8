"""Make llmpy/data/gpt2.tiktoken.gz, GPT-2's vocabulary, from Whisper's source distribution.

    python dev/make_vocabulary.py [SDIST]

SDIST is openai_whisper-20250625.tar.gz; without it pip downloads it.
"""

import gzip
import hashlib
import sys
from pathlib import Path

from sdist import open_sdist

SDIST_SHA256 = "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96"
DATA = Path(__file__).resolve().parent.parent / "llmpy" / "data"


def main(path: str | None = None) -> None:
    with open_sdist("openai-whisper", "20250625", SDIST_SHA256, path) as read:
        ranks = read("whisper/assets/gpt2.tiktoken")
        notice = read("LICENSE")
    (DATA / "gpt2.tiktoken.gz").write_bytes(gzip.compress(ranks, 9, mtime=0))
    (DATA / "gpt2.LICENSE").write_bytes(notice)
    print(f"{len(ranks):,} bytes, sha256 for vocabulary.py:")
    print(hashlib.sha256(ranks).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
