# SPDX-License-Identifier: Apache-2.0
"""Rows of runs for TensorBoard, Weights & Biases and MLflow, by their own packages, which need not be there.

Each takes rows as they come, by add(run, row, when) and flush(), and ends with close(). `when` is in seconds
since 1970."""

import glob
import importlib
import os
import sys

from . import ReportError

# Fields of rows by the name under which others show them; numbers of other fields are "other/FIELD".
NAMES = {
    "loss": "loss/training", "validation_loss": "loss/validation",
    "ema_validation_loss": "loss/ema_validation", "bits_per_byte": "loss/bits_per_byte",
    "multi_token_loss": "loss/multi_token", "grad_norm": "optimizer/grad_norm",
    "learning_rate": "optimizer/learning_rate", "loss_scale": "optimizer/loss_scale", "tokens": "progress/tokens",
    "step_seconds": "speed/step_seconds", "tokens_per_second": "speed/tokens_per_second", "mfu": "speed/mfu",
    "planned_peak_bytes": "memory/planned_peak_bytes", "peak_bytes": "memory/peak_bytes",
    "resident_bytes": "memory/resident_bytes", "allocations": "memory/allocations",
}


def numbers(row):
    """The numbers of a row by name; what was not finite is left out, a skipped step is 1."""
    found = {NAMES.get(name, f"other/{name}"): float(value) for name, value in row.items()
             if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)}
    if "expert_load" in row:
        found["experts/most_load"] = float(row["expert_load"]["max"])
    for file, findings in row.get("evaluation", {}).items():
        found.update({f"evaluation/{file}/{name}": float(value) for name, value in findings.items() if value is not None})
    if "skipped" in row:
        found["optimizer/skipped"] = 1.0
    return found


def times(run, rows):
    """When the rows were written, as they don't say: the last one when the file changed last, others by the
    steps' seconds before it."""
    when, result = os.path.getmtime(run.metrics), []
    for row in reversed(rows):
        result.append(when)
        when -= row.get("step_seconds", 0.0)
    return result[::-1]


def load(packages, of):
    """The first of the modules that is there, or ReportError. `packages`: modules by the name pip knows."""
    for module in packages.values():
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    names = " or ".join(packages)
    raise ReportError(f"{of}: no Python package {names}; expected one where {os.path.basename(sys.executable)} "
                      f"finds it, such as by pip install {next(iter(packages))}")


class Sink:
    """One of the classes below, made with the value of a command line's option. What its package raises is a
    ReportError that names both."""

    def __init__(self, option, value, make):
        self.option = f"{option} {value}"
        self.sink = self.guarded(make, value)

    def guarded(self, work, *arguments):
        try:
            return work(*arguments)
        except (ReportError, OSError):
            raise
        except Exception as error:  # pylint: disable=broad-except - of packages that are not known here
            raise ReportError(f"{self.option}: {' '.join(str(error).split()) or type(error).__name__}") from error

    def add(self, run, row, when):
        self.guarded(self.sink.add, run, row, when)

    def flush(self):
        self.guarded(self.sink.flush)

    def close(self):
        self.guarded(self.sink.close)


class TensorBoard:
    """A folder of event files below `folder` for each run. Files that this class wrote there before are
    replaced. Steps that a resumed run computes again replace those before."""

    ENDING = ".ostrakon"

    def __init__(self, folder):
        writer = load({"tensorboard": "tensorboard.summary.writer.event_file_writer",
                       "tensorboardX": "tensorboardX.event_file_writer"}, "--tensorboard")
        protocol = "tensorboard.compat.proto" if writer.__name__.startswith("tensorboard.") else "tensorboardX.proto"
        self.event = importlib.import_module(protocol + ".event_pb2")
        self.summary = importlib.import_module(protocol + ".summary_pb2")
        self.make = writer.EventFileWriter
        self.folder = folder
        self.writers = {}
        self.last = {}  # of each run, the last step

    def writer(self, run):
        if run not in self.writers:
            folder = os.path.join(self.folder, run.label)
            for file in glob.glob(os.path.join(glob.escape(folder), "events.out.tfevents.*" + self.ENDING)):
                os.remove(file)
            self.writers[run] = self.make(folder, filename_suffix=self.ENDING)
        return self.writers[run]

    def add(self, run, row, when):
        step, writer = row["step"], self.writer(run)
        if "loss" in row:
            if step <= self.last.get(run, -1):  # from this step on, what was written before is void
                start = self.event.SessionLog(status=self.event.SessionLog.START)
                writer.add_event(self.event.Event(wall_time=when, step=step, session_log=start))
            self.last[run] = step
        values = [self.summary.Summary.Value(tag=name, simple_value=value) for name, value in numbers(row).items()]
        writer.add_event(self.event.Event(wall_time=when, step=step, summary=self.summary.Summary(value=values)))

    def flush(self):
        for writer in self.writers.values():
            writer.flush()

    def close(self):
        for writer in self.writers.values():
            writer.close()


class Once:
    """Lets each step of a run pass once, for services that replace nothing."""

    def __init__(self):
        self.last = {}

    def passes(self, run, row):
        kind = (run, frozenset(row) if "loss" not in row else "step")
        if row["step"] <= self.last.get(kind, -1):
            return False
        self.last[kind] = row["step"]
        return True


class WeightsAndBiases:
    """A run of a Weights & Biases project for each run. A step that is computed again is not sent again."""

    def __init__(self, project):
        self.wandb = load({"wandb": "wandb"}, "--wandb")
        self.project = project
        self.runs = {}
        self.once = Once()

    def add(self, run, row, when):
        if not self.once.passes(run, row):
            return
        if run not in self.runs:
            self.runs[run] = self.wandb.init(project=self.project, name=run.label, config=run.settings(),
                                             reinit="create_new")
        self.runs[run].log(dict(numbers(row), _timestamp=when), step=row["step"])

    def flush(self):
        pass  # the package sends by itself

    def close(self):
        for run in self.runs.values():
            run.finish()


class MLflow:
    """A run of an MLflow experiment for each run, on the server that MLFLOW_TRACKING_URI names. A step that is
    computed again is not sent again."""

    MOST_PARAMETERS, MOST_METRICS, LONGEST = 100, 1000, 500  # of a message; characters of a setting

    def __init__(self, experiment):
        self.mlflow = load({"mlflow": "mlflow", "mlflow-skinny": "mlflow"}, "--mlflow")
        self.client = self.mlflow.MlflowClient()
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = found.experiment_id if found else self.client.create_experiment(experiment)
        self.runs = {}
        self.waiting = {}  # of each run, metrics that are to be sent
        self.once = Once()

    def add(self, run, row, when):
        if not self.once.passes(run, row):
            return
        if run not in self.runs:
            self.begin(run)
        metric, metrics = self.mlflow.entities.Metric, self.waiting[run]
        metrics += [metric(name, value, int(1000 * when), row["step"]) for name, value in numbers(row).items()]
        if len(metrics) >= self.MOST_METRICS // 2:
            self.send(run)

    def begin(self, run):
        made = self.client.create_run(self.experiment, run_name=run.label).info.run_id
        self.runs[run], self.waiting[run] = made, []
        parameters = [self.mlflow.entities.Param(name, value[:self.LONGEST]) for name, value in run.settings().items()]
        for begin in range(0, len(parameters), self.MOST_PARAMETERS):
            self.client.log_batch(made, params=parameters[begin:begin + self.MOST_PARAMETERS])

    def send(self, run):
        if self.waiting[run]:
            self.client.log_batch(self.runs[run], metrics=self.waiting[run])
        self.waiting[run] = []

    def flush(self):
        for run in self.runs:
            self.send(run)

    def close(self):
        self.flush()
        for run in self.runs.values():
            self.client.set_terminated(run)
