"""Make llmpy/data/gpt2.tiktoken.gz, GPT-2's vocabulary, from Whisper's source distribution.

    python dev/make_vocabulary.py [SDIST]

SDIST is openai_whisper-20250625.tar.gz; without it pip downloads it.
"""

import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SDIST_SHA256 = "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96"
DATA = Path(__file__).resolve().parent.parent / "llmpy" / "data"


def fetch(folder: str) -> Path:
    """Download the sdist with pip."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "-d", folder, "openai-whisper==20250625"], check=True)
    return Path(folder) / "openai_whisper-20250625.tar.gz"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sdist = Path(sys.argv[1]) if len(sys.argv) > 1 else fetch(folder)
        found = hashlib.sha256(sdist.read_bytes()).hexdigest()
        if found != SDIST_SHA256:
            raise SystemExit(f"{sdist}: sha256 is {found}, expected {SDIST_SHA256}")
        with tarfile.open(sdist) as archive:
            top = "openai_whisper-20250625"
            ranks = archive.extractfile(f"{top}/whisper/assets/gpt2.tiktoken").read()
            notice = archive.extractfile(f"{top}/LICENSE").read()
    (DATA / "gpt2.tiktoken.gz").write_bytes(gzip.compress(ranks, 9, mtime=0))
    (DATA / "gpt2.LICENSE").write_bytes(notice)
    print(f"{len(ranks):,} bytes, sha256 for vocabulary.py:")
    print(hashlib.sha256(ranks).hexdigest())


if __name__ == "__main__":
    main()
