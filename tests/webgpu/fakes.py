"""Adapters and a wgpu that need no GPU."""

from types import SimpleNamespace

from llmpy.webgpu.limits import PORTABLE

GB = 10**9


def adapter(device="GPU", kind="DiscreteGPU", api="Vulkan", *, features=(), **limits):
    """Make an adapter; `max_buffer_size=1` changes that limit."""
    own = {name.replace("_", "-"): value for name, value in limits.items()}
    return SimpleNamespace(
        info={
            "device": device, "adapter_type": kind, "backend_type": api, "vendor": "maker",
            "description": "1.2",
        },
        limits={
            **PORTABLE, "max-buffer-size": 4 * GB, "max-storage-buffer-binding-size": 2 * GB, **own,
        },
        features=set(features),
    )  # fmt: skip


def wgpu_of(*adapters):
    """Give a function in the place of import_wgpu."""

    def enumerate_adapters_sync():
        if adapters and isinstance(adapters[0], Exception):
            raise adapters[0]
        return adapters

    gpu = SimpleNamespace(enumerate_adapters_sync=enumerate_adapters_sync)
    return lambda: SimpleNamespace(gpu=gpu)


LLVMPIPE = adapter("llvmpipe (LLVM 15)", "CPU", features=["shader-f16", "clip-distances"])
LLVMPIPE_GL = adapter("llvmpipe (LLVM 15)", "CPU", "OpenGL")
DISCRETE = adapter("Big 40")
DISCRETE_GL = adapter("Big 40/PCIe/SSE2", api="OpenGL")
DISCRETE_D3D = adapter("Big 40", api="D3D12")
SECOND = adapter("Big 4090")
INTEGRATED = adapter("Little", "IntegratedGPU")
