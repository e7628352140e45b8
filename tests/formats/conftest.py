"""The fixture of all formats: a file of given bytes."""

from pathlib import Path

import pytest


@pytest.fixture
def write(request, tmp_path, monkeypatch):
    """Write bytes to the test module's FILE, in a folder to be in, and give the name."""
    monkeypatch.chdir(tmp_path)

    def write(content):
        Path(request.module.FILE).write_bytes(content)
        return request.module.FILE

    return write
