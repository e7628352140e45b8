"""Every tensor that the C program keeps, and its gradient, by its name: to teach and to check.

The same two lists as model.py with the plain ops of the seed, each result in a tensor of its own:
no op is fused, attention stores its (T, T) matrices, the logits are whole. On the NumPy reference.

Source: llm.c, train_gpt2.c, gpt2_forward and gpt2_backward.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import ops as reference
from .ops.attention import split_heads
from .sizes import GPT2Config
from .tensors import PARAMS, SEED_ACTS, Tensors

ops: Any = reference  # their types are in the tables of their docstrings

# the gradients that the C program leaves at zero: nothing flows through them there
NO_GRADIENT = ("ln1_mean", "ln1_rstd", "ln2_mean", "ln2_rstd", "lnf_mean", "lnf_rstd", "probs")


def seed_forward(
    config: GPT2Config, params: Tensors, tokens: NDArray[np.int32], targets: NDArray[np.int32]
) -> Tensors:
    """Run the seed's forward pass and give its 23 activations, those of SEED_ACTS."""
    acts = _seed_tensors(config, params, tokens)
    L, NH, V = config.num_layers, config.num_heads, config.vocab_size

    ops.encoder_forward(acts.encoded, tokens, params.wte, params.wpe)
    residual = acts.encoded
    for l in range(L):
        a, p = acts.layer(l), params.layer(l)
        ops.layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, residual, p.ln1w, p.ln1b)
        ops.matmul_forward(a.qkv, a.ln1, p.qkvw, p.qkvb)
        ops.attention_scores(a.preatt, a.att, a.qkv, NH=NH)
        _values_forward(a.atty, a.att, a.qkv)
        ops.matmul_forward(a.attproj, a.atty, p.attprojw, p.attprojb)
        ops.residual_forward(a.residual2, residual, a.attproj)
        ops.layernorm_forward(a.ln2, a.ln2_mean, a.ln2_rstd, a.residual2, p.ln2w, p.ln2b)
        ops.matmul_forward(a.fch, a.ln2, p.fcw, p.fcb)
        ops.gelu_forward(a.fch_gelu, a.fch)
        ops.matmul_forward(a.fcproj, a.fch_gelu, p.fcprojw, p.fcprojb)
        ops.residual_forward(a.residual3, a.residual2, a.fcproj)
        residual = a.residual3
    ops.layernorm_forward(
        acts.lnf, acts.lnf_mean, acts.lnf_rstd, residual, params.lnfw, params.lnfb
    )
    ops.matmul_forward(acts.logits, acts.lnf, params.wte, None)
    ops.softmax_forward(acts.probs, acts.logits, V=V)
    ops.crossentropy_forward(acts.losses, acts.logits, targets, V=V)
    return acts


def seed_backward(
    config: GPT2Config,
    params: Tensors,
    acts: Tensors,
    tokens: NDArray[np.int32],
    targets: NDArray[np.int32],
) -> tuple[Tensors, Tensors]:
    """Run the seed's backward pass from the mean loss.

    Returns the gradients of the 16 parameters and of the activations, both by the names of what
    they are gradients of; those in NO_GRADIENT stay zero.
    """
    grads = Tensors(ops, PARAMS, config.dims, str(params.memory.dtype))
    dacts = _seed_tensors(config, params, tokens)
    L, V = config.num_layers, config.vocab_size
    how: dict[str, Any] = {"accumulate": True}

    dacts.losses[...] = 1 / tokens.size  # the loss is the mean over (b, t)
    ops.crossentropy_softmax_backward(dacts.logits, dacts.losses, acts.probs, targets, V=V)
    ops.matmul_backward(dacts.lnf, grads.wte, None, dacts.logits, acts.lnf, params.wte, **how)
    ops.layernorm_backward(
        dacts.layer(L - 1).residual3, grads.lnfw, grads.lnfb, dacts.lnf,
        acts.layer(L - 1).residual3, params.lnfw, acts.lnf_mean, acts.lnf_rstd, **how,
    )  # fmt: skip
    for l in reversed(range(L)):
        residual = acts.layer(l - 1).residual3 if l else acts.encoded
        dresidual = dacts.layer(l - 1).residual3 if l else dacts.encoded
        a, p, d, g = acts.layer(l), params.layer(l), dacts.layer(l), grads.layer(l)
        ops.residual_backward(d.residual2, d.fcproj, d.residual3)
        ops.matmul_backward(
            d.fch_gelu, g.fcprojw, g.fcprojb, d.fcproj, a.fch_gelu, p.fcprojw, **how
        )
        ops.gelu_backward(d.fch, a.fch, d.fch_gelu)
        ops.matmul_backward(d.ln2, g.fcw, g.fcb, d.fch, a.ln2, p.fcw, **how)
        ops.layernorm_backward(
            d.residual2, g.ln2w, g.ln2b, d.ln2, a.residual2, p.ln2w, a.ln2_mean, a.ln2_rstd, **how
        )
        ops.residual_backward(dresidual, d.attproj, d.residual2)
        ops.matmul_backward(d.atty, g.attprojw, g.attprojb, d.attproj, a.atty, p.attprojw, **how)
        _attention_backward(d.qkv, d.preatt, d.att, d.atty, a.qkv, a.att)
        ops.matmul_backward(d.ln1, g.qkvw, g.qkvb, d.qkv, a.ln1, p.qkvw, **how)
        ops.layernorm_backward(
            dresidual, g.ln1w, g.ln1b, d.ln1, residual, p.ln1w, a.ln1_mean, a.ln1_rstd, **how
        )
    ops.encoder_backward(grads.wte, grads.wpe, dacts.encoded, tokens, **how)
    return grads, dacts


def _seed_tensors(config: GPT2Config, params: Tensors, tokens: NDArray[np.int32]) -> Tensors:
    B, T = tokens.shape
    return Tensors(ops, SEED_ACTS, {**config.dims, "B": B, "T": T}, str(params.memory.dtype))


def _values_forward(atty: NDArray[Any], att: NDArray[Any], qkv: NDArray[Any]) -> None:
    NH = att.shape[1]
    split_heads(atty, NH)[...] = att @ split_heads(np.split(qkv, 3, axis=-1)[2], NH)


def _attention_backward(
    dqkv: NDArray[Any],
    dpreatt: NDArray[Any],
    datt: NDArray[Any],
    dout: NDArray[Any],
    qkv: NDArray[Any],
    att: NDArray[Any],
) -> None:
    """Write the gradients of qkv, of the scores and of the weights, through stored matrices."""
    NH = att.shape[1]
    query, key, value = (split_heads(x, NH) for x in np.split(qkv, 3, axis=-1))
    dquery, dkey, dvalue = (split_heads(x, NH) for x in np.split(dqkv, 3, axis=-1))
    dout = split_heads(dout, NH)
    causal = np.tri(att.shape[-1], dtype=bool)
    # forward was: atty = att @ value
    dvalue[...] = att.swapaxes(2, 3) @ dout
    datt[...] = np.where(causal, dout @ value.swapaxes(2, 3), 0)
    # forward was: att = softmax(preatt)
    dpreatt[...] = att * (datt - (att * datt).sum(-1, keepdims=True))
    # forward was: preatt = query @ key.T / sqrt(HS)
    scale = 1 / math.sqrt(query.shape[-1])
    dquery[...] = dpreatt @ key * scale
    dkey[...] = dpreatt.swapaxes(2, 3) @ query * scale
