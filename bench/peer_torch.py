#!/usr/bin/env python3
"""GPT-2's training step in PyTorch at its best, to be timed beside llmpy's. Needs PyTorch alone.

    python bench/peer_torch.py --B 4 --T 64 --V 50257 --maxT 1024 --L 12 --NH 12 --C 768 \
        --dtype float32 --mode compile --warm-up 2 --steps 7

A step is forward, backward, clip, AdamW. Attention is scaled_dot_product_attention, the optimizer
is fused, bfloat16 is autocast. Prints one line of JSON: see `answer`. `llmpy bench --peer torch`
runs it.
"""

import argparse
import contextlib
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """One layer."""

    def __init__(self, C, NH):
        super().__init__()
        self.NH = NH
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.attproj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.fcproj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        """Go from residual stream to residual stream."""
        B, T, C = x.shape
        qkv = self.qkv(self.ln1(x)).view(B, T, 3, self.NH, C // self.NH)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, NH, T, HS)
        atty = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attproj(atty.transpose(1, 2).reshape(B, T, C))
        return x + self.fcproj(functional.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """The model; its output is the mean loss."""

    def __init__(self, V, maxT, L, NH, C):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(maxT, C)
        self.blocks = nn.ModuleList(Block(C, NH) for _ in range(L))
        self.lnf = nn.LayerNorm(C)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        """Give the mean loss."""
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.lnf(x), self.wte.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("B", "T", "V", "maxT", "L", "NH", "C", "warm-up", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--mode", default="compile", choices=["eager", "compile"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--enough-s", type=float, help="stop early after timed steps of so long")
    return parser.parse_args()


def trainer(args):
    """Make the model; give a function that takes a step on a batch and gives the loss."""
    torch.manual_seed(0)
    model = GPT2(args.V, args.maxT, args.L, args.NH, args.C)
    loss_of = torch.compile(model) if args.mode == "compile" else model
    decayed = [p for p in model.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)

    def autocast():
        if args.dtype == "bfloat16":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def step(tokens, targets):
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = loss_of(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


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
    if args.threads:
        torch.set_num_threads(args.threads)
    step = trainer(args)
    seconds = []
    for i in range(args.warm_up + args.steps):
        tokens, targets = torch.randint(0, args.V, (2, args.B, args.T))
        start = time.perf_counter()
        loss = step(tokens, targets)
        taken = time.perf_counter() - start
        if i >= args.warm_up:
            seconds.append(taken)
            if args.enough_s and sum(seconds) >= args.enough_s:
                break
    answer = {
        "peer": f"torch {torch.__version__.split('+')[0]} {args.mode}",
        "dtype": args.dtype,
        "threads": torch.get_num_threads(),
        "steps": len(seconds),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "peak_rss_gb": peak_rss_gb(),
        "loss": loss.item(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
