"""Train the baby recipe on a text: llmpy in float32 and in bfloat16, and PyTorch in float32.

    python bench/text_curve.py TEXT.txt [--seed 42] [--steps 2000] [--no-torch]

All start from the same weights and see the same batches. The first 90% of the characters train; the
loss is the mean over all windows of the rest, in the dtype that was trained. Prints the losses and
their differences from llmpy's in float32. Needs PyTorch beside llmpy: pip install -e '.[parity]'.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from llmpy import GPT2
from llmpy.config import BABY
from llmpy.data.loader import DataLoader
from llmpy.data.vocabulary import char_tokenizer
from llmpy.schedule import learning_rate


def loaders(ids, config):
    """Give the loaders of the first 90% of the ids, shuffled, and of the rest, in order."""
    cut = len(ids) * 9 // 10
    B, T = config.batch_size, config.seq_len
    return DataLoader.from_tokens(ids[:cut], B, T, shuffle=True), DataLoader.from_tokens(
        ids[cut:], 1, T
    )


def rate(config, step, steps):
    """Give the learning rate of a step."""
    return learning_rate(
        step, lr=config.lr, schedule=config.schedule, warmup=config.warmup, steps=steps,
        final_lr_frac=config.final_lr_frac,
    )  # fmt: skip


def mean_loss(loader, loss_of):
    """Give the mean loss over all windows of a loader."""
    loader.reset()
    return float(np.mean([loss_of(*loader.next_batch()) for _ in range(loader.batches_per_epoch)]))


def train_llmpy(model, config, steps, train, val):
    """Train with llmpy; give the validation loss."""
    for step in range(steps):
        model.forward_backward(*train.next_batch())
        norm = model.grad_norm()
        model.update(
            rate(config, step, steps), config.beta1, config.beta2, 1e-8, config.weight_decay,
            step + 1, grad_scale=min(1.0, config.grad_clip / norm), decay="2d",
        )  # fmt: skip
    return mean_loss(val, model.forward)


def train_torch(model, config, steps, train, val):
    """Train with PyTorch; give the validation loss."""
    import torch

    optimizer = model.adamw(
        config.weight_decay, decay_2d=True, lr=config.lr, betas=(config.beta1, config.beta2)
    )
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(config, step, steps)
        tokens, targets = (torch.from_numpy(x.astype(np.int64)) for x in train.next_batch())
        optimizer.zero_grad()
        model.loss(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.params.values(), config.grad_clip)
        optimizer.step()

    def loss_of(tokens, targets):
        with torch.no_grad():
            pair = (torch.from_numpy(x.astype(np.int64)) for x in (tokens, targets))
            return float(model.loss(*pair))

    return mean_loss(val, loss_of)


def main():
    """Train all and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="a UTF-8 text")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--steps", type=int, default=BABY.steps)
    parser.add_argument("--no-torch", action="store_true", help="train with llmpy alone")
    args = parser.parse_args()

    text = args.text.read_text(encoding="utf-8")
    tokenizer = char_tokenizer(text)
    ids = np.array(tokenizer.encode(text), np.int32)
    sizes = {"seed": args.seed, "vocab_size": tokenizer.vocab_size}
    first = None
    for dtype in ("float32", "bfloat16"):
        model = GPT2.from_descriptor("baby", **sizes, dtype=dtype)
        loss = train_llmpy(model, BABY, args.steps, *loaders(ids, BABY))
        first = loss if first is None else first
        print(f"llmpy {dtype:8} {loss:.4f} {loss - first:+.4f}", flush=True)
    if not args.no_torch:
        from tests.parity.gpt2_torch import TorchGPT2

        weights = GPT2.from_descriptor("baby", **sizes)
        peer = TorchGPT2(
            weights.config, np.asarray(weights.backend.download(weights.params.memory))
        )
        loss = train_torch(peer, BABY, args.steps, *loaders(ids, BABY))
        print(f"torch float32  {loss:.4f} {loss - first:+.4f}")


if __name__ == "__main__":
    main()
