"""GPT-2 in PyTorch, from a flat block of weights in the order of llm.c's files."""

import math

import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear

# fmt: off
NAMES = (
    "wte", "wpe", "ln1w", "ln1b", "qkvw", "qkvb", "attprojw", "attprojb",
    "ln2w", "ln2b", "fcw", "fcb", "fcprojw", "fcprojb", "lnfw", "lnfb",
)
# fmt: on
TWO_D = {"wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw"}


def shapes(config):
    maxT, V, L, C = config.max_seq_len, config.vocab_size, config.num_layers, config.channels
    layer = [(C,), (C,), (3 * C, C), (3 * C,), (C, C), (C,)]
    layer += [(C,), (C,), (4 * C, C), (4 * C,), (C, 4 * C), (C,)]
    return [(V, C), (maxT, C), *[(L, *shape) for shape in layer], (C,), (C,)]


class TorchGPT2:
    """Autograd does the backward pass; the padded rows of wte are left out."""

    def __init__(self, config, memory):
        self.config = config
        self.padding = (config.padded_vocab_size - config.vocab_size) * config.channels
        self.params = {}
        start = 0
        for name, shape in zip(NAMES, shapes(config), strict=True):
            stop = start + math.prod(shape)
            values = torch.from_numpy(memory[start:stop].reshape(shape).copy())
            self.params[name] = values.requires_grad_()
            start = stop + (self.padding if name == "wte" else 0)
        assert start == memory.size

    def __call__(self, tokens):
        """Give the logits (B, T, V)."""
        p, C, NH = self.params, self.config.channels, self.config.num_heads
        B, T = tokens.shape
        x = p["wte"][tokens] + p["wpe"][:T]
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        for l in range(self.config.num_layers):
            w = {name: values[l] for name, values in p.items() if values.ndim > 1}
            y = layer_norm(x, (C,), w["ln1w"], w["ln1b"])
            q, k, v = linear(y, w["qkvw"], w["qkvb"]).view(B, T, 3, NH, -1).permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(2, 3) / math.sqrt(C // NH)).masked_fill(future, -math.inf)
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C)
            x = x + linear(y, w["attprojw"], w["attprojb"])
            y = layer_norm(x, (C,), w["ln2w"], w["ln2b"])
            y = gelu(linear(y, w["fcw"], w["fcb"]), approximate="tanh")
            x = x + linear(y, w["fcprojw"], w["fcprojb"])
        return linear(layer_norm(x, (C,), p["lnfw"], p["lnfb"]), p["wte"])

    def loss(self, tokens, targets):
        return cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def grads(self):
        """Give all gradients as one flat NumPy block, dwte padded with zeros."""
        parts = [p.grad.flatten() for p in self.params.values()]
        parts.insert(1, torch.zeros(self.padding, dtype=parts[0].dtype))
        return torch.cat(parts).numpy()

    def adamw(self, weight_decay, decay_2d, **settings):
        """Make PyTorch's own AdamW over all parameters, decaying all or the 2-D ones."""
        groups = [
            {"params": [p], "weight_decay": weight_decay if name in TWO_D or not decay_2d else 0.0}
            for name, p in self.params.items()
        ]
        return torch.optim.AdamW(groups, **settings)
