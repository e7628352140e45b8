"""What a device was told, written down so that a page can tell it another: replay.js.

A recording is a dictionary that JSON can hold. Buffers and pipelines are numbered:

    buffers    bytes of each; all begin as zeros
    pipelines  [file, entry point, constants] of each
    commands   in order, each a list:
               write     buffer, offset, bytes in base64
               dispatch  pipeline, groups of bindings, grid; a binding is [number, buffer, offset,
                         size]
               clear     buffer, offset, size
               copy      buffer, offset, buffer, offset, size
    results    by name: the places to read in the end, each [buffer, offset, size]
"""

import base64

import numpy as np

from llmpy.webgpu.device import Device
from llmpy.webgpu.memory import ITEM


class Recorder(Device):
    """A device that writes down what it is told."""

    def __init__(self, adapter, portable=False, tile=None):
        self.kept = []  # what is numbered, so that no other object gets its id
        self.numbers = {}
        self.texts = {}
        self.recording = {"buffers": [], "pipelines": [], "commands": [], "results": {}}
        super().__init__(adapter, portable, tile)
        self.queue = _Queue(self)

    def buffer(self, size, label, usage=None):
        made = super().buffer(size, label, usage)
        self._number(made, "buffers", made.size)
        return made

    def pipeline(self, stem, entry, constants):
        made = super().pipeline(stem, entry, constants)
        plain = {name: float(value) for name, value in constants.items()}
        self.texts[id(made)] = [stem, entry, plain]
        return made

    def bind(self, pipeline, group, entries):
        made = super().bind(pipeline, group, entries)
        if id(pipeline) not in self.numbers:
            self._number(pipeline, "pipelines", self.texts[id(pipeline)])
        self.kept.append(made)
        self.numbers[id(made)] = [
            [i, self.numbers[id(r["buffer"])], r["offset"], r["size"]] for i, r in entries.items()
        ]
        return made

    def place(self, array):
        """Give where the elements of an array are."""
        return [
            [self.numbers[id(piece.buffer)], piece.start * ITEM, piece.count * ITEM]
            for piece in array.pieces
        ]

    def tell(self, name, *words):
        """Write a command down."""
        plain = [self.numbers.get(id(word), word) for word in words]
        self.recording["commands"].append([name, *plain])

    def _number(self, made, what, text):
        self.kept.append(made)
        self.numbers[id(made)] = len(self.recording[what])
        self.recording[what].append(text)

    def _encode(self, command):
        name, *words = command
        if name == "dispatch":
            pipeline, groups, grid = words
            words = [pipeline, [self.numbers[id(group)] for group in groups], list(grid)]
        self.tell(name, *words)
        super()._encode(command)


class _Queue:
    """The queue of a device that writes down what is written to buffers."""

    def __init__(self, device):
        self.device, self.queue = device, device.queue

    def write_buffer(self, buffer, offset, content):
        text = base64.b64encode(memoryview(content).cast("B")).decode()
        self.device.tell("write", buffer, offset, text)
        self.queue.write_buffer(buffer, offset, content)

    def submit(self, commands):
        self.queue.submit(commands)


def values(text):
    """Give the float32 that a page sent."""
    return np.frombuffer(base64.b64decode(text), "<f4")
