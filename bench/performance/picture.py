"""docs/performance.svg: a step of each workload as its parts, beside the floor and the peers."""

import matplotlib

from bench.performance.records import OURS
from llmpy.bench.peer import MODES
from llmpy.bench.turns import median_of
from llmpy.bench.workloads import WORKLOADS

# part -> its ops by the beginning of their names, and its colour
PARTS = {
    "matmul": (("matmul",), "#2f6db5"),
    "attention": (("attention",), "#5aa5d6"),
    "classifier": (("classifier", "logits", "softmax", "crossentropy"), "#8e6bb8"),
    "LayerNorm, GELU, embeddings": (
        ("layernorm", "residual", "gelu", "encoder", "zero"),
        "#3f9d74",
    ),
    "AdamW, norm": (("adamw", "global_norm", "mean_loss"), "#d9a13b"),
    "Python": ((), "#b0483f"),
}
PEER_COLOUR, INK = "#b9bdc4", "#22262b"
WIDEST = 2.2  # the axis ends at so many times the longest step of ours; longer bars are cut
SHOWN = [name for name in WORKLOADS if name != "124m-t256"]


def parts_of(profile, step_s):
    """Give the seconds of each part, so that they sum up to a step of `step_s`."""
    scale = step_s / profile["step_s"]
    parts = dict.fromkeys(PARTS, 0.0)
    for op in profile["ops"]:
        part = next(
            (name for name, (starts, _) in PARTS.items() if op["op"].startswith(starts)), "Python"
        )
        parts[part] += op["seconds"] * scale
    parts["Python"] += profile["rest_s"] * scale
    return parts


def bars(records, name):
    """Give (label, seconds, parts or None, floor or None) of each bar of a workload."""
    found = []
    for dtype in records.dtypes():
        result = records.result(name, dtype)
        if result is None:
            continue
        parts = result.profile and parts_of(result.profile, result.median_s)
        found.append((f"{OURS} {dtype}", result.median_s, parts, result.floor_s))
        for kind in MODES:
            theirs = records.best(name, dtype, kind)
            if theirs:
                found.append((f"{theirs[0].peer} {dtype}", median_of(theirs), None, None))
    return found


def write_picture(records, path):
    """Draw the bars of all workloads into an SVG whose text is text."""
    with matplotlib.rc_context({
        "svg.fonttype": "none", "svg.hashsalt": "llmpy", "font.family": "sans-serif",
        "font.size": 8, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK,
        "ytick.color": INK, "axes.edgecolor": INK,
    }):  # fmt: skip
        figure = draw(records)
        figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def draw(records):
    """Make the figure: white underneath, so that a dark page shows it, too."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [(name, found) for name in SHOWN if (found := bars(records, name))]
    heights = [len(found) + 1 for _, found in shown]
    figure = Figure(figsize=(7.6, 0.23 * sum(heights) + 0.8), layout="constrained")
    axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (name, found) in zip(axes, shown, strict=True):
        draw_workload(ax, name, found)
    handles = [Patch(color=colour, label=part) for part, (_, colour) in PARTS.items()]
    handles += [Patch(color=PEER_COLOUR, label="peer"), Line2D([], [], color=INK, label="floor")]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False)
    return figure


def draw_workload(ax, name, found):
    """Draw the bars of one workload, from the top down."""
    ours = [taken for _, taken, _, floor in found if floor is not None]
    end = min(WIDEST * max(ours), 1.12 * max(taken for _, taken, _, _ in found))
    unit, per_s = ("s", 1) if end >= 1 else ("ms", 1000)
    for y, (_, taken, parts, floor) in enumerate(found):
        left = 0.0
        for part, length in (parts or {}).items():
            ax.barh(y, length * per_s, left=left * per_s, color=PARTS[part][1], height=0.72)
            left += length
        if not parts:
            ax.barh(y, min(taken, end) * per_s, color=PEER_COLOUR, height=0.72)
        if floor is not None:
            for colour, width in (("white", 3.2), (INK, 1.6)):
                at = [floor * per_s] * 2
                ax.plot(at, [y - 0.45, y + 0.45], color=colour, linewidth=width)
        told = f" {taken * per_s:.3g} {unit}"
        if taken < 0.88 * end:
            ax.text(taken * per_s, y, told, va="center")
        else:
            ax.text(end * per_s, y, told + " ", va="center", ha="right", color=INK)
    ax.set_yticks(range(len(found)), [label for label, *_ in found])
    ax.set_ylim(len(found) - 0.4, -0.6)
    ax.set_xlim(0, end * per_s)
    ax.set_title(f"{name}, {unit} a step", loc="left", fontsize=9)
    ax.tick_params(length=2)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
