"""verify: the C program's lines, each element compared once, and that it can say no."""

import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

from llmpy import footprint
from llmpy.errors import FormatError, UsageError
from llmpy.formats.debug_state import DebugState
from llmpy.sizes import GPT2Config, descriptor_config
from llmpy.tensors import PARAMS
from llmpy.verify import (
    BFLOAT16,
    LOSSES_124M,
    Tolerances,
    check_tensor,
    expected_losses,
    read_losses,
    verify,
)

from . import golden_state as golden

MODEL = golden.FOLDER / "model_v3.bin"
STATE = golden.FOLDER / "state_v2.bin"
GRADS_OFFSET = golden.HEADER_BYTES + 4 * (2 * golden.B * golden.T + golden.LOGITS.size + 1)


def run(model=MODEL, state=STATE, **settings):
    lines = []
    settings = {"steps": 1, "backend": "numpy", **settings}
    return verify(model, state, lines.append, **settings), lines


def changed_state(path, offset, value):
    """Write the golden state with one float32 replaced."""
    data = bytearray(STATE.read_bytes())
    data[offset : offset + 4] = struct.pack("<f", value)
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def losses_path(tmp_path_factory):
    """Losses of the golden batch by test_gpt2's own settings, from the float64 reference."""
    model = golden.golden_model("numpy", "float64")
    path = tmp_path_factory.mktemp("verify") / "losses.txt"
    losses = []
    for step in range(10):
        losses.append(model.forward_backward(golden.TOKENS, golden.TARGETS))
        model.update(1e-4, 0.9, 0.999, 1e-8, 0.01, step + 1)
    path.write_text("".join(f"{loss!r}\n" for loss in losses))
    return path


@pytest.mark.parametrize("state", ["state_v1.bin", "state_v2.bin"])
def test_the_golden_state_is_okay(backend, state, losses_path):
    ok, lines = run(
        state=golden.FOLDER / state, backend=backend, steps=10, losses_path=losses_path,
        tolerance=1e-5,
    )  # fmt: skip
    assert ok
    assert lines[-1] == "overall okay: 1"
    assert (
        sum(re.fullmatch(r"step \d: loss \S+ \(took \S+ ms\) OK = 1", x) is not None for x in lines)
        == 10
    )


def test_the_golden_state_is_okay_without_the_jit():
    """R40: run as plain Python, the kernels pass as they do compiled."""
    words = ["verify", MODEL, STATE, "--backend", "cpu", "--steps", "1", "--tolerance", "1e-5"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "llmpy", *words],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("overall okay: 1\n")


def test_the_lines_are_those_of_the_c_program():
    ok, lines = run(model=golden.FOLDER / "model_v1.bin", steps=2)
    assert ok
    P = golden.WEIGHTS.size - (128 - golden.V) * 24
    B, T, C, L, NH, V = golden.B, golden.T, 24, 2, 3, golden.V
    per_layer = B * T * (10 * C + 2 * 4 * C + 4) + 2 * B * NH * T * T  # of qkv, 3 of the 10 C
    activations = 2 * B * T * C + L * per_layer + 2 * B * T + 2 * B * T * V + B * T
    first = golden.LOGITS.reshape(-1)[:3]
    assert lines[:8] == [
        "[GPT-2]", "max_seq_len: 19", "vocab_size: 61", "num_layers: 2", "num_heads: 3",
        "channels: 24", f"num_parameters: {P}", "[State]",
    ]  # fmt: skip
    assert lines[8:10] == ["batch_size: 3", "seq_len: 13"]
    assert lines[10] == f"num_activations: {activations}"
    for line, logit in zip(lines[11:14], first, strict=True):
        want, got = line.split(" ")
        assert want == f"{logit:f}"
        assert float(got) == pytest.approx(logit, abs=2e-6)
    assert lines[14] == "OK (LOGITS)"
    assert re.fullmatch(rf"LOSS OK: \d\.\d{{6}} {golden.LOSS:f}", lines[15])
    at = 16
    for name, start, _ in golden.tensor_ranges(golden.CONFIG.dims):
        assert lines[at] == f"d{name}"
        for i in range(5):
            word, got, want = lines[at + 1 + i].split(" ")
            assert (word, want) == ("OK", f"{golden.GRADS[start + i]:f}")
            assert float(got) == pytest.approx(golden.GRADS[start + i], abs=2e-6)
        assert re.fullmatch(r"TENSOR OK, maxdiff = \d\.\d{6}e[-+]\d\d", lines[at + 6])
        at += 7
    assert re.fullmatch(r"step 0: loss 5\.115744 \(took \d+\.\d{6} ms\)", lines[at])
    assert lines[at + 2 :] == [
        "steps 0 to 1: nothing to compare the losses with. Give a list with --losses.",
        "overall okay: 1",
    ]


def test_a_padded_model_tells_its_padding():
    _, lines = run()
    assert lines[3] == "padded_vocab_size: 128"
    assert f"num_parameters: {golden.WEIGHTS.size}" in lines


def boundaries():
    """First and last element of each tensor: none is left out, none counted for its neighbour."""
    ranges = golden.tensor_ranges(golden.CONFIG.dims)
    assert ranges[-1][2] == golden.GRADS.size
    return [(name, i) for name, start, stop in ranges for i in (start, stop - 1)]


@pytest.mark.parametrize(("name", "i"), boundaries())
def test_each_tensor_is_compared_to_its_ends(tmp_path, name, i):
    value = golden.GRADS[i] + 0.5
    state = changed_state(tmp_path / "state.bin", GRADS_OFFSET + 4 * i, value)
    ok, lines = run(state=state)
    assert not ok
    assert lines[-1] == "overall okay: 0"
    titles = [f"d{n}" for n in PARAMS]
    verdicts = dict(zip(titles, [x for x in lines if x.startswith("TENSOR")], strict=True))
    off = {title for title, verdict in verdicts.items() if verdict.startswith("TENSOR NOT OK")}
    assert off == {f"d{name}"}
    assert float(verdicts[f"d{name}"].split(" = ")[1]) == pytest.approx(0.5, abs=1e-5)


def test_every_element_is_compared_once(monkeypatch):
    """All P elements pass through check_tensor, in order, and none twice."""
    seen = []
    monkeypatch.setattr(
        "llmpy.verify.check_tensor",
        lambda label, got, want, limit, print_line: seen.append(want) or True,
    )
    run()
    np.testing.assert_array_equal(np.concatenate(seen), golden.GRADS)
    assert len(seen) == 16


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_ok(tmp_path, value):
    for offset, line in (
        (GRADS_OFFSET, "TENSOR NOT OK, maxdiff = " + ("nan" if np.isnan(value) else "inf")),
        (GRADS_OFFSET - 4, f"LOSS MISMATCH: 5.115744 {value:f}"),
        (GRADS_OFFSET - 4 * golden.LOGITS.size - 4, "NOT OK (LOGITS)"),
    ):
        ok, lines = run(state=changed_state(tmp_path / "state.bin", offset, value))
        assert not ok
        assert line in lines


def test_a_model_of_nan_is_not_ok(tmp_path):
    """R37: NaN in the model shows in each verdict, the steps' too."""
    data = bytearray(MODEL.read_bytes())
    data[1024:1028] = struct.pack("<f", np.nan)
    (tmp_path / "m.bin").write_bytes(data)
    ok, lines = run(model=tmp_path / "m.bin", steps=2)
    assert not ok
    assert "NOT OK (LOGITS)" in lines
    assert lines[-1] == "overall okay: 0"


def test_a_logit_that_is_off_is_named(tmp_path):
    i = 100
    value = golden.LOGITS.reshape(-1)[i] + 1
    offset = GRADS_OFFSET - 4 * golden.LOGITS.size - 4 + 4 * i
    ok, lines = run(state=changed_state(tmp_path / "state.bin", offset, value))
    assert not ok
    at = lines.index("NOT OK (LOGITS)")
    assert lines[at - 1].startswith(f"MISMATCH AT INDEX 100: {value:f} ")


def test_tolerance_replaces_all(tmp_path, losses_path):
    """An error of 5e-3 passes the C program's limits, and not a limit of 1e-3."""
    offsets = {
        "TENSOR NOT OK, maxdiff": GRADS_OFFSET + 4,
        "LOSS MISMATCH": GRADS_OFFSET - 4,
        "NOT OK (LOGITS)": GRADS_OFFSET - 8,
    }
    floats = np.fromfile(STATE, "<f4")
    for line, offset in offsets.items():
        state = changed_state(tmp_path / "state.bin", offset, floats[offset // 4] + 5e-3)
        assert run(state=state)[0]
        ok, lines = run(state=state, tolerance=1e-3)
        assert not ok
        assert sum(x.startswith(line) for x in lines) == 1
    shifted = tmp_path / "losses.txt"
    shifted.write_text(f"{golden.LOSS + 5e-3}\n")
    assert run(losses_path=shifted)[0]
    ok, lines = run(losses_path=shifted, tolerance=1e-3)
    assert not ok
    assert re.fullmatch(r"step 0: loss 5\.115744 \(took \S+ ms\) OK = 0", lines[-2])


def test_a_limit_reached_is_as_in_c(tmp_path):
    """C wants less than 1e-2 of the logits: a difference of exactly that is a mismatch."""
    from llmpy.verify import Tolerances, check_logits

    def at(limit):
        want = np.zeros((1, 1, 2), np.float32)
        return check_logits(want + np.float32(0.5), want, limit, lambda line: None)

    assert at(0.5)
    assert not at(np.nextafter(0.5, 0))
    assert Tolerances().logits < 1e-2 <= np.nextafter(Tolerances().logits, 1)


def test_no_steps_compare_the_state_alone():
    ok, lines = run(steps=0)
    assert ok
    assert not any(x.startswith("step") for x in lines)


def test_known_losses_are_for_gpt2_124m_alone():
    d12 = descriptor_config("d12")
    batch = np.zeros((4, 64), np.int32)

    def state(loss=5.27, tokens=batch):
        none = np.zeros(0, np.float32)
        return DebugState(tokens, tokens, none, loss, none)

    assert expected_losses(d12, state(), None, 10) == LOSSES_124M
    assert expected_losses(d12, state(loss=5.29), None, 10) == ()
    assert expected_losses(d12, state(loss=float("nan")), None, 10) == ()
    assert expected_losses(d12, state(tokens=batch.reshape(2, 128)), None, 10) == ()
    other = GPT2Config(max_seq_len=64, vocab_size=65, num_layers=1, num_heads=1, channels=8)
    assert expected_losses(other, state(), None, 10) == ()


def test_losses_are_one_number_a_line(tmp_path):
    path = tmp_path / "losses.txt"
    path.write_text("\ufeff5.25\n 4e0 \n", encoding="utf-8")
    assert read_losses(path) == (5.25, 4.0)
    path.write_text("5.25\n4.0 3.0\n")
    with pytest.raises(
        FormatError, match=r"losses\.txt: line 2 is '4\.0 3\.0', expected one number$"
    ):
        read_losses(path)
    path.write_bytes(b"\xff\xfe1\x00")
    with pytest.raises(
        FormatError, match=r"losses\.txt: content is not text, expected one number a line$"
    ):
        read_losses(path)
    if os.path.exists("/dev/zero"):
        with pytest.raises(
            FormatError, match=r"^/dev/zero: content goes on after 67,108,864 bytes"
        ):
            read_losses("/dev/zero")
    path.write_text("5.25\n")
    message = r"losses\.txt: 1 losses, expected at least 10, one for each of --steps$"
    with pytest.raises(UsageError, match=message):
        run(losses_path=path, steps=10)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"state\.bin"):
        run(state=tmp_path / "state.bin")


def test_all_steps_are_reckoned_with_before_the_first(monkeypatch):
    """The moments of AdamW come after the first loss; without steps there are none."""
    monkeypatch.setattr(footprint, "available_bytes", lambda: 400_000)
    with pytest.raises(UsageError, match=r"^verify: 2 steps with B=3 and T=13 needs [0-9.]+ kB"):
        run(steps=2)
    assert run(steps=0)[0]


# bfloat16


def test_bfloat16_has_limits_of_its_own(losses_path):
    """Those of float32 tell that operands are rounded, in the logits and the gradients."""
    settings = {"steps": 10, "losses_path": losses_path, "dtype": "bfloat16"}
    ok, lines = run(**settings)
    assert ok, "\n".join(lines)
    ok, lines = run(**settings, tolerance=1e-4)
    assert not ok
    assert "NOT OK (LOGITS)" in lines
    assert sum(line.startswith("TENSOR NOT OK") for line in lines) >= 8


def test_the_relative_part_counts_for_each_element():
    """0.02 and 7.9 % of what is expected, on either side; NaN is never near."""
    want = np.array([0, 1, -10, 100], np.float32)
    slack = np.array([0.0199, 0.098, 0.809, 7.91], np.float32)
    lines = []
    for got in (want + slack, want - slack):
        assert check_tensor("d", got, want, BFLOAT16, lines.append)
        assert not check_tensor("d", got, want, Tolerances(), lines.append)
    for i in range(4):
        for value in (want[i] + 1.05 * slack[i], np.nan, np.inf):
            got = want.copy()
            got[i] = value
            assert not check_tensor("d", got, want, BFLOAT16, lines.append)
    assert BFLOAT16.line() == "logits 1, loss 0.05, gradients 0.02 and 7.9%, losses of steps 0.05"
