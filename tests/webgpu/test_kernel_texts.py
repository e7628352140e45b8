"""What the kernel files say about each other. Needs no device."""

import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

from llmpy import webgpu

FILES = sorted(Path(webgpu.__file__).parent.glob("*.wgsl"))
FUNCTION = re.compile(r"^fn (\w+)\(.*?^}$", re.M | re.S)
# some of what stands in several files, since WGSL has no way to bring it from another
SHARED = {"workgroup_sum", "workgroup_max", "exp_below", "log_above"}


def test_functions_of_one_name_are_one():
    texts = defaultdict(set)
    several = set()
    for file in FILES:
        for match in FUNCTION.finditer(file.read_text()):
            several |= {match[1]} & texts.keys()
            texts[match[1]].add(match[0])
    assert several >= SHARED
    for name, bodies in texts.items():
        assert len(bodies) == 1, f"{name} differs from file to file"


@pytest.mark.parametrize(
    ("stem", "in_python", "in_wgsl"),
    [
        ("layernorm", "ROWS", "const ROWS = {}u;"),
        ("layernorm", "COLUMNS", "const COLUMNS = {}u;"),
        ("encoder", "BLOCK", "const BLOCK = {}u;"),
        ("encoder", "WG", "override WG: u32 = {}u;"),
        ("residual", "WG", "override WG: u32 = {}u;"),
        ("crossentropy", "ELEMENTS", "override WG: u32 = {}u;"),
        ("global_norm", "CHUNK", "const CHUNK = {}u;"),
    ],
)
def test_python_and_kernel_have_one_number(stem, in_python, in_wgsl):
    number = getattr(import_module(f"llmpy.webgpu.{stem}"), in_python)
    (text,) = (file.read_text() for file in FILES if file.stem == stem)
    assert in_wgsl.format(number) in text


def test_adamw_has_one_number():
    from llmpy.webgpu.adamw import GROUP

    (text,) = (file.read_text() for file in FILES if file.stem == "adamw")
    threads, each = (int(re.search(f"{name}.*= (\\d+)u;", text)[1]) for name in ("WG", "EACH"))
    assert threads * each == GROUP
