"""The backends by name, and what each computes in."""

from typing import Any

from .errors import UsageError


def load_backend(name: str) -> Any:
    """Give the backend of that name: `numpy` is the reference, `cpu` and `webgpu` the fast ones.

    Raises UsageError for a name that is unknown.
    """
    if name == "numpy":
        from . import ops

        return ops
    if name == "cpu":
        from . import cpu

        return cpu
    if name == "webgpu":
        from . import webgpu

        return webgpu
    raise UsageError(f"backend is {name!r}, expected cpu, webgpu or numpy")


def check_dtype(who: str, dtype: str, backend_name: str) -> None:
    """Raise UsageError unless the backend computes in `dtype`.

    float32   everywhere
    bfloat16  on cpu and numpy: tensors are float32, operands of matrix products are rounded
    float64   on numpy only
    """
    if dtype not in ("float32", "bfloat16", "float64"):
        raise UsageError(f"{who}: dtype is {dtype!r}, expected float32, bfloat16 or float64")
    if dtype == "float32" or backend_name == "numpy":
        return
    if backend_name == "webgpu":
        other = "numpy" if dtype == "float64" else "cpu"
        raise UsageError(
            f"{who}: dtype is {dtype}, expected float32 on backend webgpu. Use backend {other}."
        )
    if dtype == "float64":
        raise UsageError(
            f"{who}: dtype is float64, expected float32 or bfloat16 on backend {backend_name}."
            " Use backend numpy."
        )


def tensor_dtype(dtype: str) -> str:
    """Give the dtype of the tensors of a model: that of bfloat16 is float32."""
    return "float32" if dtype == "bfloat16" else dtype
