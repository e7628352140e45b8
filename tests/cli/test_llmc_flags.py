"""llm.c's flags, one by one, and its CI command."""

import pytest

from llmpy.cli.llmc_flags import NOTES, translate
from llmpy.errors import UsageError


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("-i a*.bin -j b.bin", ["--train-data=a*.bin", "--val-data=b.bin"]),
        ("-e d12 -o log", ["--init=d12", "--out=log"]),
        ("-n 100 -nk 5 -nm 50", ["--checkpoint-every=100", "--keep=5", "--major-every=50"]),
        ("-nk 0 -nm 0 -y 0 -a 0 -sl 0 -sg 0.0", []),
        ("-y 1 -a 1", ["--resume", "--overfit"]),
        ("-b 4 -t 64 -d 256", ["--batch-size=4", "--seq-len=64", "--total-batch-size=256"]),
        ("-d -1 -x -1", []),
        ("-x 10 -k wsd -l 3e-4", ["--steps=10", "--schedule=wsd", "--lr=3e-4"]),
        ("-u 700 -q 0.1 -c 0.1", ["--warmup=700", "--final-lr-frac=0.1", "--weight-decay=0.1"]),
        ("-sl 3 -sg 4.5", ["--skip-loss-z=3", "--skip-norm-z=4.5"]),
        ("-v 250 -m -1", ["--val-every=250", "--val-batches=-1"]),
        ("-s 20 -g 144", ["--sample-every=20", "--sample-tokens=144"]),
        ("-h 0", []),
        ("-h 1", ["--hellaswag=dev/data/hellaswag/hellaswag_val.bin"]),
        ("-h", ["-h"]),
        ("-h -b 2", ["-h", "--batch-size=2"]),
        ("-r 0", ["--recompute=0"]),
        ("--lr=-b -zz 3 word", ["--lr=-b", "-zz", "3", "word"]),
    ],
)
def test_translation(words, want):
    assert translate(words.split()) == (want, [])


def test_the_command_of_llmcs_ci():
    words = "-b 1 -t 64 -d 256 -l 0.0001 -v 200 -s 200 -a 1 -x 10 -r 0 -f 0 -e gpt2_124M.bin"
    out, notes = translate(words.split())
    assert out == [
        "--batch-size=1", "--seq-len=64", "--total-batch-size=256", "--lr=0.0001",
        "--val-every=200", "--sample-every=200", "--overfit", "--steps=10", "--recompute=0",
        "--init=gpt2_124M.bin",
    ]  # fmt: skip
    assert notes == ["-f 0 has no effect: there is no TF32 here; --dtype says what matmuls take"]


@pytest.mark.parametrize("flag", ["-lg", "-f", "-ge", "-w", "-z", "-pn", "-pr", "-pg", "-pi"])
def test_flags_with_a_note(flag):
    assert translate([flag, "1"]) == ([], [f"{flag} 1 has no effect: {NOTES[flag]}"])


def test_refusals():
    with pytest.raises(UsageError) as error:
        translate(["-b"])
    assert str(error.value) == "-b has no value, expected one behind it"
    with pytest.raises(UsageError) as error:
        translate(["-a", "2"])
    assert str(error.value) == "-a is 2, expected 0 or 1"
