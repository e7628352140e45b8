"""The GPUs of this machine, through wgpu-py.

An adapter is a device as one driver offers it, so that a machine may list one GPU several times:
Vulkan and OpenGL on Linux, D3D12 and Vulkan on Windows. OpenGL is left out where the same device
is there otherwise. A software adapter computes on the CPU; llmpy uses one only where it is asked
for by name, by index, or as the only one there is.
"""

import os
from typing import Any

from ..errors import BackendError, UsageError

INSTALL = 'pip install "llmpy[gpu]"'
SOFTWARE = "CPU"  # wgpu's word for the type of an adapter that computes on the CPU


def import_wgpu() -> Any:
    """Import wgpu. Raises BackendError where it is not installed or has no library here."""
    # without it, Mesa complains on standard error at each start
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")
    try:
        import wgpu
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendError(f"webgpu: wgpu is not to be had ({error}). Run: {INSTALL}") from None
    return wgpu


def list_adapters() -> list[Any]:
    """Give all adapters, in the order of their indices."""
    wgpu = import_wgpu()
    try:
        found = list(wgpu.gpu.enumerate_adapters_sync())
    except Exception as error:
        raise BackendError(f"webgpu: adapters cannot be listed: {first_line(error)}") from None
    direct = {a.info["device"] for a in found if a.info["backend_type"] != "OpenGL"}
    return [
        a for a in found if a.info["backend_type"] != "OpenGL" or a.info["device"] not in direct
    ]


def is_software(adapter: Any) -> bool:
    """Tell whether an adapter computes on the CPU."""
    return str(adapter.info["adapter_type"]) == SOFTWARE


def choose_adapter(wanted: str | None) -> Any:
    """Give the adapter that --adapter names, by index or by a part of its name; else the best.

    Best is discrete, then integrated, then any hardware, then software. Raises BackendError where
    there is none, UsageError where none or several are meant.
    """
    adapters = list_adapters()
    if not adapters:
        raise BackendError(
            "webgpu: no adapter found. Install a driver (on Linux one for Vulkan),"
            " or use --backend cpu."
        )
    if wanted is None:
        return min(adapters, key=_rank)
    names = ", ".join(f"{i} {adapter_name(a)}" for i, a in enumerate(adapters))
    if wanted.isdecimal():
        if int(wanted) < len(adapters):
            return adapters[int(wanted)]
        raise UsageError(f"--adapter is {wanted}, expected one of: {names}")
    meant = [a for a in adapters if wanted.lower() in adapter_name(a).lower()]
    if len(meant) != 1:
        what = "no adapter's name has that" if not meant else "several adapters' names have that"
        raise UsageError(f"--adapter is {wanted!r}, expected one of: {names}; {what}")
    return meant[0]


def adapter_name(adapter: Any) -> str:
    """Name an adapter: the device, and the API that its driver speaks."""
    return f"{adapter.info['device']} ({adapter.info['backend_type']})"


def describe_adapter(adapter: Any) -> str:
    """Say in one line what an adapter is, and loudly when it is software."""
    info = adapter.info
    driver = f", driver {info['description']}" if info["description"] else ""
    kind = str(info["adapter_type"])
    loud = ", SOFTWARE: the CPU plays GPU, slowly" if is_software(adapter) else f", {kind}"
    return f"{info['device']}, {info['backend_type']}{driver}{loud}"


def first_line(error: BaseException) -> str:
    """Give what wgpu's message says, which takes several lines, in one."""
    words = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in words if line not in ("Validation Error", "Caused by:")]
    return "; ".join(causes) or type(error).__name__


def _rank(adapter: Any) -> int:
    order = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", SOFTWARE)
    kind = str(adapter.info["adapter_type"])
    return order.index(kind) if kind in order else order.index("Unknown")
