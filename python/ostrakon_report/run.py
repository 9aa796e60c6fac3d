# SPDX-License-Identifier: Apache-2.0
"""Training runs, from the metrics.jsonl of each: loss, gradient norm, tokens per second, memory."""

from . import style
from .report import Report
from .runs import read_runs


def make(files, title):
    runs = [(run.label, run.history.column) for run in read_runs(files)]
    title = title or "Training: " + ", ".join(label for label, _ in runs)
    figure, (loss, norm, speed, memory) = style.figure(title, 13, [3.5, 3.5], 2)
    most = max(max(column("peak_bytes")[1]) for _, column in runs)
    divisor, unit = style.bytes_scale(most)
    for index, (label, column) in enumerate(runs):
        color = style.LINES[index % len(style.LINES)]
        prefix = f"{label}: " if len(runs) > 1 else ""
        loss.plot(*column("loss"), color=color, linewidth=1, label=prefix + "training")
        steps, values = column("validation_loss")
        if steps:
            loss.plot(steps, values, color=color, linestyle="--", marker="o", markersize=4, label=prefix + "validation")
        norm.plot(*column("grad_norm"), color=color, linewidth=1, label=label)
        speed.plot(*column("tokens_per_second"), color=color, linewidth=1, label=label)
        for name, dashes, what in (("peak_bytes", "-", "peak, counted"), ("planned_peak_bytes", ":", "peak, planned"),
                                   ("resident_bytes", "--", "resident memory of the process")):
            steps, values = column(name)
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
