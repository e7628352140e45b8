"""The ops in WGSL, on any GPU, in float32: the backend "webgpu"."""

from .adapters import choose_adapter
from .device import Device
from .memory import allocate, download, upload, view, zero
import math

_device = None


def open_device(adapter=None, portable=False):
    global _device
    _device = Device(choose_adapter(adapter), portable)
    return _device


def alloc(shape, dtype="float32"):
    a = allocate(_device, [math.prod(shape)], dtype, apart=True)
    return view(a, 0, shape)
