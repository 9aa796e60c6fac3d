# SPDX-License-Identifier: Apache-2.0
"""Training runs, from the metrics.jsonl of each: loss, gradient norm, tokens per second, memory."""

import json
import os

from . import ReportError, style
from .report import Report


def read_rows(path):
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ReportError(f"{path}: line {number} is no JSON; expected a run's metrics.jsonl") from error
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise ReportError(f"{path}: line {number} has no step; expected a run's metrics.jsonl")
            rows.append(row)
    if not any("loss" in row for row in rows):
        raise ReportError(f"{path}: has no step; expected a run's metrics.jsonl")
    return rows


def column(rows, name):
    """Steps and values; a gap where a value was not finite."""
    pairs = [(row["step"], float("nan") if row[name] is None else row[name]) for row in rows if name in row]
    return [step for step, _ in pairs], [value for _, value in pairs]


def labels_of(paths):
    """What distinguishes the folders of runs: "a", or "a/run-1" and "b/run-1"."""
    folders = [os.path.dirname(os.path.abspath(path)) for path in paths]
    common = os.path.commonpath([os.path.dirname(folder) for folder in folders])
    return [os.path.relpath(folder, common) for folder in folders]


def make(files, title):
    runs = list(zip(labels_of(files), map(read_rows, files)))
    title = title or "Training: " + ", ".join(label for label, _ in runs)
    figure, (loss, norm, speed, memory) = style.figure(title, 13, [3.5, 3.5], 2)
    most = max(max(column(rows, "peak_bytes")[1]) for _, rows in runs)
    divisor, unit = style.bytes_scale(most)
    for index, (label, rows) in enumerate(runs):
        color = style.LINES[index % len(style.LINES)]
        prefix = f"{label}: " if len(runs) > 1 else ""
        loss.plot(*column(rows, "loss"), color=color, linewidth=1, label=prefix + "training")
        steps, values = column(rows, "validation_loss")
        if steps:
            loss.plot(steps, values, color=color, linestyle="--", marker="o", markersize=4, label=prefix + "validation")
        norm.plot(*column(rows, "grad_norm"), color=color, linewidth=1, label=label)
        speed.plot(*column(rows, "tokens_per_second"), color=color, linewidth=1, label=label)
        for name, dashes, what in (("peak_bytes", "-", "peak, counted"), ("planned_peak_bytes", ":", "peak, planned"),
                                   ("resident_bytes", "--", "resident memory of the process")):
            steps, values = column(rows, name)
            memory.plot(steps, [value / divisor for value in values], color=color, linestyle=dashes,
                        linewidth=2.5 if dashes == ":" else 1.2, label=None if index else what)
    style.log_scale(norm)
    for axes, name, quantity in ((loss, "Loss", "loss"), (norm, "Gradient norm", "norm"),
                                 (speed, "Speed", "tokens/s of all ranks"), (memory, "Memory of a rank", unit)):
        axes.set_title(name)
        axes.set_ylabel(quantity)
    for axes in (speed, memory):
        axes.set_ylim(0, 1.35 * axes.get_ylim()[1])  # with room for the legend
    for axes in (loss, norm, speed, memory):
        axes.set_xlabel("step")
        axes.legend(loc="upper right")
    return Report(title, figure)
