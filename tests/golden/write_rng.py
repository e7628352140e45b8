"""Write rng.npz: what PyTorch's CPU generator draws. Run with torch 2.13.0 (x86-64 with AVX2)."""

from pathlib import Path

import numpy as np
import torch

SIZES = (1, 5, 15, 16, 17, 31, 32, 33, 1000)

# calls on one generator: letter and count; u uniform, n normal
SEQUENCES = ("n5 n16 n5", "n5 u3 n3", "n7 n17 u5 n1 n40 n2", "u16 n3 n3 n100 n1", "n1 n1 n1 n16 n1")


def draw(call: str) -> np.ndarray:
    out = torch.empty(int(call[1:]))
    return (out.uniform_() if call[0] == "u" else out.normal_()).numpy()


def main() -> None:
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    arrays = {}
    for n in SIZES:
        torch.manual_seed(1000 + n)
        arrays[f"normal_{n}"] = torch.empty(n).normal_().numpy()
        arrays[f"after_{n}"] = torch.empty(1).uniform_().numpy()  # the place in the stream
        torch.manual_seed(2000 + n)
        arrays[f"scaled_{n}"] = torch.empty(n).normal_(-0.3, 0.02).numpy()
        torch.manual_seed(3000 + n)
        arrays[f"uniform_{n}"] = torch.empty(n).uniform_().numpy()
    for sequence in SEQUENCES:
        torch.manual_seed(137)
        arrays[sequence] = np.concatenate([draw(call) for call in sequence.split()])
    torch.manual_seed(2**40 + 5)  # only the low 32 bits count
    arrays["wide_seed"] = torch.empty(20).normal_().numpy()
    torch.manual_seed(42)
    big = torch.empty(200_000).normal_(0.0, 0.02).numpy()  # more than one chunk
    arrays["big_sample"] = big[::997].copy()
    arrays["big_tail"] = big[-16:].copy()
    np.savez_compressed(Path(__file__).with_name("rng.npz"), **arrays)


if __name__ == "__main__":
    main()
