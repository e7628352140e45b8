"""The folder that a training run leaves: llm.c's names and lines, which other tools read.

    model_%08d.bin   weights after so many updates, version 3
    DONE_%08d        empty; written last: the checkpoint of that number is whole
    tokenizer.bin    the vocabulary
    main.log         s:%d tel:%.4f                      validation loss; the step counts from 0
                     s:%d trl:%.4f lr:%.6f norm:%.2f    training loss, rate, norm before clipping
    loss.png         both losses over the steps

Source: llm.c, train_gpt2.cu and llmc/logger.h.
"""

import io
import logging
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from .errors import NonFiniteError, UsageError
from .formats.header import atomic_write
from .formats.tokenizer import TOKENIZER_NAME, Tokenizer, write_tokenizer

Points = list[tuple[int, float]]  # step, loss

LOG_NAME = "main.log"
CURVE_NAME = "loss.png"

# what a run writes, and no other file: starting over deletes these
RUN_FILE = re.compile(
    r"model_\d{8,}\.bin|state_\d{8,}_\d{5,}\.bin|DONE_\d{8,}|tokenizer\.bin|main\.log|loss\.png"
    r"|\.llmpy-[0-9a-f]{16}\.tmp"  # half a file, of a run that was killed
)
# a tokenizer alone, put there beforehand, is no run
RUN_MARK = re.compile(r"model_\d{8,}\.bin|state_\d{8,}_\d{5,}\.bin|DONE_\d{8,}|main\.log")


class RunFolder:
    """The folder of one run. Nothing is written before `start`."""

    def __init__(self, path: str | Path) -> None:
        """Name the folder; it need not exist."""
        self.path = Path(path)

    def check(self, start_over: bool = False) -> bool:
        """Check that a run can be written here; say whether there is one already.

        Raises UsageError for a file in the way, a folder that can't be written, or, unless
        `start_over`, a folder that holds a run.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"--out is {self.path}, which is a file, expected a folder")
        if not self.path.exists():
            above = next(p for p in self.path.absolute().parents if p.exists())
            if not above.is_dir():
                raise UsageError(f"--out is {self.path}, but {above} is a file, expected a folder")
            if not os.access(above, os.W_OK | os.X_OK):
                raise UsageError(f"--out is {self.path}, but folder {above} is not writable")
            return False
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise UsageError(f"--out is {self.path}, which is not writable")
        held = self._held()
        if held and not start_over:
            raise UsageError(
                f"--out is {self.path}, which already holds a run ({held[0]}"
                f"{' and more' if held[1:] else ''}), expected a new folder, because --resume"
                " is not built yet"
            )
        return bool(held)

    def start(self) -> None:
        """Make the folder, and delete what an earlier run left in it."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # same mode as llm.c
        if self._held():  # without a run, a tokenizer or a picture here is the user's
            for path in self.path.iterdir():
                if RUN_FILE.fullmatch(path.name):
                    path.unlink()
        self.log_path.touch()

    def _held(self) -> list[str]:
        """Name the files that show a run in this folder."""
        return sorted(p.name for p in self.path.iterdir() if RUN_MARK.fullmatch(p.name))

    @property
    def log_path(self) -> Path:
        """Path of main.log."""
        return self.path / LOG_NAME

    def log_validation(self, step: int, loss: float) -> None:
        """Note a validation loss; the step counts from 0."""
        self._log(f"s:{step} tel:{loss:.4f}")

    def log_step(self, step: int, loss: float, lr: float, norm: float) -> None:
        """Note a training step, counted from 0."""
        self._log(f"s:{step} trl:{loss:.4f} lr:{lr:.6f} norm:{norm:.2f}")

    def _log(self, line: str) -> None:
        try:
            with self.log_path.open("a", encoding="ascii", newline="\n") as file:
                file.write(line + "\n")
        except OSError as error:  # of a full disk: that names no file
            raise OSError(error.errno, error.strerror, str(self.log_path)) from None

    def write_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Leave the vocabulary beside the models."""
        write_tokenizer(self.path / TOKENIZER_NAME, tokenizer)

    def checkpoint(self, model: Any, step: int) -> Path:
        """Write the weights after `step` updates, then the DONE file.

        Raises NonFiniteError, and writes nothing, for weights that are NaN or infinite.
        """
        weights = model.backend.download(model.params.memory)
        # NaN goes through both, and neither makes a copy of the weights
        if not (np.isfinite(weights.min()) and np.isfinite(weights.max())):
            raise NonFiniteError(
                f"checkpoint: weights are {weights.min():g} to {weights.max():g},"
                " expected finite numbers. Nothing was written."
            )
        path = self.path / f"model_{step:08d}.bin"
        model.save(path)
        (self.path / f"DONE_{step:08d}").touch()
        return path

    def write_curve(self) -> Path | str:
        """Draw main.log as loss.png; give its path, or say why there is no picture."""
        train, validation = read_log(self.log_path)
        try:
            picture = draw_curve(train, validation)
        except ImportError:
            return "matplotlib is not installed. pip install matplotlib gets it."
        except Exception as error:  # a setting of the user's, such as LaTeX: no fault of the run
            return f"matplotlib failed: {error}"
        path = self.path / CURVE_NAME
        with atomic_write(path) as file:
            file.write(picture)
        return path


def draw_curve(train: Points, validation: Points) -> bytes:
    """Draw the losses as a PNG with matplotlib."""
    # which tells of caches and fonts on stderr
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss (nats per token)")
    axes.plot([s for s, _ in train], [x for _, x in train], lw=0.8, label="training")
    if validation:
        axes.plot(*zip(*validation, strict=True), marker="o", label="validation")
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()


def read_log(path: str | Path) -> tuple[Points, Points]:
    """Read main.log: (step, loss) of training, and of validation."""
    train: Points = []
    validation: Points = []
    for line in Path(path).read_text(encoding="ascii").splitlines():
        fields = dict(part.split(":", 1) for part in line.split())
        if "trl" in fields:
            train.append((int(fields["s"]), float(fields["trl"])))
        elif "tel" in fields:
            validation.append((int(fields["s"]), float(fields["tel"])))
    return train, validation
