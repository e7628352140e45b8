"""The GPUs of this machine, through wgpu-py.

An adapter is a device as one driver offers it, so that a machine may list one GPU several times:
Vulkan and OpenGL on Linux, D3D12 and Vulkan on Windows. OpenGL, which has no better name for the
same device, is left out where hardware, or software, is there otherwise.

A software adapter computes on the CPU; llmpy uses one only where it is asked for by name, by index,
or as the only one there is.
"""

import glob
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from ..errors import BackendError, UsageError
from .limits import asked_limits, shortfall
from .messages import in_one_line, keep_messages

INSTALL = 'pip install "llmpy[gpu]"'
NO_ADAPTER = (
    "webgpu: no adapter found. Install the GPU's driver, on Linux that of Vulkan, or use"
    " --backend cpu."
)
KINDS = {  # in wgpu's words and ours, the best first
    "DiscreteGPU": "discrete GPU",
    "IntegratedGPU": "integrated GPU",
    "VirtualGPU": "virtual GPU",
    "Unknown": "type unknown",
    "CPU": "CPU",
}
SOFTWARE = ("llvmpipe", "swiftshader", "softpipe", "basic render")  # whatever they call themselves

# how Linux shows a GPU's driver, also within a container or WSL, or on Android
GPU_FILES = (
    "/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/nvhost*", "/dev/dxg", "/dev/kgsl-3d0",
    "/dev/mali0",
)  # fmt: skip

# of what an adapter can do, what is of interest to kernels
FEATURES = ("shader-f16", "subgroup", "timestamp-query")


def import_wgpu() -> Any:
    """Import wgpu. Raises BackendError where it is not installed or has no library here."""
    if not os.environ.get("XDG_RUNTIME_DIR"):  # else Mesa complains on stderr at each start
        os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        import wgpu
    except ModuleNotFoundError as error:
        if error.name != "wgpu":
            raise BackendError(f"webgpu: wgpu cannot be loaded: {error}") from None
        raise BackendError(f"webgpu: wgpu is not installed. Run: {INSTALL}") from None
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendError(f"webgpu: wgpu cannot be loaded: {in_one_line(error)}") from None
    keep_messages()
    return wgpu


def list_adapters() -> list[Any]:
    """Give all adapters, in the order of their indices. Raises BackendError without wgpu."""
    wgpu = import_wgpu()
    try:
        found = list(wgpu.gpu.enumerate_adapters_sync())
    except Exception as error:
        raise BackendError(f"webgpu: adapters cannot be listed: {in_one_line(error)}") from None
    direct = {is_software(a) for a in found if not _is_opengl(a)}
    return [a for a in found if not _is_opengl(a) or is_software(a) not in direct]


def is_software(adapter: Any) -> bool:
    """Tell whether an adapter computes on the CPU."""
    name = adapter.info["device"].lower()
    return adapter.info["adapter_type"] == "CPU" or any(word in name for word in SOFTWARE)


def shares_memory(adapter: Any) -> bool:
    """Tell whether an adapter's memory is that of the machine, as far as it says."""
    return is_software(adapter) or adapter.info["adapter_type"] == "IntegratedGPU"


def choose_adapter(wanted: str | None = None) -> Any:
    """Give the adapter that --adapter names, by index or by a part of its name; else the best.

    Best is discrete, then integrated, then any hardware, then software. Raises BackendError where
    there is none, UsageError where none or several are meant.
    """
    adapters = list_adapters()
    if not adapters:
        raise BackendError(NO_ADAPTER)
    return best(adapters if wanted is None else named(adapters, wanted))


def named(adapters: Sequence[Any], wanted: str) -> list[Any]:
    """Give the adapters that are meant: one device, if several by different drivers."""
    if wanted.isdecimal() and int(wanted) < len(adapters):
        return [adapters[int(wanted)]]
    names = [adapter_name(a).lower() for a in adapters]
    devices = [a.info["device"].lower() for a in adapters]
    word = wanted.lower()
    for match in ([d == word for d in devices], [word in n for n in names]):
        meant = [a for a, matches in zip(adapters, match, strict=True) if matches]
        if meant:
            break
    if len({a.info["device"] for a in meant}) == 1:
        return meant
    what = "" if not meant else ", which name several"
    choice = ", ".join(f"{i} {adapter_name(a)}" for i, a in enumerate(adapters))
    raise UsageError(f"--adapter is {wanted}{what}, expected one of: {choice}")


def best(adapters: Sequence[Any]) -> Any:
    """Give the adapter to prefer, the first of several alike."""
    kinds = list(KINDS)
    return min(adapters, key=lambda a: (is_software(a), kinds.index(_kind(a))))


def automatic(wanted: str | None, largest: int) -> tuple[Any, str]:
    """Give the adapter that --backend auto takes, or None, and in a few words why not.

    wanted   what --adapter names, if anything
    largest  bytes of the largest tensor

    Never a software adapter. Raises BackendError or UsageError only for one that is named.
    """
    if wanted is not None:
        candidates = [choose_adapter(wanted)]
    elif sys.platform.startswith("linux") and not any(map(glob.glob, GPU_FILES)):
        return None, "no hardware GPU found"  # to list adapters takes a second
    else:
        try:
            candidates = list_adapters()
        except BackendError as error:
            return None, str(error).removeprefix("webgpu: ").split(". ")[0]
    hardware = [a for a in candidates if not is_software(a)]
    if not hardware:
        if not candidates:
            return None, "no hardware GPU found"
        return None, f"{adapter_name(candidates[0])} is software"
    fit = [a for a in hardware if misfit(a, largest) is None]
    if fit:
        return best(fit), ""
    first = best(hardware)
    return None, f"{adapter_name(first)}: {misfit(first, largest)}"


def misfit(adapter: Any, largest: int = 0) -> str | None:
    """Say why an adapter cannot be used for tensors of so many bytes; None if it can."""
    most = asked_limits(adapter)["max-buffer-size"]
    if largest > most:
        return f"buffers of {most:,} bytes, expected {largest:,}"
    return shortfall(adapter)


def adapter_name(adapter: Any) -> str:
    """Name an adapter: the device, and the API that its driver speaks."""
    return f"{adapter.info['device']} ({adapter.info['backend_type']})"


def describe_adapter(adapter: Any) -> str:
    """Say in one line what an adapter is, and loudly when it is software."""
    driver = _driver(adapter)
    told = [adapter.info["device"], adapter.info["backend_type"], driver and f"driver {driver}"]
    return ", ".join(word for word in (*told, _kind_in_words(adapter)) if word)


def adapter_lines(index: int, adapter: Any) -> list[str]:
    """Say in lines what an adapter is: its name first, then a name and a value each."""
    limits = adapter.limits
    rows = {
        "API": adapter.info["backend_type"],
        "driver": _driver(adapter) or "not told",
        "type": _kind_in_words(adapter),
        "buffer": f"up to {limits['max-buffer-size']:,} bytes",
        "binding": f"up to {limits['max-storage-buffer-binding-size']:,} bytes,"
        f" {limits['max-storage-buffers-per-shader-stage']} for a kernel",
        "workgroup": f"up to {limits['max-compute-invocations-per-workgroup']:,} threads,"
        f" {limits['max-compute-workgroup-storage-size']:,} bytes of memory",
        "features": ", ".join(f for f in FEATURES if f in adapter.features) or "none",
    }
    lack = shortfall(adapter)
    if lack is not None:
        rows["unusable"] = lack
    first = f"{index}  {adapter.info['device']}"
    return [first, *(f"   {name:9}  {value}" for name, value in rows.items())]


def _driver(adapter: Any) -> str:
    words = (adapter.info["vendor"], adapter.info["description"])
    return " ".join(word for word in words if word)


def _kind(adapter: Any) -> str:
    kind = str(adapter.info["adapter_type"])
    return kind if kind in KINDS else "Unknown"


def _kind_in_words(adapter: Any) -> str:
    loud = ": SOFTWARE, the CPU plays GPU, slowly" if is_software(adapter) else ""
    return KINDS[_kind(adapter)] + loud


def _is_opengl(adapter: Any) -> bool:
    return str(adapter.info["backend_type"]).startswith("OpenGL")
