"""dump: the debug state that PyTorch wrote, made again without it; and every tensor by name."""

import re

import numpy as np
import pytest

from llmpy import footprint
from llmpy.dump import dump
from llmpy.errors import FormatError, UsageError
from llmpy.formats.checkpoint import write_checkpoint
from llmpy.formats.debug_state import read_debug_state
from llmpy.formats.tokens import write_tokens
from llmpy.model import GPT2
from llmpy.rng import init_params
from llmpy.sizes import GPT2Config
from llmpy.tensors import PARAMS, SEED_ACTS
from llmpy.verify import verify

from . import golden_state as golden

MODEL = golden.FOLDER / "model_v3.bin"
TEXT = np.append(golden.TOKENS.reshape(-1), golden.TARGETS[-1, -1])
SIZES = {"batch_size": golden.B, "seq_len": golden.T}


@pytest.fixture
def tokens_path(tmp_path):
    path = tmp_path / "tokens.bin"
    write_tokens(path, [*TEXT, 1, 2, 3])  # only the first B*T + 1 count
    return path


@pytest.fixture
def arrays(tokens_path, tmp_path):
    dump(MODEL, tokens_path, npz_path=tmp_path / "all", **SIZES)
    with np.load(tmp_path / "all") as file:  # no .npz is added to the name
        return dict(file)


@pytest.mark.parametrize("with_npz", [False, True])
def test_the_state_is_the_one_of_pytorch(tokens_path, tmp_path, with_npz):
    path = tmp_path / "state.bin"
    npz = tmp_path / "all.npz" if with_npz else None
    dump(MODEL, tokens_path, state_path=path, npz_path=npz, **SIZES)
    state = read_debug_state(path, golden.CONFIG)
    np.testing.assert_array_equal(state.tokens, golden.TOKENS)
    np.testing.assert_array_equal(state.targets, golden.TARGETS)
    assert golden.relative_l2(state.logits, golden.LOGITS) <= 1e-7
    assert state.loss == pytest.approx(golden.LOSS, rel=1e-7)
    golden.assert_grads_close(state.grads, golden.GRADS, golden.CONFIG.dims, 1e-7)
    assert path.stat().st_size == (golden.FOLDER / "state_v2.bin").stat().st_size
    assert path.read_bytes()[:1024] == (golden.FOLDER / "state_v2.bin").read_bytes()[:1024]


def test_verify_accepts_it(tokens_path, tmp_path):
    dump(MODEL, tokens_path, state_path=tmp_path / "s.bin", batch_size=2, seq_len=5)
    ok = verify(
        MODEL, tmp_path / "s.bin", lambda line: None, steps=1, tolerance=1e-5, backend="numpy"
    )
    assert ok


def test_the_npz_has_every_name(arrays):
    without = {"dprobs", *(f"d{n}_{x}" for n in ("ln1", "ln2", "lnf") for x in ("mean", "rstd"))}
    names = {"tokens", "targets", "loss", *SEED_ACTS, *(f"d{n}" for n in PARAMS)}
    names |= {f"d{n}" for n in SEED_ACTS} - without
    assert set(arrays) == names
    assert {x.dtype for n, x in arrays.items() if n not in ("tokens", "targets")} == {
        np.dtype("float64")
    }


def test_the_npz_holds_the_gradients_of_pytorch(arrays):
    got = np.concatenate([arrays[f"d{name}"].reshape(-1) for name in PARAMS])
    golden.assert_grads_close(got, golden.GRADS, golden.CONFIG.dims, 1e-7)
    assert arrays["loss"] == pytest.approx(golden.LOSS, rel=1e-7)
    np.testing.assert_array_equal(arrays["tokens"], golden.TOKENS)


def test_plain_and_fused_ops_agree(arrays):
    """Two compositions of the passes, one of them with stored attention, in float64."""
    model = golden.golden_model("numpy", "float64")
    model.forward_backward(golden.TOKENS, golden.TARGETS)
    for name, want in model.grads.items():
        np.testing.assert_allclose(arrays[f"d{name}"], want, rtol=1e-9, atol=1e-14, err_msg=name)


def test_activation_gradients_are_derivatives(arrays):
    """What reaches a tensor is what its parameters' gradients are made of."""
    rows = lambda name: arrays[name].reshape(-1, arrays[name].shape[-1])  # noqa: E731
    V = golden.V
    onehot = np.eye(128)[golden.TARGETS.reshape(-1)]
    expected = (rows("probs") - onehot) / golden.TOKENS.size
    np.testing.assert_allclose(rows("dlogits")[:, :V], expected[:, :V], rtol=1e-12, atol=1e-16)
    assert not rows("dlogits")[:, V:].any()
    for bias, act in (
        ("qkvb", "qkv"),
        ("attprojb", "attproj"),
        ("fcb", "fch"),
        ("fcprojb", "fcproj"),
    ):
        np.testing.assert_allclose(
            arrays[f"d{bias}"], arrays[f"d{act}"].sum((1, 2)), rtol=1e-10, atol=1e-15
        )
    # a change of a score within a row of attention that shifts all alike changes nothing
    np.testing.assert_allclose(arrays["dpreatt"].sum(-1), 0, atol=1e-15)
    assert np.abs(arrays["dpreatt"]).max() > 1e-5
    assert not np.triu(arrays["dpreatt"], 1).any()
    assert (arrays["dlosses"] == 1 / golden.TOKENS.size).all()


# fmt: off
REFUSED = [
    ({"seq_len": 20}, UsageError, "--seq-len is 20, expected at most 19, the model's max_seq_len"),
    ({"batch_size": 4}, FormatError,
     "tokens.bin: 43 tokens, expected at least 53 = B*T + 1 with B=4, T=13"),
]
# fmt: on


@pytest.mark.parametrize(("sizes", "error", "message"), REFUSED)
def test_sizes_that_do_not_fit(tokens_path, tmp_path, sizes, error, message):
    with pytest.raises(error, match=f"{re.escape(message)}$"):
        dump(MODEL, tokens_path, state_path=tmp_path / "s.bin", **{**SIZES, **sizes})
    assert not (tmp_path / "s.bin").exists()


def test_tokens_of_another_vocabulary(tmp_path):
    path = tmp_path / "tokens.bin"
    write_tokens(path, [*TEXT[:-1], 61])
    message = (
        "tokens.bin: token 39 is 61, expected 0 to 60,"
        " because the model's vocabulary has V = 61 tokens"
    )
    with pytest.raises(FormatError, match=f"{re.escape(message)}$"):
        dump(MODEL, path, state_path=tmp_path / "s.bin", **SIZES)


def test_nothing_to_write(tokens_path):
    message = "dump: neither --state nor --npz is given, expected at least one"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        dump(MODEL, tokens_path)


def test_paths_are_checked_before_the_work(tokens_path, tmp_path, monkeypatch):
    """No file is written over another of the same call, nor one without the other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.bin").write_bytes(MODEL.read_bytes())
    (tmp_path / "link").symlink_to("m.bin")
    for paths, message in (
        (("link", None), "dump: --state is link, the file of the model, expected another"),
        ((None, "tokens.bin"), "dump: --npz is tokens.bin, the file of --tokens, expected another"),
        (("x", "./x"), "dump: --npz is ./x, the file of --state, expected another"),
        (("no/x", "y"), f"no/x: folder {tmp_path.resolve()}/no does not exist. Make it first."),
    ):  # fmt: skip
        with pytest.raises(UsageError) as error:
            dump("m.bin", "tokens.bin", state_path=paths[0], npz_path=paths[1], **SIZES)
        assert str(error.value) == message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "m.bin", "tokens.bin"]
    assert (tmp_path / "m.bin").read_bytes() == MODEL.read_bytes()


def test_the_references_logits_are_reckoned_with(tokens_path, tmp_path, monkeypatch):
    """Before the model is read: several arrays of logits, here more than all the rest."""
    config = GPT2Config(max_seq_len=9, vocab_size=20_000, num_layers=1, num_heads=1, channels=1)
    write_checkpoint(tmp_path / "m.bin", config, init_params(config, 1))
    weights, logits = 8 * 20_096, 8 * 2 * 9 * 20_000
    monkeypatch.setattr(footprint, "available_bytes", lambda: 3 * weights + 3 * logits)
    monkeypatch.setattr(GPT2, "from_checkpoint", lambda *_: pytest.fail("the model was read"))
    sizes = {"batch_size": 2, "seq_len": 9}
    with pytest.raises(
        UsageError, match=r"^dump: a debug state of B=2 and T=9 in float64 needs 1[0-9.]+ MB, "
    ):
        dump(tmp_path / "m.bin", tokens_path, state_path=tmp_path / "s.bin", **sizes)
