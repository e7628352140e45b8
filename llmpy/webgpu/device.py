"""A device: its limits, its pipelines, and the commands that are on their way to it.

Commands are collected in one encoder and go to the device together, with `submit`: when somebody
reads, or when memory that they use is written from here. Within a submit they are done in order,
each seeing what those before it wrote. A recording that takes seconds goes in several submits, each
waited for: drivers end long work, and while wgpu waits, no signal is heeded.

wgpu's errors become BackendError, with the name of the kernel where there is one.
"""

import contextlib
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from ..errors import BackendError
from .adapters import adapter_name, describe_adapter, import_wgpu, misfit
from .limits import asked_limits
from .messages import failing

ALIGNMENT = 256  # bytes: where a binding may begin
CUT_S = 1.0  # drivers may end longer work, and nobody can interrupt it
CUT_AT_FIRST = 8  # dispatches to wait for together while nobody knows how long they take
GROWTH = 8  # times as many, at most, the next time: what follows may take longer
SLOTS = 256  # scalars of so many dispatches lie in one buffer


@dataclass(eq=False)
class Recording:
    """Commands to be replayed."""

    commands: list[tuple[Any, ...]] = field(default_factory=list)
    cut: int = CUT_AT_FIRST  # dispatches to wait for together


@dataclass
class _Place:
    """A buffer that is written again and again."""

    buffer: Any
    content: bytes = b""
    used: int = -1  # submits before the last command that sees it
    recorded: bool = False  # so that it may be seen at any time


class Device:
    """A GPU, opened."""

    def __init__(self, adapter: Any, portable: bool = False, tile: str | None = None) -> None:
        """Open the device of an adapter.

        portable  ask for no more than what every WebGPU device has
        tile      shape of matrix products, one of matmul.TILES; None is one that suits

        Raises BackendError where the adapter refuses.
        """
        self.wgpu = import_wgpu()
        self.adapter = adapter
        lack = misfit(adapter)
        if lack is not None:
            raise BackendError(f"webgpu: {adapter_name(adapter)}: {lack}. Use --backend cpu.")
        self.limits = asked_limits(adapter, portable)
        with failing(f"{adapter_name(adapter)} cannot be opened"):
            self.device = adapter.request_device_sync(required_limits=self.limits, label="llmpy")
        self.queue = self.device.queue
        self.tile = tile
        self.dispatches = self.submits = self.bytes_read = 0  # so far
        self.captured: Recording | None = None  # that is being made
        self.scratch: dict[str, Any] = {}  # arrays by use, for kernels.py; they grow
        self._encoder: Any = None
        self._pass: Any = None
        self.replaced = False  # by another device of this process
        self._replayed: list[Recording] = []  # since the device was waited for
        self._encoded = 0  # dispatches in the encoder
        self._sent = 0  # dispatches that were submitted since the device was waited for
        self._sent_at = 0.0  # when the first of them was
        self._first: str | None = None  # kernel in the encoder
        self._last: str | None = None  # kernel of all
        self._modules: dict[str, Any] = {}
        self._pipelines: dict[Any, Any] = {}
        self._scalars: dict[bytes, dict[str, Any]] = {}
        self._slot_buffer: Any = None
        self._changing: dict[str, _Place] = {}
        self._staged: Any = None  # through which is read
        usage = self.wgpu.BufferUsage
        self.usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self.nothing = self.buffer(ALIGNMENT, "nothing")  # zeros, bound where an array is None

    @property
    def max_binding(self) -> int:
        """The most bytes that a kernel may see of one buffer, whole vectors and whole offsets."""
        return self.limits["max-storage-buffer-binding-size"] // ALIGNMENT * ALIGNMENT

    @property
    def max_buffer(self) -> int:
        """The most bytes of a buffer."""
        return self.limits["max-buffer-size"]

    def describe(self) -> str:
        """Say in one line what computes."""
        return f"wgpu {self.wgpu.__version__} on {describe_adapter(self.adapter)}"

    def buffer(self, size: int, label: str, usage: int | None = None) -> Any:
        """Make a buffer of zeros, of `size` bytes. Raises BackendError without memory for it."""
        with failing(f"a buffer of {size:,} bytes for {label}"):
            return self.device.create_buffer(
                size=max(4, -(-size // 4) * 4), usage=usage or self.usage, label=label
            )

    # pipelines

    def pipeline(self, stem: str, entry: str, constants: dict[str, float]) -> Any:
        """Give the pipeline of an entry point of a kernel file, compiled at its first use."""
        key = (stem, entry, *sorted(constants.items()))
        if key not in self._pipelines:
            with failing(f"{stem}.wgsl: {entry} with {constants}"):
                self._pipelines[key] = self.device.create_compute_pipeline(
                    layout="auto",
                    compute={
                        "module": self._module(stem), "entry_point": entry, "constants": constants,
                    },
                    label=entry,
                )  # fmt: skip
        return self._pipelines[key]

    def _module(self, stem: str) -> Any:
        if stem not in self._modules:
            code = kernel_source(stem)
            self._modules[stem] = self.device.create_shader_module(code=code, label=f"{stem}.wgsl")
        return self._modules[stem]

    def bind(self, pipeline: Any, group: int, entries: dict[int, dict[str, Any]]) -> Any:
        """Make a bind group: what each binding of a pipeline's group stands for."""
        with failing(f"{pipeline.label}: bindings"):
            return self.device.create_bind_group(
                layout=pipeline.get_bind_group_layout(group),
                entries=[{"binding": i, "resource": r} for i, r in entries.items()],
                label=pipeline.label,
            )

    def scalars(self, values: Sequence[int | float]) -> dict[str, Any]:
        """Give a resource of a uniform struct: each int a u32, each float an f32.

        The same values share a place, and it is never written again: not for what differs from
        step to step.
        """
        content = pack_scalars(values)
        if content not in self._scalars:
            slot = len(self._scalars) % SLOTS
            if slot == 0:
                usage = self.wgpu.BufferUsage.UNIFORM | self.wgpu.BufferUsage.COPY_DST
                self._slot_buffer = self.buffer(SLOTS * ALIGNMENT, "scalars", usage)
            self.write(self._slot_buffer, slot * ALIGNMENT, content)
            self._scalars[content] = {
                "buffer": self._slot_buffer, "offset": slot * ALIGNMENT, "size": len(content),
            }  # fmt: skip
        return self._scalars[content]

    def changing(self, use: str, content: bytes) -> dict[str, Any]:
        """Give a resource of bytes that differ from call to call, one place for each use.

        It is written again in place; commands on their way that see what it held are sent first.
        A recorded command sees what was written last.
        """
        place = self._changing.get(use)
        if place is None or place.buffer.size < len(content):
            usage = self.usage | self.wgpu.BufferUsage.UNIFORM
            place = self._changing[use] = _Place(self.buffer(len(content), use, usage))
        if place.content != content:
            if place.recorded or place.used == self.submits:
                self.submit()
            self.write(place.buffer, 0, content)
            place.content = content
        place.used = self.submits
        place.recorded |= self.captured is not None
        return {"buffer": place.buffer, "offset": 0, "size": len(content)}

    def write(self, buffer: Any, offset: int, content: Any) -> None:
        """Write bytes into a buffer, after the commands that were submitted."""
        with failing(f"writing to {buffer.label}"):
            self.queue.write_buffer(buffer, offset, content)

    # commands

    def dispatch(self, pipeline: Any, groups: tuple[Any, ...], grid: tuple[int, int, int]) -> None:
        """Run a kernel on a grid of workgroups."""
        self._do(("dispatch", pipeline, groups, grid))

    def clear(self, buffer: Any, offset: int, size: int) -> None:
        """Set bytes of a buffer to 0."""
        self._do(("clear", buffer, offset, size))

    def copy(
        self, source: Any, source_offset: int, target: Any, target_offset: int, size: int
    ) -> None:
        """Copy bytes from one buffer to another."""
        self._do(("copy", source, source_offset, target, target_offset, size))

    @contextlib.contextmanager
    def capture(self) -> Iterator[Recording]:
        """Collect the commands of a block, to be replayed, instead of doing them."""
        assert self.captured is None, "a recording within a recording"
        self.captured = Recording()
        try:
            yield self.captured
        finally:
            self.captured = None

    def replay(self, recording: Recording) -> None:
        """Do what was captured, and wait on the way where it would keep the device for long.

        Only here: what uses a place of `changing` must go with what the place holds.
        """
        self._require_open()
        self._replayed.append(recording)
        for command in recording.commands:
            self._encode(command)
            if self._encoded >= recording.cut:
                self.wait()
                self._replayed.append(recording)

    def submit(self) -> None:
        """Send the commands that were collected to the device."""
        if self._encoder is None:
            return
        self._end_pass()
        encoder, self._encoder = self._encoder, None
        self.submits += 1
        if self._sent == 0:
            self._sent_at = time.perf_counter()
        self._sent, self._encoded = self._sent + self._encoded, 0
        which = f" from {self._first} to {self._last}" if self._first else ""
        self._first = None
        with failing(f"commands{which}"):
            # what is wrong by now, finish raises; within submit, wgpu would end the process
            self.queue.submit([encoder.finish()])

    def read(self, buffer: Any, offset: int, size: int) -> bytes:
        """Give bytes of a buffer as they are after all commands so far."""
        self._staging(size)
        self.copy(buffer, offset, self._staged, 0, size)
        self.submit()
        self.bytes_read += size
        # let go meanwhile: if this is interrupted, it stays mapped, and must not be used again
        staged, self._staged = self._staged, None
        with failing(f"reading {size:,} bytes, after {self._last or 'no kernel'}"):
            staged.map_sync(self.wgpu.MapMode.READ, 0, size)
            content = bytes(staged.read_mapped(0, size))
            staged.unmap()
        self._staged = staged
        self._waited()
        return content

    def wait(self) -> None:
        """Wait until all commands so far are done."""
        read = self.bytes_read
        self.read(self.nothing, 0, 4)
        self.bytes_read = read  # these bytes are of no interest

    def _waited(self) -> None:
        """Reckon how many dispatches a submit may have of what was replayed, and is done now."""
        if self._replayed and self._sent:
            each = (time.perf_counter() - self._sent_at) / self._sent
            for recording in self._replayed:
                recording.cut = max(1, min(GROWTH * recording.cut, int(CUT_S / each)))
        self._replayed.clear()
        self._sent = 0

    def _staging(self, size: int) -> None:
        if self._staged is None or self._staged.size < size:
            usage = self.wgpu.BufferUsage.MAP_READ | self.wgpu.BufferUsage.COPY_DST
            self._staged = self.buffer(max(size, ALIGNMENT), "reading", usage)

    def _do(self, command: tuple[Any, ...]) -> None:
        if command[0] != "copy":  # what is there can still be read
            self._require_open()
        if self.captured is not None:
            self.captured.commands.append(command)
        else:
            self._encode(command)

    def _require_open(self) -> None:
        if self.replaced:
            raise BackendError(
                "webgpu: an array is on a device that open_device has replaced, expected one on"
                " the device that is open. Make the model again."
            )

    def _encode(self, command: tuple[Any, ...]) -> None:
        if self._encoder is None:
            self._encoder = self.device.create_command_encoder()
        what = command[0]
        if what == "dispatch":
            if self._pass is None:
                self._pass = self._encoder.begin_compute_pass()
            _, pipeline, groups, grid = command
            self._pass.set_pipeline(pipeline)
            for i, group in enumerate(groups):
                self._pass.set_bind_group(i, group)
            self._pass.dispatch_workgroups(*grid)
            self.dispatches += 1
            self._encoded += 1
            self._last = pipeline.label
            self._first = self._first or self._last
            return
        self._end_pass()
        if what == "clear":
            self._encoder.clear_buffer(*command[1:])
        else:
            self._encoder.copy_buffer_to_buffer(*command[1:])

    def _end_pass(self) -> None:
        if self._pass is not None:
            self._pass.end()
            self._pass = None


def kernel_source(stem: str) -> str:
    """Give the text of a kernel file."""
    return resources.files(__package__).joinpath(f"{stem}.wgsl").read_text(encoding="utf-8")


def pack_scalars(values: Sequence[int | float]) -> bytes:
    """Lay scalars out as a uniform struct: ints and bools as u32, floats as f32."""
    kinds = "".join("f" if isinstance(value, float) else "I" for value in values)
    content = struct.pack(f"<{kinds}", *values)
    return content + bytes(-len(content) % 16)
