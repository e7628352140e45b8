"""What is asked of a device.

Every kernel is written for the limits that each WebGPU device has (PORTABLE). What is asked beyond
them is larger buffers and bindings, up to what the adapter gives.
"""

from typing import Any

# what every device has, by the specification; in bytes, where that is what is counted
PORTABLE = {
    "max-storage-buffer-binding-size": 128 << 20,
    "max-buffer-size": 256 << 20,
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-workgroup-storage-size": 16 << 10,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroups-per-dimension": 65_535,
}
RAISED = ("max-storage-buffer-binding-size", "max-buffer-size")
LARGEST_BUFFER = 2**32 - 4  # so that elements and bytes are counted in u32


def asked_limits(adapter: Any, portable: bool = False) -> dict[str, int]:
    """Give the limits to ask of an adapter: those of every device, or with larger buffers."""
    limits = dict(PORTABLE)
    if not portable:
        for name in RAISED:
            limits[name] = max(PORTABLE[name], min(adapter.limits[name], LARGEST_BUFFER))
    return limits


def shortfall(adapter: Any) -> str | None:
    """Say which limit of an adapter is too low for the kernels; None if none is."""
    for name, want in PORTABLE.items():
        if adapter.limits[name] < want:
            return f"{name} is {adapter.limits[name]:,}, expected at least {want:,}"
    return None
