"""The backends by name, and what each computes in."""

from typing import Any

from .errors import UsageError


def load_backend(name: str) -> Any:
    """Give the backend of that name: `numpy` is the reference, `cpu` the fast one.

    Raises UsageError for a name that is unknown or not built yet.
    """
    if name == "numpy":
        from . import ops

        return ops
    if name == "cpu":
        from . import cpu

        return cpu
    if name == "webgpu":
        raise UsageError("backend is 'webgpu', expected cpu or numpy: webgpu is not built yet")
    raise UsageError(f"backend is {name!r}, expected cpu or numpy")


def check_dtype(who: str, dtype: str, backend_name: str) -> None:
    """Raise UsageError unless the backend computes in `dtype`.

    float32   everywhere
    bfloat16  tensors are float32; operands of matrix products are rounded to bfloat16
    float64   on numpy only
    """
    if dtype not in ("float32", "bfloat16", "float64"):
        raise UsageError(f"{who}: dtype is {dtype!r}, expected float32, bfloat16 or float64")
    if dtype == "float64" and backend_name != "numpy":
        raise UsageError(
            f"{who}: dtype is float64, expected float32 or bfloat16 on backend {backend_name}."
            " Use backend numpy."
        )


def tensor_dtype(dtype: str) -> str:
    """Give the dtype of the tensors of a model: that of bfloat16 is float32."""
    return "float32" if dtype == "bfloat16" else dtype
