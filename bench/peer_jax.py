#!/usr/bin/env python3
"""GPT-2's training step in JAX at its best, to be timed beside llmpy's. Needs JAX alone.

    python bench/peer_jax.py --B 4 --T 64 --V 50257 --maxT 1024 --L 12 --NH 12 --C 768 \
        --dtype float32 --warm-up 2 --steps 7

A step is forward, backward, clip, AdamW, in one compiled function whose buffers are donated. The
layers run under lax.scan, which on a CPU is faster than unrolled. bfloat16 is the type of the
operands of matrix products. Prints one line of JSON. `llmpy bench --peer jax` runs it.
"""

import argparse
import contextlib
import json
import os
import statistics
import time
from functools import partial
from pathlib import Path


def arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("B", "T", "V", "maxT", "L", "NH", "C", "warm-up", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--mode", default="compile", choices=["compile"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--enough-s", type=float, help="stop early after timed steps of so long")
    return parser.parse_args()


def use_threads(count):
    """Keep this process to so many processors: JAX has a thread for each that it may use."""
    if count and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def weights(args, jax, jnp):
    """Draw the weights: matrices normal, the scales of LayerNorm one, the rest zero."""
    V, maxT, L, C = args.V, args.maxT, args.L, args.C
    keys = iter(jax.random.split(jax.random.key(0), 6))

    def normal(*shape):
        return 0.02 * jax.random.normal(next(keys), shape, jnp.float32)

    ones, zeros = jnp.ones, jnp.zeros
    layers = {
        "ln1w": ones((L, C)), "ln1b": zeros((L, C)), "ln2w": ones((L, C)), "ln2b": zeros((L, C)),
        "qkvw": normal(L, C, 3 * C), "qkvb": zeros((L, 3 * C)),
        "attprojw": normal(L, C, C), "attprojb": zeros((L, C)),
        "fcw": normal(L, C, 4 * C), "fcb": zeros((L, 4 * C)),
        "fcprojw": normal(L, 4 * C, C), "fcprojb": zeros((L, C)),
    }  # fmt: skip
    return {
        "wte": normal(V, C), "wpe": normal(maxT, C), "lnfw": ones(C), "lnfb": zeros(C),
        "layers": layers,
    }  # fmt: skip


def loss_function(args, jax, jnp):
    """Give the function of weights, tokens and targets that is the mean loss."""
    B, T, NH, C = args.B, args.T, args.NH, args.C
    causal = jnp.tril(jnp.ones((T, T), bool))

    def matmul(x, weight):
        return jnp.matmul(x.astype(args.dtype), weight.astype(args.dtype)).astype(jnp.float32)

    def layernorm(x, weight, bias):
        centered = x - x.mean(-1, keepdims=True)
        return centered * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias

    def heads(x):
        return x.reshape(B, T, NH, C // NH).transpose(0, 2, 1, 3)

    def layer(x, p):
        qkv = matmul(layernorm(x, p["ln1w"], p["ln1b"]), p["qkvw"]) + p["qkvb"]
        q, k, v = (heads(z) for z in jnp.split(qkv, 3, -1))
        scores = jnp.where(causal, matmul(q, k.swapaxes(2, 3)) / (C // NH) ** 0.5, -jnp.inf)
        atty = matmul(jax.nn.softmax(scores, -1), v).transpose(0, 2, 1, 3).reshape(B, T, C)
        x = x + matmul(atty, p["attprojw"]) + p["attprojb"]
        fch = matmul(layernorm(x, p["ln2w"], p["ln2b"]), p["fcw"]) + p["fcb"]
        return x + matmul(jax.nn.gelu(fch, approximate=True), p["fcprojw"]) + p["fcprojb"], None

    def loss(p, tokens, targets):
        x, _ = jax.lax.scan(layer, p["wte"][tokens] + p["wpe"][:T], p["layers"])
        logits = matmul(layernorm(x, p["lnfw"], p["lnfb"]), p["wte"].T)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()

    return loss


def trainer(args, jax, jnp):
    """Make weights and moments; give a function that takes a step and gives the loss."""
    loss_of = loss_function(args, jax, jnp)
    beta1, beta2, tree = 0.9, 0.95, jax.tree

    def decayed(p):
        return tree.map(lambda w: 0.1 * w if w.ndim > 1 else jnp.zeros_like(w), p)

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(p, m, v, count, tokens, targets):
        loss, grads = jax.value_and_grad(loss_of)(p, tokens, targets)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in tree.leaves(grads)))
        scale = jnp.minimum(1.0, 1.0 / norm)
        m = tree.map(lambda m, g: beta1 * m + (1 - beta1) * scale * g, m, grads)
        v = tree.map(lambda v, g: beta2 * v + (1 - beta2) * (scale * g) ** 2, v, grads)
        scale1, scale2 = 1 / (1 - beta1**count), 1 / (1 - beta2**count)
        p = tree.map(
            lambda p, m, v, d: p - 1e-4 * (m * scale1 / (jnp.sqrt(v * scale2) + 1e-8) + d),
            p, m, v, decayed(p),
        )  # fmt: skip
        return p, m, v, loss

    p = weights(args, jax, jnp)
    state = [p, tree.map(jnp.zeros_like, p), tree.map(jnp.zeros_like, p)]

    def train(count, tokens, targets):
        *state[:], loss = step(*state, jnp.float32(count), tokens, targets)
        return float(loss)  # waits

    return train


def peak_rss_gb():
    """Give the most memory that this program has held, in 1e9 bytes; None if it can't be told."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    return None


def main():
    """Time the steps and print the answer."""
    args = arguments()
    use_threads(args.threads)
    import jax
    import jax.numpy as jnp

    step = trainer(args, jax, jnp)
    seconds = []
    for i in range(args.warm_up + args.steps):
        batch = jax.random.randint(jax.random.key(i), (2, args.B, args.T), 0, args.V)
        tokens, targets = jax.block_until_ready(batch)
        start = time.perf_counter()
        loss = step(i + 1, tokens, targets)
        taken = time.perf_counter() - start
        if i >= args.warm_up:
            seconds.append(taken)
            if args.enough_s and sum(seconds) >= args.enough_s:
                break
    answer = {
        "peer": f"jax {jax.__version__}",
        "dtype": args.dtype,
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "steps": len(seconds),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "peak_rss_gb": peak_rss_gb(),
        "loss": loss,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
