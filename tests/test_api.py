"""What `import llmpy` gives, what it leaves alone, and the shape of the public calls."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import llmpy
from llmpy import ops
from llmpy.ops.contract import rows

from .op_cases import REFERENCE_ONLY

HEAVY = ("numba", "llvmlite", "wgpu", "tiktoken", "rich", "matplotlib", "torch", "transformers")


def python(code):
    """Run code in an interpreter of its own and give what it prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_all_is_what_there_is():
    assert len(llmpy.__all__) == len(set(llmpy.__all__))
    for name in llmpy.__all__:
        assert getattr(llmpy, name).__module__.startswith("llmpy."), name
    public = {
        name
        for name, value in vars(llmpy).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(llmpy.__all__)


def test_public_things_are_documented():
    for name in llmpy.__all__:
        thing = getattr(llmpy, name)
        assert inspect.getdoc(thing), name
        for attribute, member in vars(thing).items() if inspect.isclass(thing) else ():
            if inspect.isfunction(member) and not attribute.startswith("_"):
                assert inspect.getdoc(member), f"{name}.{attribute}"


def test_no_module_hides_behind_a_function():
    """`llmpy.train` stays the module: a function of that name would shadow it."""
    for module in pkgutil.iter_modules(llmpy.__path__):
        assert module.name not in llmpy.__all__


def test_import_loads_nothing_heavy():
    code = f"import sys, llmpy; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    assert python(code) == []


def test_import_is_fast():
    """Less than 0.3 s beyond NumPy; the best of three, since machines have other work."""
    code = (
        "import time, numpy; t = time.perf_counter(); import llmpy; print(time.perf_counter() - t)"
    )
    assert min(float(python(code)[0]) for _ in range(3)) < 0.3


def test_import_does_no_work():
    """No file is read and nothing is drawn: the embedded data waits for its first use."""
    code = (
        "import gzip; gzip.open = gzip.decompress = None; import random; import llmpy; print('ok')"
    )
    assert python(code) == ["ok"]


def test_every_op_of_the_reference_has_a_table():
    names = [n for n in ops.__all__ if callable(getattr(ops, n))]
    plain = {
        "alloc", "alloc_places", "copy", "describe", "download", "fit_places", "largest_tensor",
        "on_host", "record", "scratch_bytes", "sync", "upload", "view",
    }  # fmt: skip
    for name in set(names) - plain - {"zero"}:
        assert rows(getattr(ops, name)), name


@pytest.mark.parametrize("backend", ["cpu", "webgpu"])
def test_backends_have_the_signatures_of_the_reference(backend):
    module = importlib.import_module(f"llmpy.{backend}")
    assert module.name == backend
    for name in ops.__all__:
        if name in REFERENCE_ONLY or name == "name":
            continue
        spec, fn = getattr(ops, name), getattr(module, name)
        # types are in the tables, so names, order and kinds are compared
        assert shape_of(fn) == shape_of(spec), name


def shape_of(fn):
    parameters = inspect.signature(fn).parameters.values()
    return [(p.name, p.kind, p.default) for p in parameters]
