"""What may import what: each module only those of the layers below its own."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "llmpy"

# from the top down; a folder counts as one
LAYERS = """
__main__
cli
bench dump recipe verify
train
generate run_folder device c_lines
model
passes
workspace intermediates backends data model_checks
cpu webgpu rng footprint
ops
console control_groups outliers schedule
formats
tensors sizes config
setting
bfloat16 errors
"""
LEVEL = {name: i for i, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def imports(source, folder=()):
    """Give the modules and folders of the package that a module in `folder` imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
            found |= {(path[1:] or ["__init__"])[0] for path in paths if path[0] == "llmpy"}
        elif isinstance(node, ast.ImportFrom):
            path = node.module.split(".") if node.module else []
            if node.level:
                path = ["llmpy", *folder[: len(folder) + 1 - node.level], *path]
            if path[0] == "llmpy":
                found |= {path[1]} if path[1:] else {alias.name for alias in node.names}
    return found - set(folder[:1])


def test_imports_go_downwards():
    wrong, seen = [], set()
    for path in PACKAGE.rglob("*.py"):
        *folder, name = path.relative_to(PACKAGE).with_suffix("").parts
        if not folder and name == "__init__":
            continue
        unit = folder[0] if folder else name
        seen.add(unit)
        for other in imports(path.read_text(encoding="utf-8"), tuple(folder)):
            if LEVEL[other] <= LEVEL[unit]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {other}")
    assert wrong == []
    assert seen == set(LEVEL)  # each module has its layer


def test_the_package_itself_imports_no_command():
    found = imports((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    assert min(LEVEL[name] for name in found) >= LEVEL["model"]


def test_the_reader_of_imports():
    source = """
import llmpy.train
from . import train as loop
from .flags import make
from ..console import note
def f():
    from .. import cpu
    from llmpy.ops import gelu
    import numpy, os.path
"""
    assert imports(source, ("cli",)) == {"train", "console", "cpu", "ops"}
    assert imports("from .a import b\nfrom . import c") == {"a", "c"}
    assert imports("import llmpy") == {"__init__"}
