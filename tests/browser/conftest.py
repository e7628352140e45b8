"""Dawn, the WebGPU of Chromium, in the place of wgpu. Its compiler of WGSL is Tint."""

import os
import sys

import pytest


@pytest.fixture(scope="session")
def device():
    """Open a device of Dawn's that writes down what it is told, on SwiftShader unless told else."""
    os.environ.setdefault("VK_DRIVER_FILES", "/usr/lib/chromium/vk_swiftshader_icd.json")
    import wgpudawn

    sys.modules["wgpu"] = wgpudawn
    from llmpy import webgpu

    from .recording import Recorder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webgpu, "Device", Recorder)
        return webgpu.open_device(portable=True)
