"""Commands on a device: what they write is what they write on the reference."""

import re

import numpy as np
import pytest

from llmpy.cli import main
from llmpy.formats.checkpoint import read_checkpoint
from llmpy.formats.tokens import write_tokens

from ..tiny_run import CONFIG, write_files

pytestmark = pytest.mark.webgpu


@pytest.fixture
def command(webgpu, tmp_path, monkeypatch, rng):
    """Run `llmpy ...` on a backend, webgpu on the tests' device; give the status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webgpu, "open_device", lambda adapter, tile: None)
    files = write_files(tmp_path, rng)[:-1]

    def run(words, backend):
        words = words.split()
        if words[0] == "train":
            words[1:1] = [*files, backend]
        else:
            words += ["--backend", backend]
        return main(words)

    return run


def test_train_and_generate(command, capfd, tmp_path):
    """Losses within 1e-4, weights within 1e-3 in norm, and the same likeliest tokens.

    A gradient that is zero but for rounding, as the key bias's, becomes a step of AdamW.
    """
    written = {}
    for name in ("numpy", "webgpu"):
        words = f"train --batch-size 2 --steps 3 --sample-every 0 --out {name}"
        assert command(words, name) == 0
        out, err = capfd.readouterr()
        assert err.startswith(f"backend {name}: ")
        numbers = re.findall(r"(?:loss|norm) +([0-9.]+)", out)
        assert len(numbers) == 2 + 2 * 3  # two validations
        _, weights = read_checkpoint(tmp_path / name / "model_00000003.bin")
        assert command("generate numpy/model_00000003.bin -n 20 --temperature 0", name) == 0
        written[name] = [float(n) for n in numbers], weights, capfd.readouterr().out
    want, got = written["numpy"], written["webgpu"]
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    assert np.linalg.norm(got[1] - want[1]) < 1e-3 * np.linalg.norm(want[1])
    assert got[2] == want[2]


def test_a_token_of_another_vocabulary_is_refused_before_a_step(command, capfd, tmp_path):
    """R28: the shard, the position, the id and V are named; a device would clamp in silence."""
    tokens = np.zeros(400, np.uint16)
    tokens[-1] = CONFIG.vocab_size
    write_tokens(tmp_path / "train.bin", tokens)
    words = "train --batch-size 1 --steps 1000 --no-shuffle --sample-every 0 --out a"
    assert command(words, "webgpu") == 1
    out, err = capfd.readouterr()
    assert "train.bin" in err.splitlines()[-1]
    assert f"is {CONFIG.vocab_size}, expected 0 to {CONFIG.vocab_size - 1}" in err
    assert "step" not in out
