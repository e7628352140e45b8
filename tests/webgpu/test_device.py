"""How the errors of a device are told: with the kernel's name, as exceptions, in one line."""

import logging
import subprocess
import sys
from unittest.mock import MagicMock

import pytest

from llmpy.errors import BackendError
from llmpy.webgpu.device import Device
from llmpy.webgpu.messages import failing, in_one_line, keep_messages, kept

from ..gpu import opened
from .fakes import adapter

MODULE = sys.modules[Device.__module__]  # llmpy.webgpu.device is also a function

SYNTAX = """Validation Error

Caused by:
  In wgpuDeviceCreateShaderModule, label = 'gelu.wgsl'

Shader 'gelu.wgsl' parsing error: expected identifier, found "{"
  \u250c\u2500 wgsl:1:10
  \u2502
1 \u2502 fn main( {
  \u2502          ^ expected identifier

"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            SYNTAX,
            "Shader 'gelu.wgsl' parsing error: expected identifier, found \"{\". line 1, column 10",
        ),
        (
            "Validation Error\n\nCaused by:\n  In wgpuDeviceCreateBuffer, label = 'x'\n"
            "    Not enough memory left.",
            "Not enough memory left. A smaller batch takes less",
        ),
        (
            "Request device failed (3): Validation Error\n\nCaused by:\n  Limit 'a' is low\n",
            "Limit 'a' is low",
        ),
        ("plain", "plain"),
        ("Validation Error\n", "str"),
    ],
)
def test_messages_in_one_line(text, line):
    assert in_one_line(text) == line


def test_what_a_call_raises():
    with pytest.raises(BackendError) as error, failing("gelu.wgsl: gelu_forward"):
        raise RuntimeError(SYNTAX)
    assert str(error.value) == f"webgpu: gelu.wgsl: gelu_forward: {in_one_line(SYNTAX)}"
    assert error.value.__cause__ is None
    with pytest.raises(BackendError, match=r"^as it is$"), failing("x"):
        raise BackendError("as it is")


@pytest.fixture
def log():
    """Log as wgpu-py does, in a function of that name."""
    logger = logging.getLogger("like wgpu")  # which wants to make its own
    keep_messages(logger.name)
    keep_messages(logger.name)
    assert len(logger.handlers) == 1
    kept.take()

    def log_error(text):
        logger.error(text)

    return log_error


def test_what_is_only_logged_is_raised_by_the_call_after(log, capfd):
    with failing("x"):
        logging.getLogger("like wgpu").error("for information")
    log("The WGPU device was lost (Unknown):\nhung")
    with pytest.raises(BackendError) as error, failing("commands from gelu_forward to adamw"):
        pass
    assert str(error.value) == (
        "webgpu: commands from gelu_forward to adamw: The WGPU device was lost (Unknown). hung"
    )
    with failing("x"):
        log("The WGPU device was lost (destroyed):\nDevice lost")
    assert capfd.readouterr().err == ""


# a device, without a GPU


@pytest.fixture
def device(monkeypatch):
    """A device whose wgpu answers to everything."""
    monkeypatch.setattr(MODULE, "import_wgpu", MagicMock())
    gpu = adapter("Big")
    gpu.request_device_sync = MagicMock()
    opened = gpu.request_device_sync.return_value
    opened.create_buffer = lambda size, usage, label: MagicMock(size=size, label=label)
    opened.create_compute_pipeline = lambda label, **_: MagicMock(label=label)
    return Device(gpu)


def test_an_adapter_below_what_every_device_has():
    old = adapter("Old", max_compute_workgroup_storage_size=8192)
    with pytest.raises(BackendError) as error:
        Device(old)
    assert str(error.value) == (
        "webgpu: Old (Vulkan): max-compute-workgroup-storage-size is 8,192, expected at least"
        " 16,384. Use --backend cpu."
    )


def test_an_adapter_that_refuses(monkeypatch):
    monkeypatch.setattr(MODULE, "import_wgpu", MagicMock())
    gpu = adapter("Big")
    gpu.request_device_sync = MagicMock(side_effect=RuntimeError("Request device failed (3): busy"))
    with pytest.raises(BackendError) as error:
        Device(gpu)
    assert str(error.value) == (
        "webgpu: Big (Vulkan) cannot be opened: Request device failed (3): busy"
    )


def run_kernels(device, *entries):
    for entry in entries:
        device.dispatch(device.pipeline("gelu", entry, {}), (), (1, 1, 1))


def test_commands_that_fail_are_named(device):
    run_kernels(device, "gelu_forward", "gelu_backward")
    device.queue.submit = MagicMock(side_effect=RuntimeError("Parent device is lost"))
    with pytest.raises(BackendError) as error:
        device.submit()
    assert str(error.value) == (
        "webgpu: commands from gelu_forward to gelu_backward: Parent device is lost"
    )
    device.copy(None, 0, None, 0, 4)
    with pytest.raises(BackendError, match=r"^webgpu: commands: Parent device is lost$"):
        device.submit()


def test_a_buffer_without_memory_for_it(device):
    device.device.create_buffer = MagicMock(side_effect=RuntimeError("Not enough memory left."))
    with pytest.raises(BackendError) as error:
        device.buffer(12345, "gradients")
    assert str(error.value) == (
        "webgpu: a buffer of 12,345 bytes for gradients: Not enough memory left. A smaller batch"
        " takes less"
    )


def test_writing_that_fails(device):
    device.queue.write_buffer = MagicMock(side_effect=RuntimeError("Parent device is lost"))
    with pytest.raises(BackendError, match=r"^webgpu: writing to nothing: Parent device is lost$"):
        device.write(device.nothing, 0, b"1234")


def test_an_interrupted_reading_leaves_no_mapped_buffer(device):
    """To submit with it once more would end the process."""
    device.wait()
    staged = device._staged
    staged.map_sync = MagicMock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        device.wait()
    assert device._staged is None
    device.wait()
    assert device._staged not in (None, staged)


# on a real one


BAD_KERNEL = """
import sys

from llmpy.errors import BackendError
from llmpy.webgpu import open_device

device = open_device(sys.argv[1])
sys.modules["llmpy.webgpu.device"].kernel_source = lambda stem: "fn main( {"
try:
    device.pipeline("gelu", "gelu_forward", {})
except BackendError as error:
    print(error)
device.clear(device.nothing, 0, 4)
device.device.destroy()
for call in (device.submit, device.wait, lambda: device.buffer(16, "x")):
    try:
        call()
    except BackendError as error:
        print(error)
"""


@pytest.mark.webgpu
def test_a_kernel_that_does_not_compile_and_a_device_that_is_lost():
    """In a process of its own, which the loss must not end."""
    if opened() is not None:
        pytest.skip(opened())
    from llmpy.webgpu import device as current

    index = str(current_index(current()))
    run = subprocess.run(
        [sys.executable, "-c", BAD_KERNEL, index],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    compiling, *lost = run.stdout.splitlines()
    assert compiling.startswith("webgpu: gelu.wgsl: gelu_forward with {}: Shader 'gelu.wgsl' ")
    assert "line 1, column 10" in compiling
    assert len(lost) == 3
    assert all(line.endswith("Parent device is lost") for line in lost)
    assert run.stderr == ""


def current_index(device):
    from llmpy.webgpu.adapters import adapter_name, list_adapters

    return [adapter_name(a) for a in list_adapters()].index(adapter_name(device.adapter))
