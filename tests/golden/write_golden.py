"""Write the golden files beside this script with PyTorch, knowing nothing of llmpy.

    python tests/golden/write_golden.py        (PyTorch 2.13.0; any version gives nearly the same)

A GPT-2 of odd sizes in plain PyTorch, computed in float64 from float32 weights:

    model_v3.bin, model_v1.bin    the weights, wte padded to 128 rows and not padded
    state_v2.bin, state_v1.bin    a batch, its logits, loss and gradients, dwte padded and not
    losses.txt                    losses of ten AdamW steps on that batch as llm.c's test_gpt2 takes
                                  them: lr 1e-3, betas 0.9 and 0.999, eps 1e-8, decay 0.01 on ALL
                                  tensors, no clipping
    losses_clip.txt               `loss norm` of ten AdamW steps as training takes them: lr 1e-3,
                                  betas 0.9 and 0.99, eps 1e-8, decay 0.1 on the 2-D tensors only,
                                  gradients scaled by 1 / norm where the norm is above 1

The files are packed here by `struct`, from the published layout, not by llmpy's writers.
"""

import math
import struct
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu

HERE = Path(__file__).parent
L, NH, C, V, Vp, max_seq_len = 2, 3, 24, 61, 128, 19
B, T = 3, 13
SEED = 1234


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(C)
        self.c_attn = nn.Linear(C, 3 * C)
        self.attn_proj = nn.Linear(C, C)
        self.ln_2 = nn.LayerNorm(C)
        self.c_fc = nn.Linear(C, 4 * C)
        self.mlp_proj = nn.Linear(4 * C, C)

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (a.view(batch, time, NH, C // NH).transpose(1, 2) for a in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(C // NH)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        att = scores.masked_fill(future, float("-inf")).softmax(-1)
        x = x + self.attn_proj((att @ v).transpose(1, 2).reshape(batch, time, C))
        return x + self.mlp_proj(gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(V, C)
        self.wpe = nn.Embedding(max_seq_len, C)
        self.h = nn.ModuleList(Block() for _ in range(L))
        self.ln_f = nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T  # the head is tied
        return logits, cross_entropy(logits.view(-1, V), targets.view(-1))

    def tensors(self):
        """The parameters in the order of the files; a list holds one for each layer."""
        h = self.h
        return [
            [self.wte.weight],
            [self.wpe.weight],
            [b.ln_1.weight for b in h],
            [b.ln_1.bias for b in h],
            [b.c_attn.weight for b in h],
            [b.c_attn.bias for b in h],
            [b.attn_proj.weight for b in h],
            [b.attn_proj.bias for b in h],
            [b.ln_2.weight for b in h],
            [b.ln_2.bias for b in h],
            [b.c_fc.weight for b in h],
            [b.c_fc.bias for b in h],
            [b.mlp_proj.weight for b in h],
            [b.mlp_proj.bias for b in h],
            [self.ln_f.weight],
            [self.ln_f.bias],
        ]


def make_model():
    """Make the model with weights large enough that no gradient is trivial."""
    torch.manual_seed(SEED)
    model = GPT()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(0, 0.25)
            if ".ln_" in f".{name}" and name.endswith("weight"):
                p.add_(1)
    return model.double()  # the values stay those of float32


def make_batch():
    generator = torch.Generator().manual_seed(SEED + 1)
    text = torch.randint(V, (B * T + 1,), generator=generator)
    return text[:-1].view(B, T), text[1:].view(B, T)


def floats(values):
    flat = values.detach().reshape(-1).tolist()
    return struct.pack(f"<{len(flat)}f", *flat)


def ints(values):
    flat = values.reshape(-1).tolist()
    return struct.pack(f"<{len(flat)}i", *flat)


def header(*fields):
    return struct.pack("<256i", *fields, *[0] * (256 - len(fields)))


def pack_tensors(groups, padded):
    packed = [b"".join(floats(p) for p in group) for group in groups]
    if padded:
        packed[0] += bytes((Vp - V) * C * 4)
    return b"".join(packed)


def write_files(model, tokens, targets):
    sizes = (max_seq_len, V, L, NH, C)
    groups = model.tensors()
    v1 = header(20240326, 1, *sizes) + pack_tensors(groups, padded=False)
    v3 = header(20240326, 3, *sizes, Vp) + pack_tensors(groups, padded=True)
    (HERE / "model_v1.bin").write_bytes(v1)
    (HERE / "model_v3.bin").write_bytes(v3)

    logits, loss = model(tokens, targets)
    loss.backward()
    grads = [[p.grad for p in group] for group in groups]
    body = ints(tokens) + ints(targets) + floats(logits) + floats(loss)
    v1 = header(20240327, 1, B, T) + body + pack_tensors(grads, padded=False)
    v2 = header(20240327, 2, B, T) + body + pack_tensors(grads, padded=True)
    (HERE / "state_v1.bin").write_bytes(v1)
    (HERE / "state_v2.bin").write_bytes(v2)


def train(model, optimizer, tokens, targets, clip):
    """Take ten steps and give loss and gradient norm of each."""
    parameters = list(model.parameters())
    history = []
    for _ in range(10):
        optimizer.zero_grad()
        _, loss = model(tokens, targets)
        loss.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in parameters))
        if clip is not None and norm > clip:
            for p in parameters:
                p.grad *= clip / norm
        optimizer.step()
        history.append((loss.item(), norm))
    return history


def write_losses(tokens, targets):
    model = make_model()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    history = train(model, optimizer, tokens, targets, clip=None)
    (HERE / "losses.txt").write_text("".join(f"{loss!r}\n" for loss, _ in history))

    model = make_model()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), eps=1e-8)
    history = train(model, optimizer, tokens, targets, clip=1.0)
    text = "".join(f"{loss!r} {norm!r}\n" for loss, norm in history)
    (HERE / "losses_clip.txt").write_text(text)


if __name__ == "__main__":
    torch.set_num_threads(1)
    batch = make_batch()
    write_files(make_model(), *batch)
    write_losses(*batch)
