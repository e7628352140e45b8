"""The kernel files of llmpy/webgpu, and what is in them."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "llmpy" / "webgpu"
FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.wgsl"))}


def entry_points(code):
    """Give the names of the entry points of a kernel file."""
    found = re.findall(r"@compute\b[^{;]*?\bfn\s+(\w+)", code)
    assert len(found) == len(re.findall(r"@compute\b", code)), "one escapes"
    return found


def overrides(code):
    """Give the constants of a kernel file that a pipeline may set, and their defaults."""
    return dict(re.findall(r"^override\s+(\w+)\s*:\s*\w+\s*=\s*(\w+)\s*;", code, re.M))
