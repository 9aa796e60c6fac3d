# SPDX-License-Identifier: Apache-2.0
"""Runs in a terminal while they go on: a line for each, with progress, time to go and the course of the loss."""

import math
import os
import shutil
import sys
import time

from . import palette
from .export import times

EVERY = 2.0  # seconds between looks at the files
LINE_EVERY = 30.0  # seconds between lines where they can't be rewritten
RECENT = 100  # steps whose time tells that of the next ones


def sparkline(values, width, bars="▁▂▃▄▅▆▇█"):
    """At most `width` characters, each as high as the mean of its part of the values; a space where none is finite."""
    width = min(width, len(values))
    means = []
    for i in range(width):
        part = [v for v in values[i * len(values) // width:(i + 1) * len(values) // width] if math.isfinite(v)]
        means.append(math.fsum(part) / len(part) if part else math.nan)
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return " " * width
    low, span = min(finite), max(finite) - min(finite)
    return "".join(" " if math.isnan(mean) else bars[int((mean - low) / span * (len(bars) - 1) + 0.5) if span else 0]
                   for mean in means)


class Progress:
    """What a run's line says."""

    def __init__(self, run, clock=time.monotonic):
        self.run = run
        self.clock = clock
        self.begin = None  # (time, step) since which steps have been seen to come

    def look(self):
        """Reads new rows; returns them."""
        rows = self.run.read()
        steps = self.run.history.steps
        if rows and steps:
            last = steps[-1]["step"]
            if self.begin is None or last <= self.begin[1]:
                self.begin = self.clock(), last
        return rows

    def is_done(self):
        """Whether all steps are done and the program has ended."""
        steps, last = self.run.history.steps, self.run.last_step()
        return bool(steps and last and steps[-1]["step"] >= last and self.run.state())

    def seconds_to_go(self):
        """By how fast steps have come since they are looked at, or if these are few, by the steps' own times."""
        steps, last = self.run.history.steps, self.run.last_step()
        if not steps or not last:
            return None
        since, first = self.begin
        seen = steps[-1]["step"] - first
        if seen >= RECENT:
            a_step = (self.clock() - since) / seen
        else:
            recent = [row["step_seconds"] for row in steps[-RECENT:] if "step_seconds" in row]
            if not recent:
                return None
            a_step = math.fsum(recent) / len(recent)
        return a_step * max(0, last - steps[-1]["step"])

    def line(self, width, bars="▁▂▃▄▅▆▇█"):
        """At most `width` characters."""
        steps, last = self.run.history.steps, self.run.last_step()
        state = self.run.state()
        if not steps:
            if not os.path.exists(self.run.metrics):
                state = f"waits for {self.run.metrics}"
            return f"{self.run.label}  no step yet{'  ' if state else ''}{state}"[:width]
        row = steps[-1]
        parts = [f"{self.run.label}  step {row['step']:,}"
                 + (f"/{last:,} {100 * row['step'] // last} %" if last else "")]
        if last and row["step"] >= last:
            parts.append("done")
        elif state:
            parts.append(state)
        elif (left := self.seconds_to_go()) is not None:
            parts.append(f"{palette.duration_text(max(1.0, left))} to go")
        loss = "loss not finite" if row["loss"] is None else f"loss {row['loss']:.4f}"
        parts.append(loss)
        validations = self.run.history.column("validation_loss")[1]
        if validations:
            parts.append(f"validation {validations[-1]:.4f}")
        if "tokens_per_second" in row:
            parts.append(f"{row['tokens_per_second']:,.0f} tokens/s")
        if "mfu" in row:
            parts.append(f"MFU {'<= ' if row.get('mfu_uncertain') else ''}{100 * row['mfu']:.0f} %")
        line = "  ".join(parts)
        room = width - len(line) - 2
        if room >= 8:
            at = line.index(loss) + len(loss)
            line = line[:at] + " " + sparkline(self.run.history.column("loss")[1], min(room, 40), bars) + line[at:]
        return line[:width]


class Screen:
    """Lines that replace those before, or where that is not possible, follow them from time to time."""

    def __init__(self, out, clock=time.monotonic):
        self.out = out
        self.clock = clock
        self.can_rewrite = out.isatty()
        self.shown = 0  # lines that are to be replaced
        self.before = None  # the time of the last lines
        self.lines = []  # what they are
        try:
            "▁".encode(out.encoding or "ascii")
            self.bars = "▁▂▃▄▅▆▇█"
        except UnicodeEncodeError:
            self.bars = "_.-=+*%#"

    def show(self, progresses, is_last):
        now = self.clock()
        if not self.can_rewrite and not is_last and self.before is not None and now - self.before < LINE_EVERY:
            return
        width = shutil.get_terminal_size().columns - 1 if self.can_rewrite else 160
        lines = [progress.line(width, self.bars) for progress in progresses]
        if lines == self.lines:
            return
        self.before, self.lines = now, lines
        up = f"\x1b[{self.shown}F" if self.shown else ""
        ending = "\x1b[K\n" if self.can_rewrite else "\n"
        self.out.write(up + "".join(line + ending for line in lines))
        self.out.flush()
        self.shown = len(progresses) if self.can_rewrite else 0


def follow(runs, sinks=(), out=None, clock=time.monotonic, sleep=time.sleep):
    """Shows `runs` until all are done or the user interrupts. Gives each new row to the `sinks`, objects with
    add(run, row, when) and flush(): see export. Raises ReportError where a run's folder is not there."""
    out = out or sys.stdout
    for run in runs:
        run.require(may_begin=True)
    progresses = [Progress(run, clock) for run in runs]
    screen = Screen(out, clock)
    is_last = False
    try:
        while not is_last:
            # The program ends after its last row, so none is missed after one more look.
            is_last = all([progress.is_done() for progress in progresses])
            for progress in progresses:
                rows = progress.look()
                for row, when in zip(rows, times(progress.run, rows) if rows else ()):
                    for sink in sinks:
                        sink.add(progress.run, row, when)
            for sink in sinks:
                sink.flush()
            screen.show(progresses, is_last)
            if not is_last:
                sleep(EVERY)
    except KeyboardInterrupt:
        out.write("\n")
