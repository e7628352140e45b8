"""Fixtures of the command line: a folder to be in, and a tiny run in it."""

import pytest

from ..tiny_run import write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(folder, rng):
    """The arguments of a tiny training run of 3 steps on the reference."""
    words = write_files(folder, rng)
    return ["train", *words, "--batch-size", "2", "--steps", "3", "--sample-every", "0"]
