"""docs/performance.md: the tables, in words that hold whatever was measured."""

from bench.performance.picture import write_picture
from bench.performance.records import ONE_THREAD, OURS
from llmpy.bench.peer import MODES
from llmpy.bench.turns import median_of
from llmpy.bench.workloads import WORKLOADS

NAMES = {"torch": "PyTorch", "jax": "JAX"}
GROWTH = ("124m-t64", "124m-t256", "124m-t1024")
SHOWN_OPS = "124m-t64"


def write_page(records, folder):
    """Write page and picture into a folder; give their paths."""
    page, picture = folder / "performance.md", folder / "performance.svg"
    write_picture(records, picture)
    page.write_text(render(records), encoding="ascii")
    return [page, picture]


def render(records):
    """Give the page."""
    machine = records.machine()
    parts = [
        INTRODUCTION.format(date=machine["date"]),
        machine_table(records, machine),
        FLOOR,
        limits_table(records),
        STEPS,
        steps_table(records),
        PICTURE,
        ops_section(records),
        threads_section(records),
        growth_section(records),
        failures_section(records),
        MEASURED,
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


INTRODUCTION = """
# Performance

Whole training steps, llmpy beside PyTorch and JAX on the same machine: forward, backward, clip,
AdamW, on random tokens. Machines differ, and one machine from hour to hour: ratios count, and the
share of what this machine can do. Measured on {date}; `bench/performance/` wrote this page from
`docs/performance.jsonl`, which has each run.
"""

FLOOR = """
## The floor

No step is shorter than its matrix products at the peak of the chip and AdamW's traffic at the
memory's bandwidth:

```text
operations = 3 * (2 B T (12 L C^2 + Vp C) + 2 B T^2 C L)
floor      = operations / peak + 28 bytes * parameters / bandwidth
```

Both limits are measured: the peak is that of the inner kernel on data in the first cache, on all
threads at once; the bandwidth, bytes read plus bytes written, that of a pass over four arrays as
AdamW's. Where the chip has no instruction for bfloat16, its peak is that of float32.
"""

STEPS = """
## A step

A ratio is the peer's time over llmpy's: above 1, llmpy is faster. Of PyTorch's modes, eager and
compile, the faster counts. In bfloat16, PyTorch runs under autocast, and JAX's and llmpy's operands
of matrix products are rounded. Memory is the most that the process held, in 1e9 bytes.
"""

PICTURE = """
![A step of each workload: its parts, the floor, and the peers](performance.svg)

The parts are those of a profiled step, scaled to the median of the others; the line is the floor.
"""

MEASURED = """
## How it was measured

```sh
python bench/performance --torch-python PYTHON --jax-python PYTHON [--quick]
python bench/performance --render
```

Each run is a process of its own: some steps to warm up, then the timed ones, whose median is the
run's. llmpy and its peers take turns, and the median of the runs counts. A mode of a peer that is
more than a tenth slower than another in the first turn is not run again. The peers' programs are
[bench/peer_torch.py](../bench/peer_torch.py) and [bench/peer_jax.py](../bench/peer_jax.py); one
workload alone is `llmpy bench --workload NAME --peer torch --peer-python PYTHON`.
"""


def markdown(head, rows):
    """Give a table; the first two columns are words."""
    lines = [head, ["---" if i < 2 else "---:" for i in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def seconds(value):
    """Give a time with three digits and its unit."""
    if value is None:
        return "-"
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def gigabytes(value):
    """Give a size in GB, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def machine_table(records, machine):
    """Tell what it was measured on."""
    peers = dict.fromkeys(
        run["peer"].rsplit(" ", run["peer"].count(" ") - 1)[0]  # without the mode
        for run in records.find("run")
        if not run["who"].startswith(OURS)
    )
    versions = [f"{name} {version}" for name, version in machine["versions"].items()]
    memory = machine["memory_gb"]
    rows = [
        ("processor", machine["cpu"]),
        ("cores", f"{machine['cores']}"),
        ("features", ", ".join(machine["features"]) or "none of note"),
        ("caches", ", ".join(machine["caches"]) or "not told"),
        ("memory", "not told" if memory is None else f"{memory} GB"),
        ("register tile", machine["tile"]),
        ("system", machine["system"]),
        ("versions", ", ".join([*versions, *peers])),
    ]
    return markdown(["machine", ""], rows)


def limits_table(records):
    """Tell the limits of each dtype and number of threads."""
    rows = []
    for dtype in records.dtypes():
        for threads in (None, 1):
            if records.find("limits", dtype=dtype, threads=threads):
                limits = records.limits(dtype, threads)
                rows.append([
                    "all" if threads is None else threads, dtype,
                    f"{limits.peak_gflops:.0f}", f"{limits.bandwidth_gbs:.1f}",
                ])  # fmt: skip
    return markdown(["threads", "dtype", "peak, GFLOP/s", "bandwidth, GB/s"], rows)


def results(records, names):
    """Give (name, dtype, result) of what was run."""
    for name in names:
        for dtype in records.dtypes():
            result = records.result(name, dtype)
            if result is not None:
                yield name, dtype, result


def steps_table(records):
    """Tell each workload, beside its peers."""
    head = ["workload", "dtype", "runs", "llmpy", "tokens/s", "GFLOP/s", "floor", "share", "GB"]
    kinds = [kind for kind in MODES if any(r["who"].startswith(kind) for r in records.find("run"))]
    for kind in kinds:
        head += [NAMES[kind], "ratio", "GB"]
    rows = []
    for name, dtype, result in results(records, WORKLOADS):
        row = [
            name, dtype, len(records.runs(name, dtype, OURS)), seconds(result.median_s),
            f"{result.tokens_per_s:.0f}", f"{result.gflops:.0f}", seconds(result.floor_s),
            f"{result.floor_share:.0%}", gigabytes(result.peak_rss_gb),
        ]  # fmt: skip
        for kind in kinds:
            row += peer_cells(records, name, dtype, kind)
        rows.append(row)
    return markdown(head, rows)


def peer_cells(records, name, dtype, kind):
    """Give a peer's time, the ratio and its memory."""
    beside = records.result(name, dtype, kind)
    if beside.ratio is None:
        failed = records.failures(name, dtype, [f"{kind} {mode}" for mode in MODES[kind]])
        cut = any(failure["cut"] for failure in failed)
        return ["cut" if cut else "failed" if failed else "-", "-", "-"]
    mode = beside.peer.split()[2:]
    told = seconds(beside.peer_median_s) + (f" ({mode[0]})" if mode else "")
    return [told, f"{beside.ratio:.2f}", gigabytes(beside.peer_peak_rss_gb)]


def ops_section(records):
    """Tell the profile of a workload."""
    parts = []
    for name, dtype, result in results(records, [SHOWN_OPS]):
        profile = result.profile
        if profile is None:
            continue
        rows = [
            [
                op["op"], "GFLOP/s" if op["limit"] == "peak" else "GB/s", op["calls"],
                f"{1e3 * op['seconds']:.1f}", f"{op['seconds'] / profile['step_s']:.1%}",
                f"{op['rate']:.1f}", f"{op['limit_share']:.0%}",
            ]
            for op in profile["ops"]
        ]  # fmt: skip
        rest = profile["rest_s"]
        share = f"{rest / profile['step_s']:.1%}"
        rows.append(["Python between them", "", "", f"{1e3 * rest:.1f}", share, "", ""])
        head = ["op", "rate in", "calls", "ms", "of the step", "rate", "of the limit"]
        parts += [f"`{name}` in {dtype}:", markdown(head, rows)]
    return "\n\n".join(["## Where the time goes", OPS.strip(), *parts]) if parts else ""


OPS = """
Each op beside what limits it: the peak for what multiplies matrices, the bandwidth for the rest.
Small arrays stay in caches, so that an op may come out above the bandwidth.
"""


def threads_section(records):
    """Tell one thread beside all."""
    rows = []
    for name, dtype, result in results(records, WORKLOADS):
        single = records.runs(name, dtype, ONE_THREAD)
        if single:
            one, every = median_of(single), result.median_s
            rows.append([name, dtype, seconds(one), seconds(every), f"{one / every:.2f}"])
            threads = result.threads
    if not rows:
        return ""
    head = ["workload", "dtype", "1 thread", f"{threads} threads", "times as fast"]
    return "## Threads\n\nThe result has the same bits.\n\n" + markdown(head, rows)


def growth_section(records):
    """Tell how cost grows with T."""
    rows = [
        [
            WORKLOADS[name].T, dtype, seconds(result.median_s), f"{result.tokens_per_s:.0f}",
            f"{result.floor_share:.0%}", gigabytes(result.peak_rss_gb),
        ]
        for name, dtype, result in results(records, GROWTH)
    ]  # fmt: skip
    head = ["T", "dtype", "step", "tokens/s", "share of the floor", "GB"]
    text = "## How cost grows\n\nGPT-2 124M, B 4: attention's operations grow as T^2, memory as T."
    return f"{text}\n\n{markdown(head, rows)}" if rows else ""


def failures_section(records):
    """Tell what has no time, and why."""
    told = [
        f"- `{failed['workload']}` in {failed['dtype']}: {failed['reason']}."
        for failed in records.find("failure")
        if not records.runs(failed["workload"], failed["dtype"], failed["who"])
    ]
    return "\n".join([CUT.strip(), "", *dict.fromkeys(told)]) if told else ""


CUT = """
## What was cut

What was ended on a workload was not tried on larger ones in the same dtype: there it is cut, too.
"""
