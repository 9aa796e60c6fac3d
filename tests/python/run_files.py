# SPDX-License-Identifier: Apache-2.0
"""Files of runs as ostrakon-train writes them, for tests."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("OSTRAKON_SOURCE", Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "python"))
from ostrakon_report.__main__ import main  # noqa: E402

DECK = """ostrakon:
  training:  # how it is trained
    steps: {steps}                     # optimizer steps
                                    # of the run: not a key
  optimizer:  # what updates
    learning_rate: {rate}
  output:  # what is written
    directory: "a \\"#\\" <b>"  # a folder
"""


def row(step, **more):
    return {"step": step, "loss": 4.0 / step, "grad_norm": 1.0, "learning_rate": 1e-3, "tokens": 100 * step,
            "step_seconds": 0.5, "tokens_per_second": 200.0, "mfu": 0.25, "planned_peak_bytes": 1 << 30,
            "peak_bytes": 1 << 30, "allocations": 0, "resident_bytes": 3 << 30, **more}


def lines(rows):
    return "".join(json.dumps(one) + "\n" for one in rows)


class Folder(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def run_folder(self, name, rows, steps=8, rate="0.001"):
        folder = self.folder / name
        folder.mkdir()
        (folder / "metrics.jsonl").write_text(lines(rows))
        (folder / "deck.yaml").write_text(DECK.format(steps=steps, rate=rate))
        return folder

    def call(self, *arguments):
        """Exit status and what is said."""
        said, status = io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as ended:
                status = ended.code
        return status, said.getvalue()
