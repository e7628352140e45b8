"""The tensors of GPT-2, once: name -> shape, in the order of llm.c's files.

    B         sequences in a micro-batch
    T, maxT   tokens in a sequence; its largest
    C         channels
    L         layers
    NH, HS    heads; channels of a head, C // NH
    V, Vp     vocabulary; rounded up to a multiple of 128
    OC        output channels of a matmul
    N         elements of a flat view

A tensor with axis L holds all layers together. All tensors of a table lie in one block of memory,
one behind the other, so that a checkpoint is one read and an optimizer step is one pass; but of
those that the passes make and use up, some take turns in the same place: see SHARED.
"""

import math
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

# fmt: off
PARAMS: dict[str, tuple[str, ...]] = {
    "wte":      ("Vp", "C"),        # token embedding, and the classifier's weight (tied)
    "wpe":      ("maxT", "C"),      # position embedding
    "ln1w":     ("L", "C"),
    "ln1b":     ("L", "C"),
    "qkvw":     ("L", "3C", "C"),
    "qkvb":     ("L", "3C"),
    "attprojw": ("L", "C", "C"),
    "attprojb": ("L", "C"),
    "ln2w":     ("L", "C"),
    "ln2b":     ("L", "C"),
    "fcw":      ("L", "4C", "C"),
    "fcb":      ("L", "4C"),
    "fcprojw":  ("L", "C", "4C"),
    "fcprojb":  ("L", "C"),
    "lnfw":     ("C",),
    "lnfb":     ("C",),
}

DECAYED = ("wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw")  # 2-D in a layer; same as llm.c

# What the forward pass makes, no (T, T) attention and no logits. Axis L: kept of each layer for the
# backward pass; axis 1: of one layer after the other, and made again.
ACTS: dict[str, tuple[str, ...]] = {
    "encoded":   ("B", "T", "C"),
    "ln1":       ("1", "B", "T", "C"),
    "ln1_mean":  ("L", "B", "T"),
    "ln1_rstd":  ("L", "B", "T"),
    "qkv":       ("L", "B", "T", "3C"),
    "atty":      ("L", "B", "T", "C"),
    "lse":       ("L", "B", "NH", "T"),   # log-sum-exp of each row of the attention scores
    "residual2": ("L", "B", "T", "C"),
    "ln2":       ("1", "B", "T", "C"),
    "ln2_mean":  ("L", "B", "T"),
    "ln2_rstd":  ("L", "B", "T"),
    "fch":       ("L", "B", "T", "4C"),
    "fch_gelu":  ("1", "B", "T", "4C"),  # made again with its derivative
    "residual3": ("L", "B", "T", "C"),
    "lnf":       ("B", "T", "C"),
    "lnf_mean":  ("B", "T"),
    "lnf_rstd":  ("B", "T"),
    "losses":    ("B", "T"),
    "proj":      ("B", "T", "C"),         # attproj, then fcproj
    "dln":       ("B", "T", "C"),         # gradient of lnf, then of ln2 and ln1
    "datty":     ("B", "T", "C"),
}

# what the backward pass needs besides: gradients of activations, of one layer after the other
SCRATCH: dict[str, tuple[str, ...]] = {
    "dresidual": ("B", "T", "C"),
    "dfch":      ("B", "T", "4C"),
    "dqkv":      ("B", "T", "3C"),
}

# What each level of recompute makes again besides. llm.c's level 1 is GELU, its level 2 LayerNorm,
# too; both are made again in any case, so that level 2 is for what takes time: a matrix product.
REMADE = {0: (), 1: (), 2: ("fch",)}

# Tensors that never live together share a place. A line here is a place, with who lives there in
# turn, each from where it is written to where it is last read. In the words of passes.py:
#
#            forward, layer after layer         backward, layer after layer
#   row      proj  attproj    -> residual2      dln   classifier -> lnf, fc -> ln2, qkv -> ln1
#                  fcproj     -> residual3      datty attproj    -> attention
#   wide                                        dfch  fcproj     -> fc
#                                               dqkv  attention  -> qkv
#   ln       ln1   layernorm  -> qkv            ln2   layernorm  -> fc
#            ln2   layernorm  -> fc             ln1   layernorm  -> qkv
#
# A tensor with axis L is kept, and shares nothing.
SHARED = (
    ("proj", "dln", "datty"),
    ("dfch", "dqkv"),
    ("ln1", "ln2"),
)

# what the C program keeps, in its order: for `num_activations`, for teaching and for checking
SEED_ACTS: dict[str, tuple[str, ...]] = {
    "encoded":   ("B", "T", "C"),
    "ln1":       ("L", "B", "T", "C"),
    "ln1_mean":  ("L", "B", "T"),
    "ln1_rstd":  ("L", "B", "T"),
    "qkv":       ("L", "B", "T", "3C"),
    "atty":      ("L", "B", "T", "C"),
    "preatt":    ("L", "B", "NH", "T", "T"),
    "att":       ("L", "B", "NH", "T", "T"),
    "attproj":   ("L", "B", "T", "C"),
    "residual2": ("L", "B", "T", "C"),
    "ln2":       ("L", "B", "T", "C"),
    "ln2_mean":  ("L", "B", "T"),
    "ln2_rstd":  ("L", "B", "T"),
    "fch":       ("L", "B", "T", "4C"),
    "fch_gelu":  ("L", "B", "T", "4C"),
    "fcproj":    ("L", "B", "T", "C"),
    "residual3": ("L", "B", "T", "C"),
    "lnf":       ("B", "T", "C"),
    "lnf_mean":  ("B", "T"),
    "lnf_rstd":  ("B", "T"),
    "logits":    ("B", "T", "Vp"),
    "probs":     ("B", "T", "Vp"),
    "losses":    ("B", "T"),
}
# fmt: on


def acts_table(recompute: int) -> dict[str, tuple[str, ...]]:
    """Give ACTS with what this level makes again held for one layer at a time: axis 1 for L."""
    again = REMADE[recompute]
    return {name: ("1", *axes[1:]) if name in again else axes for name, axes in ACTS.items()}


def axis_size(axis: str, dims: Mapping[str, int]) -> int:
    """Give the size of one axis: `C`, a multiple such as `3C`, or 1."""
    letters = axis.lstrip("0123456789")
    factor = int(axis[: len(axis) - len(letters)] or 1)
    return factor * dims[letters] if letters else factor


def table_shapes(
    table: Mapping[str, tuple[str, ...]], dims: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Give the shape of every tensor of a table."""
    return {name: tuple(axis_size(a, dims) for a in axes) for name, axes in table.items()}


def table_places(
    table: Mapping[str, tuple[str, ...]], dims: Mapping[str, int]
) -> tuple[dict[str, int], list[int]]:
    """Give where in a block each tensor of a table begins, and the places of it, in elements.

    A place is a tensor, or one layer of it if it has all, or what several share. One lies behind
    the other in the table's order; their sizes sum up to the block's.
    """
    offsets: dict[str, int] = {}
    sizes: list[int] = []
    end = 0
    for tenants, size in _tenancies(table, dims):
        offsets |= dict.fromkeys(tenants, end)
        layers = dims["L"] if table[tenants[0]][0] == "L" else 1
        sizes += [size // layers] * layers
        end += size
    return offsets, sizes


def _tenancies(
    table: Mapping[str, tuple[str, ...]], dims: Mapping[str, int]
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Go through the tensors of a table, those that share a place together, with its elements."""
    shapes = table_shapes(table, dims)
    shared = {
        name: tenants
        for tenants in SHARED
        if all(table.get(tenant, ("L",))[0] != "L" for tenant in tenants)
        for name in tenants
    }
    for name in table:
        tenants = shared.get(name, (name,))
        if name == tenants[0]:
            yield tenants, max(math.prod(shapes[tenant]) for tenant in tenants)


def table_size(table: Mapping[str, tuple[str, ...]], dims: Mapping[str, int]) -> int:
    """Count the elements of the block that holds a table."""
    return sum(size for _, size in _tenancies(table, dims))


class Tensors:
    """The tensors of a table as views of one block of a backend's memory.

    >>> grads = Tensors(cpu, PARAMS, config.dims)
    >>> grads.wte.shape, grads.layer(0).qkvw.shape
    ((50304, 768), (2304, 768))
    """

    def __init__(
        self,
        backend: ModuleType | Any,
        table: Mapping[str, tuple[str, ...]],
        dims: Mapping[str, int],
        dtype: str = "float32",
        memory: Any = None,
    ) -> None:
        """Allocate the block, or take `memory`, a block of exactly the table's places."""
        self.shapes = table_shapes(table, dims)
        self.offsets, sizes = table_places(table, dims)
        self.memory = backend.alloc_places(sizes, dtype) if memory is None else memory
        self._layers: list[SimpleNamespace] = []
        for l in range(dims["L"]):
            views = {}
            for name, axes in table.items():
                if axes[0] in ("L", "1"):
                    shape = self.shapes[name][1:]
                    behind = l * math.prod(shape) if axes[0] == "L" else 0
                    views[name] = backend.view(self.memory, self.offsets[name] + behind, shape)
            self._layers.append(SimpleNamespace(**views))
        for name, shape in self.shapes.items():
            setattr(self, name, backend.view(self.memory, self.offsets[name], shape))

    def layer(self, l: int) -> SimpleNamespace:
        """Give the views of layer `l`, by name, without the axis L or 1."""
        return self._layers[l]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Go through names and views in the table's order."""
        return ((name, getattr(self, name)) for name in self.shapes)

    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """Go through names and where each lies in `memory`: its first element and its end."""
        for name, shape in self.shapes.items():
            yield name, self.offsets[name], self.offsets[name] + math.prod(shape)

    def __getattr__(self, name: str) -> Any:  # for mypy: the views are set in __init__
        raise AttributeError(f"no tensor is named {name!r}")


def decay_ranges(params: Tensors) -> tuple[tuple[int, int], ...]:
    """Give the element ranges (start, stop) that weight decay shrinks: those of DECAYED."""
    ranges: list[tuple[int, int]] = []
    for name, start, stop in params.ranges():
        if name not in DECAYED:
            continue
        if ranges and ranges[-1][1] == start:
            start = ranges.pop()[0]
        ranges.append((start, stop))
    return tuple(ranges)
