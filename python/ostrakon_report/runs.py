# SPDX-License-Identifier: Apache-2.0
"""Runs as files: the rows of metrics.jsonl, also while they are written, and the settings of deck.yaml."""

import json
import math
import os
import re

from . import ReportError, lock

EXPECTED = "expected a run's metrics.jsonl"
EXPECTED_FOLDER = "expected a run's folder (output.directory), which has metrics.jsonl"
MOST_NAMED = 8  # runs that a message names


class Tail:
    """New rows of a metrics.jsonl that may grow, be cut off and written again.

    A run that is resumed removes the rows after its checkpoint. Rows that are still there are given once."""

    def __init__(self, path):
        self.path = path
        self.end = 0  # bytes read
        self.last = b""  # last line read
        self.known = []  # a hash of each line read

    def rows(self, is_whole=False):
        """Rows that were not given before; none while there is no file. A last line without an end waits for
        it, or if the file `is_whole`, is a row if it can be. Raises ReportError for what is no row."""
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:
            if is_whole:
                raise
            return []
        with file:
            old, rows = [], []
            file.seek(self.end - len(self.last))
            if file.read(len(self.last)) != self.last:  # the file has changed before its end
                old, self.known, self.end = self.known, [], 0
                file.seek(0)
            for line in file:
                number = len(self.known) + 1
                if not line.endswith(b"\n") and not (is_whole and is_json(line)):
                    break
                self.known.append(hash(line))
                self.end += len(line)
                self.last = line
                if number > len(old) or old[number - 1] != self.known[-1]:
                    old = []
                    rows.append(self.row(line, number))
        return rows

    def row(self, line, number):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ReportError(f"{self.path}: line {number} is no JSON; {EXPECTED}") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise ReportError(f"{self.path}: line {number} has no step; {EXPECTED}")
        return row


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except ValueError as error:
        raise ReportError(f"{path}: is no JSON: {error}") from error


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class History:
    """Rows of steps, and other rows such as those of validations, in order. A row of a step that is there
    already, as a resumed run writes it, replaces it and all that came after it."""

    def __init__(self):
        self.steps = []
        self.others = []
        self.columns = {}  # those that were asked for since the last row

    def add(self, row):
        self.columns.clear()
        step = row["step"]
        if "loss" in row:
            for rows in (self.steps, self.others):
                while rows and rows[-1]["step"] >= step:
                    rows.pop()
            self.steps.append(row)
        else:
            after = len(self.others)
            while after and self.others[after - 1]["step"] >= step:
                after -= 1
            same = [one for one in self.others[after:] if one["step"] == step and one.keys() != row.keys()]
            self.others[after:] = [*same, row]

    def rows(self):
        """All rows by step, those of steps first."""
        return sorted(self.steps + self.others, key=lambda row: row["step"])

    def column(self, name):
        """Steps and values of a field, of rows of steps or else of others; NaN where a value was not finite."""
        if name not in self.columns:
            rows = [row for row in self.steps if name in row] or [row for row in self.others if name in row]
            self.columns[name] = ([row["step"] for row in rows],
                                  [math.nan if row[name] is None else row[name] for row in rows])
        return self.columns[name]


class Run:
    """A run by its folder (output.directory) or its metrics.jsonl."""

    def __init__(self, path, label):
        self.path = path
        self.metrics = metrics_of(path)
        self.folder = os.path.dirname(os.path.abspath(self.metrics))
        self.label = label
        self.tail = Tail(self.metrics)
        self.history = History()

    def require(self, may_begin=False):
        """Raises ReportError unless the metrics.jsonl is there, or where the run `may_begin` later, a folder for it."""
        if os.path.exists(self.metrics):
            return
        if not os.path.isdir(self.folder):
            raise ReportError(f"{self.path}: does not exist; {EXPECTED_FOLDER}")
        if inside := runs_in(os.path.dirname(self.metrics) or "."):
            more = len(inside) - MOST_NAMED
            raise ReportError(f"{self.path}: has no {os.path.basename(self.metrics)}; {EXPECTED_FOLDER}, such as "
                              + ", ".join(inside[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else ""))
        if not may_begin:
            raise ReportError(f"{self.path}: has no metrics.jsonl; {EXPECTED_FOLDER}" if os.path.isdir(self.path)
                              else f"{self.path}: does not exist; {EXPECTED}")

    def read(self, is_whole=False):
        """Adds new rows to the history, and returns them."""
        rows = self.tail.rows(is_whole)
        for row in rows:
            self.history.add(row)
        return rows

    def settings(self):
        """Values of deck.yaml by "section.key", as they are written there; empty without such a file."""
        try:
            with open(os.path.join(self.folder, "deck.yaml"), encoding="utf-8") as file:
                return read_settings(file)
        except FileNotFoundError:
            return {}

    def last_step(self):
        """training.steps, or None."""
        steps = self.settings().get("training.steps", "")
        return int(steps) if steps.isdigit() else None

    def state(self):
        """Why no program trains in the folder, or "" if one may: where it was killed on another host, that is not
        known."""
        path = os.path.join(self.folder, "run.lock")
        if not os.path.exists(path):
            return "not running"
        process = lock.gone_process(path)
        return "" if process is None else f"process {process} is gone"


def read_settings(lines):
    """The settings of a deck.yaml as a run writes it: a line for each section and for each key."""
    settings, section = {}, ""
    for line in lines:
        if found := re.match(r"  (\w+):", line):
            section = found[1]
        elif found := re.match(r'    (\w+): (?:"((?:[^"\\]|\\.)*)"|([^#]*?))\s*(?:#|$)', line):
            settings[f"{section}.{found[1]}"] = found[2] if found[3] is None else found[3]
    return settings


def metrics_of(path):
    is_file = os.path.isfile(path) or (path.endswith(".jsonl") and not os.path.isdir(path))
    return path if is_file else os.path.join(path, "metrics.jsonl")


def runs_in(folder):
    """The runs' folders that are in a folder."""
    return sorted(entry.path for entry in os.scandir(folder) if os.path.isfile(os.path.join(entry.path, "metrics.jsonl")))


def labels_of(paths):
    """What distinguishes the folders of runs: "a", or "a/run-1" and "b/run-1"; with the file's name where a
    folder has several."""
    files = [os.path.abspath(metrics_of(path)) for path in paths]
    folders = [os.path.dirname(file) for file in files]
    common = os.path.commonpath([os.path.dirname(folder) for folder in folders])
    labels = [os.path.relpath(folder, common) for folder in folders]
    return [label if folders.count(folder) == 1 else f"{label}/{os.path.basename(file)}"
            for label, folder, file in zip(labels, folders, files)]


def make_runs(paths):
    return [Run(path, label) for path, label in zip(paths, labels_of(paths))]


def read_runs(paths):
    """Runs with all that their files have now. Raises ReportError where one has no step."""
    runs = make_runs(paths)
    for run in runs:
        run.require()
        run.read(is_whole=True)
        if not run.history.steps:
            raise ReportError(f"{run.metrics}: has no step; {EXPECTED}")
    return runs
