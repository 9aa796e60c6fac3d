# SPDX-License-Identifier: Apache-2.0
"""Runs as files: the rows of metrics.jsonl, also while they are written, and the settings of deck.yaml."""

import json
import math
import os
import re

from . import ReportError

EXPECTED = "expected a run's metrics.jsonl"


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
        self.metrics = metrics_of(path)
        self.folder = os.path.dirname(os.path.abspath(self.metrics))
        self.label = label
        self.tail = Tail(self.metrics)
        self.history = History()

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

    def is_locked(self):
        """Whether a program trains in the folder, or was killed there."""
        return os.path.exists(os.path.join(self.folder, "run.lock"))


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
        run.read(is_whole=True)
        if not run.history.steps:
            raise ReportError(f"{run.metrics}: has no step; {EXPECTED}")
    return runs
