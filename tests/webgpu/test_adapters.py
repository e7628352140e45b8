"""Which adapter is taken, which never, and what is said of it, without a GPU."""

import sys

import pytest

from llmpy.errors import BackendError, UsageError
from llmpy.webgpu import adapters
from llmpy.webgpu.adapters import (
    INSTALL,
    adapter_lines,
    automatic,
    choose_adapter,
    describe_adapter,
    import_wgpu,
    is_software,
    list_adapters,
    shares_memory,
)
from llmpy.webgpu.limits import LARGEST_BUFFER, PORTABLE, asked_limits

from .fakes import (
    DISCRETE,
    DISCRETE_D3D,
    DISCRETE_GL,
    GB,
    INTEGRATED,
    LLVMPIPE,
    LLVMPIPE_GL,
    SECOND,
    adapter,
    wgpu_of,
)


@pytest.fixture
def there(monkeypatch):
    """Let these adapters be there."""

    def put(*found):
        monkeypatch.setattr(adapters, "import_wgpu", wgpu_of(*found))
        monkeypatch.setattr(adapters, "GPU_FILES", ("/",))

    return put


# which there are


def test_opengl_is_left_out_where_the_device_is_there_otherwise(there):
    there(DISCRETE, LLVMPIPE, DISCRETE_GL, LLVMPIPE_GL)
    assert list_adapters() == [DISCRETE, LLVMPIPE]
    there(LLVMPIPE, DISCRETE_GL)
    assert list_adapters() == [LLVMPIPE, DISCRETE_GL]
    there(LLVMPIPE_GL)
    assert list_adapters() == [LLVMPIPE_GL]


def test_a_list_that_fails(there):
    there(RuntimeError("Validation Error\n\nCaused by:\n  no instance"))
    with pytest.raises(BackendError) as error:
        list_adapters()
    assert str(error.value) == "webgpu: adapters cannot be listed: no instance"


def test_what_is_software_and_whose_memory_it_has():
    disguised = adapter("Microsoft Basic Render Driver", "Unknown")
    assert [is_software(a) for a in (LLVMPIPE, disguised, INTEGRATED, DISCRETE)] == [
        True, True, False, False,
    ]  # fmt: skip
    assert [shares_memory(a) for a in (LLVMPIPE, disguised, INTEGRATED, DISCRETE)] == [
        True, True, True, False,
    ]  # fmt: skip


def test_wgpu_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "wgpu", None)
    with pytest.raises(BackendError) as error:
        import_wgpu()
    assert str(error.value) == f"webgpu: wgpu is not installed. Run: {INSTALL}"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("raise OSError('libwgpu.so: wrong ELF class')", "libwgpu.so: wrong ELF class"),
        ("import missing_part", "No module named 'missing_part'"),
    ],
)
def test_wgpu_that_cannot_be_loaded(source, what, monkeypatch, tmp_path):
    (tmp_path / "wgpu.py").write_text(source)
    monkeypatch.delitem(sys.modules, "wgpu", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError) as error:
        import_wgpu()
    assert str(error.value) == f"webgpu: wgpu cannot be loaded: {what}"


# --adapter


def test_the_best(there):
    there(LLVMPIPE, INTEGRATED, DISCRETE, SECOND)
    assert choose_adapter() is DISCRETE
    there(LLVMPIPE, adapter("Strange", "Surprise"), INTEGRATED)
    assert choose_adapter() is INTEGRATED
    there(LLVMPIPE, adapter("Strange", "Surprise"))
    assert choose_adapter().info["device"] == "Strange"
    there(LLVMPIPE)
    assert choose_adapter() is LLVMPIPE


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        ("0", LLVMPIPE), ("3", SECOND), ("llvm", LLVMPIPE), ("LITTLE", INTEGRATED),
        ("4090", SECOND), ("big 40", DISCRETE), ("(d3d12", DISCRETE_D3D),
        ("Big 40 (D3D12)", DISCRETE_D3D),
    ],
)  # fmt: skip
def test_by_index_name_or_part_of_it(there, wanted, want):
    there(LLVMPIPE, INTEGRATED, DISCRETE, SECOND, DISCRETE_D3D)
    assert choose_adapter(wanted) is want


@pytest.mark.parametrize(
    ("wanted", "what"),
    [("7", ""), ("-1", ""), ("nvidia", ""), ("Big", ", which name several"), ("\u0663", "")],
)
def test_none_or_several_of_that_name(there, wanted, what):
    there(DISCRETE, SECOND)
    with pytest.raises(UsageError) as error:
        choose_adapter(wanted)
    assert str(error.value) == (
        f"--adapter is {wanted}{what}, expected one of: 0 Big 40 (Vulkan), 1 Big 4090 (Vulkan)"
    )


def test_no_adapter(there):
    there()
    for wanted in (None, "0"):
        with pytest.raises(BackendError) as error:
            choose_adapter(wanted)
        assert str(error.value) == (
            "webgpu: no adapter found. Install the GPU's driver, on Linux that of Vulkan, or use"
            " --backend cpu."
        )


# --backend auto


def test_auto_takes_the_best_hardware_that_fits(there):
    small = adapter("Small", max_buffer_size=GB)
    there(LLVMPIPE, INTEGRATED, small)
    assert automatic(None, GB) == (small, "")
    assert automatic(None, GB + 1) == (INTEGRATED, "")
    assert automatic("little", GB) == (INTEGRATED, "")


@pytest.mark.parametrize(
    ("found", "wanted", "why"),
    [
        ([], None, "no hardware GPU found"),
        ([LLVMPIPE], None, "llvmpipe (LLVM 15) (Vulkan) is software"),
        ([LLVMPIPE, DISCRETE], "llvm", "llvmpipe (LLVM 15) (Vulkan) is software"),
        (
            [adapter("Small", max_buffer_size=GB - 1)],
            None,
            "Small (Vulkan): buffers of 999,999,999 bytes, expected 1,000,000,000",
        ),
        (
            [adapter("Old", max_storage_buffers_per_shader_stage=4)],
            None,
            "Old (Vulkan): max-storage-buffers-per-shader-stage is 4, expected at least 8",
        ),
        ([OSError("broken")], None, "adapters cannot be listed: broken"),
    ],
)
def test_auto_says_why_not(there, found, wanted, why):
    there(*found)
    assert automatic(wanted, GB) == (None, why)


def test_auto_refuses_an_adapter_that_is_named_and_not_there(there):
    there(DISCRETE)
    with pytest.raises(UsageError, match=r"^--adapter is 1, expected one of: 0 Big 40"):
        automatic("1", 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how Linux shows a GPU")
def test_auto_is_quick_where_linux_shows_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(adapters, "import_wgpu", lambda: pytest.fail("wgpu was imported"))
    monkeypatch.setattr(adapters, "GPU_FILES", (str(tmp_path / "render*"),))
    assert automatic(None, 0) == (None, "no hardware GPU found")
    (tmp_path / "renderD128").touch()
    monkeypatch.setattr(adapters, "import_wgpu", wgpu_of(DISCRETE))
    assert automatic(None, 0) == (DISCRETE, "")


# what is said


def test_described():
    assert describe_adapter(DISCRETE) == "Big 40, Vulkan, driver maker 1.2, discrete GPU"
    bare = adapter("Metal thing", "Odd", "Metal")
    bare.info.update(vendor="", description="")
    assert describe_adapter(bare) == "Metal thing, Metal, type unknown"
    assert describe_adapter(LLVMPIPE) == (
        "llvmpipe (LLVM 15), Vulkan, driver maker 1.2, CPU: SOFTWARE, the CPU plays GPU, slowly"
    )


def test_lines():
    assert adapter_lines(3, LLVMPIPE) == [
        "3  llvmpipe (LLVM 15)",
        "   API        Vulkan",
        "   driver     maker 1.2",
        "   type       CPU: SOFTWARE, the CPU plays GPU, slowly",
        "   buffer     up to 4,000,000,000 bytes",
        "   binding    up to 2,000,000,000 bytes, 8 for a kernel",
        "   workgroup  up to 256 threads, 16,384 bytes of memory",
        "   features   shader-f16",
    ]
    old = adapter("Old", max_compute_invocations_per_workgroup=128)
    assert adapter_lines(0, old)[-2:] == [
        "   features   none",
        "   unusable   max-compute-invocations-per-workgroup is 128, expected at least 256",
    ]


# limits


def test_more_is_asked_only_where_the_adapter_has_it():
    raised = asked_limits(DISCRETE)
    assert raised.pop("max-buffer-size") == 4 * GB
    assert raised.pop("max-storage-buffer-binding-size") == 2 * GB
    assert raised.items() <= PORTABLE.items()
    assert asked_limits(DISCRETE, portable=True) == PORTABLE
    huge = adapter(max_buffer_size=2**40)
    assert asked_limits(huge)["max-buffer-size"] == LARGEST_BUFFER < 2**32
