"""Generic inputs for any op, made from the table in its docstring.

Inputs are numbers that float32 holds exactly, so that every dtype starts from the same. Outputs
are poisoned: NaN where the op writes, ones where it adds.
"""

import inspect
import itertools

import numpy as np

from llmpy import ops
from llmpy.ops.contract import rows
from llmpy.tensors import axis_size

# the one op without a twin: it forms the (T, T) matrices that a backend must not
REFERENCE_ONLY = ("attention_scores",)
OPS = tuple(
    name
    for name in ops.__all__
    if hasattr(getattr(ops, name), "__wrapped__") and name not in REFERENCE_ONLY
)

MODULES = {"numpy": "llmpy.ops", "cpu": "llmpy.cpu", "webgpu": "llmpy.webgpu"}  # the backends

# 1, 2, primes, and just under, on and over a tile of any width
EDGES = (1, 2, 3, 5, 6, 7, 8, 11, 15, 16, 17, 23, 31, 33, 47, 48, 49, 65, 97)

ADAMW = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}


def tile_edges():
    """Give the sizes around the CPU backend's tile, and around the pieces of its sums."""
    from llmpy.cpu.gemm import piece_of
    from llmpy.cpu.simd import MR, NR

    units = (MR, NR, piece_of(False), piece_of(True))
    sizes = {1, 2 * NR + 1, *(n + i for n in units for i in (-1, 0, 1))}
    return sorted(sizes - {0})


def activation_sizes():
    """Sizes for ops on (B, T, C)."""
    for x in EDGES:
        yield {"B": 1, "T": x, "C": 5}
        yield {"B": 2, "T": 3, "C": x}
    yield {"B": 3, "T": 37, "C": 130}
    yield {"B": 1, "T": 2, "C": 769}


def normalized_sizes():
    """Sizes for LayerNorm: a single channel has zero variance, and is among the hard inputs."""
    return (sizes for sizes in activation_sizes() if sizes["C"] > 1)


def matmul_sizes():
    """Sizes for ops on (B, T, C) and (OC, C)."""
    for x in EDGES:
        yield {"B": 1, "T": x, "C": 7, "OC": 16}
        yield {"B": 2, "T": 3, "C": x, "OC": 17}
        yield {"B": 1, "T": 6, "C": 5, "OC": x}
    for x in tile_edges():  # each is an edge of all three products
        yield {"B": 1, "T": x, "C": 5, "OC": 7}
        yield {"B": 2, "T": 3, "C": x, "OC": 5}
        yield {"B": 2, "T": 3, "C": 5, "OC": x}
    yield {"B": 1, "T": 1, "C": 1, "OC": 1}
    yield {"B": 3, "T": 43, "C": 131, "OC": 97}
    yield {"B": 1, "T": 7, "C": 1031, "OC": 50}
    yield {"B": 1, "T": 601, "C": 5, "OC": 7}
    yield {"B": 2, "T": 3, "C": 5, "OC": 1103}


def attention_sizes():
    """Sizes for ops on (B, T, 3C) and NH."""
    for T in EDGES:
        yield {"B": 1, "T": T, "NH": 1, "C": 4}
    for HS in (1, 2, 3, 7, 8, 16, 17, 32, 64):
        yield {"B": 2, "T": 5, "NH": 3, "C": 3 * HS}
    for x in tile_edges():
        yield {"B": 1, "T": x, "NH": 1, "C": 3}
        yield {"B": 1, "T": 5, "NH": 1, "C": x}
    yield {"B": 3, "T": 19, "NH": 5, "C": 35}
    yield {"B": 1, "T": 131, "NH": 2, "C": 32}
    yield {"B": 1, "T": 523, "NH": 1, "C": 3}  # several blocks of rows, several pieces of keys
    yield {"B": 1, "T": 67, "NH": 1, "C": 269}


def vocabulary_sizes():
    """Sizes for ops on (B, T, Vp) and (Vp, C)."""
    for V in EDGES:
        yield {"B": 2, "T": 3, "C": 6, "V": V, "Vp": V + 5, "maxT": 4, "N": 6}
    yield {"B": 1, "T": 1, "C": 1, "V": 1, "Vp": 1, "maxT": 1, "N": 1}
    yield {"B": 5, "T": 29, "C": 33, "V": 300, "Vp": 384, "maxT": 29, "N": 145}
    yield {"B": 1, "T": 17, "C": 7, "V": 128, "Vp": 128, "maxT": 64, "N": 17}
    yield {"B": 11, "T": 101, "C": 7, "V": 50, "Vp": 64, "maxT": 101, "N": 1111}  # many positions


def classifier_sizes():
    """Sizes for ops on (B, T, C), (Vp, C) and V."""
    yield from vocabulary_sizes()
    for x in tile_edges():
        for N, C, V in ((x, 5, 3), (3, x, 5), (5, 3, x)):
            yield {"B": 1, "T": N, "C": C, "V": V, "Vp": V + 1, "N": N}


def flat_sizes():
    """Sizes for ops on (N)."""
    for N in (*EDGES, 4099, 70_001):
        yield {"N": N}


SIZES = {
    "encoder": vocabulary_sizes,
    "layernorm": normalized_sizes,
    "matmul": matmul_sizes,
    "attention": attention_sizes,
    "gelu": activation_sizes,
    "residual": activation_sizes,
    "softmax": vocabulary_sizes,
    "crossentropy": vocabulary_sizes,
    "classifier": classifier_sizes,
    "adamw": flat_sizes,
    "global_norm": flat_sizes,
    "mean_loss": activation_sizes,
}


def op_file(name):
    """Give the stem of the file that an op is in."""
    return getattr(ops, name).__module__.rsplit(".", 1)[1]


def sizes_of(name):
    """Give the sizes to try an op with."""
    return list(SIZES[op_file(name)]())


def scalars_of(name, sizes):
    """Give all keyword-only arguments that an op should be tried with."""
    parameters = inspect.signature(getattr(ops, name)).parameters.values()
    names = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    fixed = {letter: sizes[letter] for letter in ("NH", "V") if letter in names}
    fixed |= {name: 0.625 for name in ("dloss", "scale") if name in names}
    if name == "adamw":
        N = sizes["N"]
        some = ((N // 2, N), (0, N // 3), (N // 4, N // 2), (N // 3, N // 3))  # two overlap
        return [
            {**ADAMW, "decay": None, "step": 1, "grad_scale": 1.0, "max_norm": 0.0},
            {**ADAMW, "decay": some, "step": 7, "grad_scale": 0.37, "max_norm": 0.1},
            {**ADAMW, "decay": (), "step": 100_000, "grad_scale": 1.0, "max_norm": 0.1},
        ]
    flags = [flag for flag in ("accumulate", "bf16") if flag in names]
    values = itertools.product((False, True), repeat=len(flags))
    return [{**fixed, **dict(zip(flags, chosen, strict=True))} for chosen in values]


def presences_of(name):
    """Give the sets of optional arrays to leave out: none, and all."""
    optional = tuple(row.name for row in rows(getattr(ops, name)) if row.optional)
    return [(), optional] if optional else [()]


def draw(shape, rng):
    """Draw normal numbers that float32 holds exactly."""
    return rng.standard_normal(shape).astype(np.float32).astype(np.float64)


def make_arrays(name, sizes, scalars, rng, absent=()):
    """Make the arrays of a call, by name, in float64; those in `absent` are None."""
    arrays = {}
    for row in rows(getattr(ops, name)):
        shape = tuple(axis_size(axis, sizes) for axis in row.axes)
        written = row.mode == "writes" or (
            row.mode == "accumulates" and not scalars.get("accumulate")
        )
        if row.name in absent:
            arrays[row.name] = None
        elif row.kind == "i32":
            largest = sizes["Vp"] if op_file(name) == "encoder" else sizes["V"]
            arrays[row.name] = rng.integers(0, largest, shape, np.int32)
        elif written:
            arrays[row.name] = np.full(shape, np.nan)
        elif row.mode in ("adds", "accumulates"):
            arrays[row.name] = np.ones(shape)
        else:
            arrays[row.name] = draw(shape, rng)
    _relate(name, arrays, scalars)
    return arrays


def _relate(name, arrays, scalars):
    """Bring inputs that a forward pass made into agreement, and weights to their usual size."""
    if "weight" in arrays and op_file(name) == "matmul":
        arrays["weight"] /= np.sqrt(arrays["weight"].shape[1])
    if op_file(name) == "classifier":
        arrays["wte"] /= np.sqrt(arrays["wte"].shape[1])
    if op_file(name) == "layernorm":  # no row of near equals, which nothing normalizes well
        inp = arrays["inp1" if "inp1" in arrays else "inp"]
        inp[..., ::2] += 8
    if name == "layernorm_backward":
        unused = np.empty_like(arrays["inp"])
        a = (arrays["mean"], arrays["rstd"], arrays["inp"], arrays["weight"], None)
        ops.layernorm_forward(unused, *a)
    elif name == "attention_backward":
        a = (arrays["out"], arrays["lse"], arrays["qkv"])
        ops.attention_forward(*a, NH=scalars["NH"], bf16=scalars.get("bf16", False))
    elif name == "crossentropy_softmax_backward":
        ops.softmax_forward(arrays["probs"], arrays["probs"].copy(), V=scalars["V"])
    elif name == "adamw":
        np.square(arrays["v"], out=arrays["v"])
        if arrays["outcome"] is not None:  # a norm beside which max_norm is not about the same
            arrays["outcome"][1] = 1 + arrays["outcome"][1] ** 2
    round_arrays(arrays)


def round_arrays(arrays):
    """Round to numbers that float32 holds exactly, in place."""
    for array in arrays.values():
        if array is not None and array.dtype == np.float64:
            array[...] = array.astype(np.float32)


AROUND = 64  # elements before and behind each array, which no op may touch
SENTINEL = 77  # what they hold


def call(module, name, arrays, scalars, dtype, offset=0):
    """Call an op of a backend on copies of `arrays`; give all of them after the call, by name.

    offset  moves the copies in memory by so many elements, to vary their alignment

    Checks that arrays that are only read stay as they are, and so does the memory around each.
    """
    table, start = rows(getattr(ops, name)), AROUND + offset
    copies, blocks, before, after = dict.fromkeys(arrays), {}, {}, {}
    for key, array in arrays.items():
        if array is not None:
            before[key] = array.astype(array.dtype if array.dtype == np.int32 else dtype)
            blocks[key] = _block(module, before[key], start)
            copies[key] = module.view(blocks[key], start, array.shape)
    assert getattr(module, name)(*copies.values(), **scalars) is None
    module.sync()
    for key, block in blocks.items():
        host, stop = np.asarray(module.download(block)), start + before[key].size
        after[key] = host[start:stop].reshape(before[key].shape)
        around = np.concatenate([host[:start], host[stop:]])
        assert (around == SENTINEL).all(), f"{name} wrote outside {key}"
    for row in table:
        if row.mode == "reads" and row.name in after:
            same = np.array_equal(before[row.name], after[row.name], equal_nan=True)
            assert same, f"{name} changed {row.name}, which it only reads"
    return {r.name: after[r.name] for r in table if r.mode != "reads" and r.name in after}


def _block(module, array, start):
    """Make a block of the backend with `array` at element `start` and sentinels around."""
    host = np.full(start + array.size + AROUND, SENTINEL, array.dtype)
    host[start : start + array.size] = array.reshape(-1)
    block = module.alloc(host.shape, str(host.dtype))
    module.upload(block, host)
    return block


def all_calls(name, rng, sizes=None, backend=None):
    """Go through sizes, scalars and optional arrays; give (text, arrays, scalars) of each call.

    backend  leave out what it does not take: on webgpu, bfloat16
    """
    for s, absent in itertools.product(sizes or sizes_of(name), presences_of(name)):
        for scalars in scalars_of(name, s):
            if scalars.get("bf16") and backend is not None and backend.name == "webgpu":
                continue
            without = f" without {', '.join(absent)}" if absent else ""
            arrays = make_arrays(name, s, scalars, rng, absent)
            yield f"{name} {s} {scalars}{without}", arrays, scalars
