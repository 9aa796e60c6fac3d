# SPDX-License-Identifier: Apache-2.0
"""Runs for TensorBoard, Weights & Biases and MLflow, whose packages are replaced where they are not there."""

import importlib.util
import os
import sys
import types
import unittest
from unittest import mock

from run_files import Folder, row  # sets the path of the package
from ostrakon_report import export, runs


class FakeWriter:
    """EventFileWriter, which keeps events."""

    made = []

    def __init__(self, folder, filename_suffix):
        self.folder, self.ending, self.events = folder, filename_suffix, []
        FakeWriter.made.append(self)

    def add_event(self, event):
        self.events.append(event)

    def flush(self):
        pass

    def close(self):
        self.is_closed = True


def fake_tensorboard():
    def message(**fields):
        return types.SimpleNamespace(**fields)

    session = types.SimpleNamespace(START=1)
    event = types.SimpleNamespace(Event=message, SessionLog=type("Log", (), {
        "START": 1, "__new__": lambda cls, status: session}))
    summary = types.SimpleNamespace(Summary=type("Summary", (), {
        "Value": staticmethod(message), "__new__": lambda cls, value: {one.tag: one.simple_value for one in value}}))
    package, protocol = types.ModuleType("tensorboardX"), types.ModuleType("tensorboardX.proto")
    writer = types.ModuleType("tensorboardX.event_file_writer")
    writer.EventFileWriter = FakeWriter
    return {"tensorboard": None, "tensorboard.summary.writer.event_file_writer": None, "tensorboardX": package,
            "tensorboardX.event_file_writer": writer, "tensorboardX.proto": protocol,
            "tensorboardX.proto.event_pb2": event,
            "tensorboardX.proto.summary_pb2": summary}


RESUMED = [row(1), row(2), row(3), {"step": 3, "validation_loss": 1.5}, row(2, loss=7.0), row(3), row(4, loss=None),
           {"step": 4, "validation_loss": 1.0}]


class Export(Folder):
    def test_numbers_have_names(self):
        found = export.numbers(row(2, skipped="why", new_field=3, update_repeated=True, loss=None))
        self.assertEqual((found["optimizer/skipped"], found["other/new_field"], found["speed/mfu"]), (1.0, 3.0, 0.25))
        found = export.numbers({"step": 4, "evaluation": {"a.jsonl": {"acc": 0.5, "perplexity": None}},
                                "ema_validation_loss": 1.5})
        self.assertEqual(found, {"evaluation/a.jsonl/acc": 0.5, "loss/ema_validation": 1.5})
        found = export.numbers(row(2, skipped="why", new_field=3, update_repeated=True, loss=None))
        self.assertFalse({"loss/training", "other/update_repeated", "other/step"} & set(found))

    def test_times_count_back_from_the_last_change(self):
        folder = self.run_folder("one", [row(1), row(2), {"step": 2, "validation_loss": 1.0}])
        os.utime(folder / "metrics.jsonl", (1000.0, 1000.0))
        (run,) = runs.read_runs([str(folder)])
        self.assertEqual(export.times(run, run.history.rows()), [999.5, 1000.0, 1000.0])

    def test_tensorboard_voids_steps_that_are_computed_again(self):
        FakeWriter.made = []
        folder = self.folder / "events" / "one"
        folder.mkdir(parents=True)
        old, other = folder / "events.out.tfevents.1.host.ostrakon", folder / "events.out.tfevents.1.host"
        old.touch()
        other.touch()
        run = runs.Run(str(self.folder), "one")
        with mock.patch.dict(sys.modules, fake_tensorboard()):
            board = export.TensorBoard(str(self.folder / "events"))
            for one in RESUMED:
                board.add(run, one, 5.0)
            board.close()
        (writer,) = FakeWriter.made
        self.assertEqual((writer.folder, writer.is_closed), (str(folder), True))
        self.assertEqual((old.exists(), other.exists()), (False, True))
        self.assertEqual([(event.step, hasattr(event, "session_log")) for event in writer.events],
                         [(1, False), (2, False), (3, False), (3, False), (2, True), (2, False), (3, False), (4, False),
                          (4, False)])
        self.assertEqual(writer.events[5].summary["loss/training"], 7.0)
        self.assertNotIn("loss/training", writer.events[7].summary)

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "needs tensorboard")
    def test_tensorboard_shows_each_step_once(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        run = runs.Run(str(self.folder), "one")
        board = export.TensorBoard(str(self.folder))
        for one in RESUMED:
            board.add(run, one, 5.0)
        board.close()
        shown = EventAccumulator(str(self.folder / "one")).Reload()
        self.assertEqual([(one.step, one.value) for one in shown.Scalars("loss/training")][:2], [(1, 4.0), (2, 7.0)])
        self.assertEqual([one.step for one in shown.Scalars("optimizer/grad_norm")], [1, 2, 3, 4])

    def test_weights_and_biases_has_each_step_once(self):
        logged, made = [], []
        service = types.ModuleType("wandb")

        def init(**options):
            made.append(options)
            return types.SimpleNamespace(log=lambda values, step: logged.append((step, values)),
                                         finish=lambda: logged.append("end"))

        service.init = init
        folder = self.run_folder("one", RESUMED)
        with mock.patch.dict(sys.modules, {"wandb": service}):
            self.assertEqual(self.call(folder, "--wandb", "project"), (0, ""))
        self.assertEqual([entry if entry == "end" else entry[0] for entry in logged], [1, 2, 3, 4, 4, "end"])
        self.assertEqual(logged[1][1]["loss/training"], 7.0)
        self.assertEqual((made[0]["project"], made[0]["name"], made[0]["config"]["training.steps"]), ("project", "one", "8"))
        once = export.Once()
        self.assertEqual([once.passes("run", one) for one in RESUMED], [True] * 4 + [False, False, True, True])

    def test_mlflow_has_settings_and_each_step(self):
        sent = []
        service = types.ModuleType("mlflow")
        service.entities = types.SimpleNamespace(Metric=lambda *values: values, Param=lambda *values: values)
        service.MlflowClient = lambda: types.SimpleNamespace(
            get_experiment_by_name=lambda name: None, create_experiment=lambda name: "7",
            create_run=lambda experiment, run_name: types.SimpleNamespace(info=types.SimpleNamespace(run_id="r")),
            log_batch=lambda run, metrics=(), params=(): sent.append((run, list(metrics), list(params))),
            set_terminated=sent.append)
        with mock.patch.dict(sys.modules, {"mlflow": service}):
            self.assertEqual(self.call(self.run_folder("one", [row(1), row(2)]), "--mlflow", "name"), (0, ""))
        self.assertIn(("training.steps", "8"), sent[0][2])
        self.assertEqual([(name, value, step) for name, value, _, step in sent[1][1] if name == "loss/training"],
                         [("loss/training", 4.0, 1), ("loss/training", 2.0, 2)])
        self.assertEqual(sent[-1], "r")

    def test_errors_of_services_are_one_line(self):
        service = types.ModuleType("wandb")

        def init(**_):
            raise RuntimeError("no\nkey")

        service.init = init
        with mock.patch.dict(sys.modules, {"wandb": service}):
            status, said = self.call(self.run_folder("one", [row(1)]), "--wandb", "project")
        self.assertEqual((status, said), (1, "ostrakon-report: error: --wandb project: no key\n"))


if __name__ == "__main__":
    unittest.main()
