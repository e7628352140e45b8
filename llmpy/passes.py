"""The two passes: the forward pass is one list of op calls, the backward pass the same mirrored.

    encoded   = wte[token] + wpe[position]
    each layer:
      residual2 = residual  + attproj(attention(qkv(ln1(residual))))
      residual3 = residual2 + fcproj(gelu(fc(ln2(residual2))))       the next layer's residual
    lnf       = layernorm(residual3 of the last layer)
    logits    = lnf @ wte.T                                          tied to the embedding
    loss      = mean over (b, t) of -log softmax(logits)[target]

A residual is added in one call with the layernorm that follows it, so the list has the layernorm
of the next layer at the end of each. Logits are never kept whole while training: the classifier
makes them chunk by chunk, with the loss and its gradient, where forward ends and backward begins.

What is kept in between, and who shares memory with whom, is in tensors.py. What is not kept, the
backward pass makes again by the same kernels, so that gradients have the same bits: LayerNorm
always; GELU, too, within the op that needs its derivative, which takes the same exponential; the
product before GELU if `recompute` says so.

Sources: Radford et al. 2019, Language Models are Unsupervised Multitask Learners; llm.c,
train_gpt2.c.
"""

from typing import Any

from .sizes import GPT2Config
from .tensors import Tensors
from .workspace import Workspace


def forward_pass(
    ops: Any, config: GPT2Config, params: Tensors, work: Workspace, *, bf16: bool
) -> None:
    """Make the activations of the batch in `work`, up to lnf.

    ops   the backend
    bf16  round the operands of matrix products to bfloat16
    """
    acts, L, NH = work.acts, config.num_layers, config.num_heads

    ops.encoder_forward(acts.encoded, work.batch.tokens, params.wte, params.wpe)
    a, p = acts.layer(0), params.layer(0)
    ops.layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, acts.encoded, p.ln1w, p.ln1b)
    residual = acts.encoded
    for l in range(L):
        a, p = acts.layer(l), params.layer(l)
        ops.matmul_forward(a.qkv, a.ln1, p.qkvw, p.qkvb, bf16=bf16)
        ops.attention_forward(a.atty, a.lse, a.qkv, NH=NH, bf16=bf16)
        ops.matmul_forward(acts.proj, a.atty, p.attprojw, p.attprojb, bf16=bf16)
        ops.residual_layernorm_forward(
            a.residual2, a.ln2, a.ln2_mean, a.ln2_rstd, residual, acts.proj, p.ln2w, p.ln2b
        )
        ops.matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, bf16=bf16)
        ops.matmul_forward(acts.proj, a.fch_gelu, p.fcprojw, p.fcprojb, bf16=bf16)
        if l + 1 < L:
            n, q = acts.layer(l + 1), params.layer(l + 1)
            out, mean, rstd, weight, bias = n.ln1, n.ln1_mean, n.ln1_rstd, q.ln1w, q.ln1b
        else:
            out, mean, rstd = acts.lnf, acts.lnf_mean, acts.lnf_rstd
            weight, bias = params.lnfw, params.lnfb
        ops.residual_layernorm_forward(
            a.residual3, out, mean, rstd, a.residual2, acts.proj, weight, bias
        )
        residual = a.residual3


def backward_pass(
    ops: Any, config: GPT2Config, params: Tensors, grads: Tensors, work: Workspace,
    *, dloss: float, accumulate: bool, bf16: bool,
) -> None:  # fmt: skip
    """Make the losses and the gradients of the batch whose activations `work` holds.

    dloss       gradient of each position's loss
    accumulate  add to `grads` instead of writing them

    The activations stay as they are, so that it may be called again.
    """
    acts, s, targets = work.acts, work.scratch, work.batch.targets
    L, NH, V = config.num_layers, config.num_heads, config.vocab_size
    add = {"accumulate": accumulate}
    how = {"accumulate": accumulate, "bf16": bf16}

    ops.classifier_forward_backward(
        acts.losses, acts.dln, grads.wte, acts.lnf, params.wte, targets, V=V, dloss=dloss, **how
    )
    ops.zero(s.dresidual)  # from here on, the layernorms add to it
    ops.layernorm_backward(
        s.dresidual, grads.lnfw, grads.lnfb, acts.dln, acts.layer(L - 1).residual3,
        params.lnfw, acts.lnf_mean, acts.lnf_rstd, **add,
    )  # fmt: skip
    for l in reversed(range(L)):
        a, p, g = acts.layer(l), params.layer(l), grads.layer(l)
        residual = acts.layer(l - 1).residual3 if l else acts.encoded
        ops.layernorm_forward(a.ln2, a.ln2_mean, a.ln2_rstd, a.residual2, p.ln2w, p.ln2b)
        if work.recompute >= 2:
            ops.matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, bf16=bf16)
        ops.matmul_gelu_backward(
            s.dfch, g.fcprojw, g.fcprojb, s.dresidual, a.fch_gelu, p.fcprojw, a.fch, **how
        )
        ops.matmul_backward(acts.dln, g.fcw, g.fcb, s.dfch, a.ln2, p.fcw, **how)
        ops.layernorm_backward(
            s.dresidual, g.ln2w, g.ln2b, acts.dln, a.residual2, p.ln2w, a.ln2_mean, a.ln2_rstd,
            **add,
        )  # fmt: skip
        ops.matmul_backward(
            acts.datty, g.attprojw, g.attprojb, s.dresidual, a.atty, p.attprojw, **how
        )
        ops.attention_backward(s.dqkv, acts.datty, a.atty, a.lse, a.qkv, NH=NH, bf16=bf16)
        ops.layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, residual, p.ln1w, p.ln1b)
        ops.matmul_backward(acts.dln, g.qkvw, g.qkvb, s.dqkv, a.ln1, p.qkvw, **how)
        ops.layernorm_backward(
            s.dresidual, g.ln1w, g.ln1b, acts.dln, residual, p.ln1w, a.ln1_mean, a.ln1_rstd, **add
        )
    if not accumulate:
        ops.zero(grads.wpe)
    # wte is tied: its gradient already holds the classifier's part, so add
    ops.encoder_backward(grads.wte, grads.wpe, s.dresidual, work.batch.tokens, accumulate=True)
