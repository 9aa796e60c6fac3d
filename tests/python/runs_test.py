# SPDX-License-Identifier: Apache-2.0
"""Runs as pages and in a terminal."""

import json
import math
import random
import re
import socket
import statistics
import subprocess
import sys
import unittest
from unittest import mock

from run_files import DECK, SOURCE, Folder, lines, row  # sets the path of the package
from ostrakon_report import charts, follow, lock, page as pages, parts, runs


class Version(Folder):
    def test_it_is_that_of_the_project(self):
        project = (SOURCE / "CMakeLists.txt").read_text()
        self.assertEqual(self.call("--version"), (0, f"ostrakon-report {re.search('VERSION ([0-9.]+) LANG', project)[1]}\n"))


class Rows(Folder):
    def test_a_tail_gives_what_is_new_and_whole(self):
        path = self.folder / "metrics.jsonl"
        tail = runs.Tail(str(path))
        self.assertEqual(tail.rows(), [])
        path.write_text(lines([row(1), row(2)]) + '{"step":3,"lo')
        self.assertEqual([one["step"] for one in tail.rows()], [1, 2])
        self.assertEqual(tail.rows(), [])
        path.write_text(lines([row(1), row(2), row(3)]))
        self.assertEqual([one["step"] for one in tail.rows()], [3])

    def test_a_tail_gives_again_only_what_was_written_anew(self):
        path = self.folder / "metrics.jsonl"
        tail = runs.Tail(str(path))
        path.write_text(lines(map(row, range(1, 7))))
        tail.rows()
        path.write_text(lines(map(row, range(1, 5))))  # a resumed run removes rows after its checkpoint
        self.assertEqual(tail.rows(), [])
        path.write_text(lines([*map(row, range(1, 5)), row(5, step_seconds=0.75), row(6)]))
        self.assertEqual([one["step"] for one in tail.rows()], [5, 6])
        path.write_text(lines([*map(row, range(1, 3)), *(row(step, step_seconds=0.1) for step in range(3, 9))]))
        self.assertEqual([one["step"] for one in tail.rows()], [3, 4, 5, 6, 7, 8])

    def test_later_rows_of_a_step_replace_it_and_what_came_after(self):
        history = runs.History()
        for one in (row(1), row(2), {"step": 2, "validation_loss": 2.0}, row(3), {"step": 3, "validation_loss": 1.0},
                    row(2, loss=None), {"step": 2, "validation_loss": 3.0}, {"step": 2, "probe": 1.0},
                    {"step": 2, "validation_loss": 4.0}):
            history.add(one)
        steps, losses = history.column("loss")
        self.assertEqual(steps, [1, 2])
        self.assertTrue(math.isnan(losses[1]))
        self.assertEqual(history.column("validation_loss"), ([2], [4.0]))
        self.assertEqual([one["step"] for one in history.rows()], [1, 2, 2, 2])

    def test_settings_are_read_as_written(self):
        settings = runs.read_settings(DECK.format(steps=8, rate="1e-3").splitlines())
        self.assertEqual(settings, {"training.steps": "8", "optimizer.learning_rate": "1e-3",
                                    "output.directory": 'a \\"#\\" <b>'})

    def test_labels_tell_runs_apart(self):
        self.assertEqual(runs.labels_of(["x/a", "x/b/metrics.jsonl"]), ["a", "b"])
        self.assertEqual(runs.labels_of(["x/a/metrics.jsonl", "x/a/metrics.previous.jsonl"]),
                         ["a/metrics.jsonl", "a/metrics.previous.jsonl"])


class Charts(unittest.TestCase):
    def test_columns_have_mean_least_and_most_of_their_steps(self):
        chance = random.Random(1)
        steps = list(range(11, 5011))
        values = [chance.gauss(0, 1) for _ in steps]
        values[1234] = 50.0
        grid = charts.Grid.of(11, 5010, 700)
        points = charts.points_of(charts.Curve(0, "", steps, values), grid)
        self.assertEqual(points.columns, list(range(700)))
        self.assertEqual(max(points.most), 50.0)
        self.assertEqual(min(points.least), min(values))
        for column in (0, 1, 171, 699):
            begin, end = (math.ceil(5000 * i / 700) for i in (column, column + 1))
            part = values[begin:end]
            self.assertAlmostEqual(points.means[column], statistics.fmean(part))
            self.assertEqual((points.least[column], points.most[column]), (min(part), max(part)))

    def test_a_line_ends_where_values_are_not_finite(self):
        curve = charts.Curve(0, "", [1, 2, 3, 4, 5, 6], [1.0, 2.0, math.nan, math.inf, 3.0, 4.0])
        points = charts.points_of(curve, charts.Grid.of(1, 6, 700))
        self.assertEqual((points.columns, points.broken), ([0, 1, 4, 5], [2, 3]))
        self.assertEqual(list(charts.stretches(points)), [(0, 2), (2, 4)])

    def test_axes_hold_all_values_and_have_ticks(self):
        for low, high in ((2.0, 5.6), (0.001, 40.0), (0, 0), (3, 3), (-2, -1), (1e-12, 1e12), (-5, 1e6), (1e9, 1.001e9)):
            for from_zero in (False, True):
                for kind in ("number", "bytes", "percent"):
                    axis = charts.Axis(low, high, kind, from_zero)
                    self.assertLessEqual(0.0, axis.place(low))
                    self.assertLessEqual(axis.place(high), 1.0)
                    self.assertIn(len(axis.ticks), range(2, 8), (low, high, from_zero, kind))
                    self.assertTrue(all(-1e-9 <= axis.place(tick) <= 1 + 1e-9 for tick in axis.ticks))
                    self.assertEqual(len({axis.text(tick) for tick in axis.ticks}), len(axis.ticks), (low, high, kind))

    def test_paths_lead_through_all_points_but_those_inside_of_level_lines(self):
        self.assertEqual(charts.moves([(0, 5), (1, 5), (2, 5), (3, 7), (3, 9)]), "M0 5h2l1 2v2")


class Parts(unittest.TestCase):
    def test_time_is_of_compute_first_and_of_others_where_they_are_exposed(self):
        found = parts.divide([(0, "forward", 0.0, 2.0), (1, "gather", 1.0, 3.0), (0, "backward", 4.0, 5.0),
                              (5, "other", 2.5, 3.5)], 6.0)
        self.assertEqual(found, {"forward": 2.0, "exposed gather": 1.0, "exposed other": 0.5, "backward": 1.0,
                                 "waiting": 1.5})


class Page(Folder):
    def page(self, *arguments):
        out = self.folder / "page.html"
        self.assertEqual(self.call(*arguments, "--html", out), (0, ""))
        return out.read_text()

    def chart(self, page, title):
        figure = next(part for part in page.split("<figure")[1:] if f"<figcaption>{title}" in part)
        return json.loads(re.search(r'application/json">(.*?)</script>', figure)[1])

    def test_several_runs(self):
        load = {"max": 1.5, "layers": [[0.5, 1.5]]}
        rows = [row(step, expert_load=load) for step in range(1, 9)]
        rows[3].update(loss=None, skipped="it was <not> finite")
        rows.insert(4, {"step": 4, "validation_loss": 1.25, "bits_per_byte": 2.5})
        rows.insert(5, {"step": 4, "evaluation": {"salt.jsonl": {"acc": 0.25, "perplexity": 3.0}}})
        one, two = self.run_folder("one", rows), self.run_folder("two", rows[:2], rate="3e-4")
        event = {"ph": "X", "pid": 0, "args": {"step": 2}}
        (one / "trace.json").write_text(json.dumps({"traceEvents": [
            {"ph": "M"}, dict(event, tid=0, cat="forward", ts=0, dur=3e5), dict(event, tid=1, cat="gather", ts=2e5, dur=2e5)]}))
        page = self.page(one, two)
        for words in ("Training: one, two", "<td>8 of 8</td>", "<td>2 of 8</td>", "1.25 at step 4", "Load of experts",
                      "it was &lt;not&gt; finite: step 4", "forward 60.0 %", "exposed gather 20.0 %", "waiting 20.0 %",
                      "<td>optimizer.learning_rate</td>", "Charts show every step", "There is no plan.json"):
            self.assertTrue(words in page, words)
        differ = page[page.index("What differs"):page.index("All settings")]
        self.assertIn("3e-4", differ)
        self.assertNotIn("training.steps", differ)
        for outside in ("src=\"http", "href=\"http", "@import", "url("):
            self.assertFalse(outside in page, outside)
        training, validation, _ = self.chart(page, "Loss\n")
        self.assertEqual((training["c"], training["m"]), ([0, 1, 2, 4, 5, 6, 7],
                                                          [4, 2, 1.3333, 0.8, 0.66667, 0.57143, 0.5]))
        self.assertEqual((validation["c"], validation["m"]), (3, 1.25))
        (answers,) = self.chart(page, "Questions\n")
        self.assertEqual((answers["c"], answers["m"]), (3, 0.25))
        self.assertTrue(page == self.page(one, two), "the same every time")

    def test_times_of_ranks(self):
        rows = [row(1), row(2), row(3)]
        for index, steps, compute, late in ((1, 1, [1.0, 3.0], []), (2, 3, [1.0, 1.0], [
                {"rank": 1, "part": "compute", "seconds": 3.0, "median": 1.0, "share": 0.25}])):
            rows[index]["rank_seconds"] = {"steps": steps, "step": [4.0, 4.0], "compute": compute, "data": [0.0, 0.0],
                                           "copies": [0.0, 0.0], "between_steps": [0.5, 0.25],
                                           "communication": [2.0, 0.0], "late": late}
        page = self.page(self.run_folder("one", rows))
        for words in ("<td>compute</td><td>1.25 s</td><td>1 s (rank 0)</td><td>1.5 s (rank 1)</td>",
                      "<td>between steps</td><td>375 ms</td><td>250 ms (rank 1)</td><td>500 ms (rank 0)</td>",
                      "rank 1 was late by compute in 1 of 2 windows, which cost at most 25.0 % of the step"):
            self.assertTrue(words in page, words)
        self.assertFalse("<td>data</td>" in page)
        mean, most, communication = self.chart(page, "Time of a step")
        self.assertEqual((mean["m"], most["m"], communication["m"]), ([2.0, 1.0], [3.0, 1.0], 1.0))

    def test_a_single_value_is_a_dot(self):
        grid = charts.Grid(1, 1.0, 4)
        for values, dots in (([2.0], 1), ([2.0, math.nan, 4.0, 4.0], 1), ([2.0, 4.0], 0)):
            chart = charts.Chart("", "", [charts.Curve(0, "", list(range(1, len(values) + 1)), values)])
            self.assertTrue(chart.lay_out(grid))
            self.assertEqual(chart.shapes[0]["dots"].count("h0"), dots)
            self.assertEqual(chart.shapes[0]["dots"][:5], "M500 " if dots else "")

    def test_short_runs_have_parts_of_a_second(self):
        page = self.page(self.run_folder("one", [row(1, step_seconds=0.25), row(2, step_seconds=0.125)]))
        self.assertTrue("<td>Time in steps</td><td>375 ms</td>" in page)

    def test_pictures_that_are_left_out_are_told_once_below_the_overview(self):
        plan = {"hash": "1", "ranks": 2, "parameter_elements": 5, "actions": [], "buffers": [], "flops": 0,
                "memory": {"peak_action": 0, "peak_action_name": "update", "arena_bytes": 8},
                "traffic": {"bytes_inside_nodes": 0, "bytes_across_nodes": 0}}
        folders = [self.run_folder(name, [row(1)]) for name in ("a b", "two")]
        for index, folder in enumerate(folders):
            (folder / "plan.json").write_text(json.dumps({**plan, "hash": str(index)}))
        with mock.patch.object(pages, "draw_plan", lambda _: None):
            shown = self.page(*folders)
        said = "as this python3 has no matplotlib; one is drawn by ostrakon-report plan &#39;"
        self.assertEqual(shown.count(said), 1)
        self.assertTrue(shown.index("Skipped steps") < shown.index(said) < shown.index("Over the steps"))
        self.assertFalse("python3 -m" in shown)

    def test_a_long_run_is_a_small_page_that_loses_no_spike(self):
        chance = random.Random(2)
        rows = [row(step, loss=2 + chance.random(), grad_norm=chance.random(), tokens_per_second=chance.random())
                for step in range(1, 20_001)]
        rows[7776]["loss"] = 77.0
        page = self.page(self.run_folder("long", rows))
        self.assertLess(len(page), 400_000)
        self.assertTrue("700 columns of 28.57 steps" in page)
        (loss,) = self.chart(page, "Loss\n")
        self.assertEqual(max(loss["b"]), 77)
        self.assertEqual(loss["b"].index(77), 7776 * 700 // 20_000)
        self.assertEqual(len(loss["m"]), 700)

    def test_pictures_of_runs_have_the_same_page(self):
        folder = self.run_folder("one", [row(1), row(2)])
        self.assertEqual(self.call("run", folder, "-o", self.folder / "other.html"), (0, ""))
        self.assertTrue((self.folder / "other.html").read_text() == self.page(folder))

    def test_what_can_not_be_done_is_told_in_one_line(self):
        folder, two, empty = (self.run_folder(name, rows) for name, rows in (
            ("one", [row(1)]), ("two", [row(1)]), ("empty", [])))
        (folder / "plan.json").write_text('{"ranks": 2}')
        (self.folder / "bare").mkdir()
        with mock.patch.dict(sys.modules, dict.fromkeys(["tensorboard", "tensorboard.summary.writer.event_file_writer", "tensorboardX"])):
            for arguments, words in (
                    ([empty, "--html", self.folder / "x.html"], "has no step; expected a run's metrics.jsonl"),
                    ([folder, "--html", self.folder / "x.html"], "one: is not what is drawn here (no 'hash'); expected files of training runs"),
                    ([self.folder, "--html", self.folder / "x.html"], "has no metrics.jsonl; expected a run's folder "
                     f"(output.directory), which has metrics.jsonl, such as {self.folder}/empty, {self.folder}/one, {self.folder}/two\n"),
                    ([self.folder / "bare", "--html", self.folder / "x.html"], "bare: has no metrics.jsonl; expected a run's folder"),
                    ([self.folder / "bare" / "metrics.jsonl", "--html", "x"], "bare/metrics.jsonl: does not exist; expected a run's metrics"),
                    ([self.folder / "none", "--follow"], "none: does not exist; expected a run's folder"),
                    ([self.folder, "--follow"], f"such as {self.folder}/empty"),
                    ([two, "--html", self.folder / "none" / "x.html"], "x.html: can't be written: No such file"),
                    ([self.folder / "none", "--html", self.folder / "x.html"], "ostrakon-report: error: "
                     f"{self.folder}/none: does not exist; expected a run's folder"),
                    ([folder, "--tensorboard", self.folder / "x"], "--tensorboard: no Python package tensorboard or tensorboardX")):
                status, said = self.call(*arguments)
                self.assertEqual((status, said.count("\n")), (1, 1), said)
                self.assertIn(words, said)
        status, said = self.call(folder)
        self.assertEqual(status, 2)
        self.assertIn("nothing to do; expected --html", said)
        for arguments, option in (([folder, "--htm", "x.html"], "--htm"), (["run", folder, "-o", "x.svg", "--tit", "a"], "--tit")):
            status, said = self.call(*arguments)
            self.assertEqual(status, 2)
            self.assertIn(f"unrecognized arguments: {option}", said)


class Terminal:
    """A terminal, or a file."""

    encoding = "utf-8"

    def __init__(self, is_terminal):
        self.isatty = lambda: is_terminal
        self.text = ""

    def write(self, words):
        self.text += words

    def flush(self):
        pass


class Collect:
    """A sink."""

    def __init__(self):
        self.steps = []

    def add(self, _, one, when):
        self.steps.append(one["step"])
        self.when = when

    def flush(self):
        pass


def interrupt():
    raise KeyboardInterrupt


class Follow(Folder):
    def follow(self, folder, changes, is_terminal):
        """Follows a run; before each look but the first one of `changes` is made, and a minute passes."""
        changes, out, sink, now = iter(changes), Terminal(is_terminal), Collect(), [0.0]

        def sleep(_):
            now[0] += 60.0
            next(changes, lambda: None)()

        follow.follow(runs.make_runs([str(folder)]), [sink], out, lambda: now[0], sleep)
        return out.text, sink

    def test_a_run_until_it_is_done(self):
        folder = self.run_folder("one", [], steps=1000)
        lock, metrics = folder / "run.lock", folder / "metrics.jsonl"
        lock.touch()

        def write(last, **more):
            return lambda: metrics.write_text(lines(row(step, **more) for step in range(1, last + 1)))

        def validate():
            with metrics.open("a") as file:
                file.write(lines([{"step": 1000, "validation_loss": 0.5}]))
            lock.unlink()

        text, sink = self.follow(folder, [write(400), write(600), write(1000), lambda: None, validate], False)
        shown = text.splitlines()
        self.assertEqual(shown[0], "one  no step yet")
        # 600 steps of 0.5 seconds; then 200 steps were seen in a minute.
        self.assertIn("one  step 400/1,000 40 %  00:05:00 to go  loss 0.0100 █", shown[1])
        self.assertIn("one  step 600/1,000 60 %  00:02:00 to go", shown[2])
        self.assertIn("one  step 1,000/1,000 100 %  done  loss 0.0040", shown[3])
        self.assertIn("validation 0.5000", shown[-1])
        self.assertEqual(sink.steps, [*range(1, 1001), 1000])

    def test_a_resumed_run_on_a_terminal(self):
        folder = self.run_folder("one", map(row, range(1, 7)))
        resumed = lines([*map(row, range(1, 5)), *(row(step, loss=9.0) for step in range(5, 9))])
        text, sink = self.follow(folder, [lambda: (folder / "metrics.jsonl").write_text(resumed)], True)
        self.assertEqual(sink.steps, [1, 2, 3, 4, 5, 6, 5, 6, 7, 8])
        first, second = text.split("\x1b[1F")
        self.assertIn("step 6/8 75 %  not running", first)
        self.assertIn("step 8/8 100 %  done  loss 9.0000", second)

    def test_a_run_that_has_not_begun(self):
        (self.folder / "one").mkdir()
        path = self.folder / "one" / "metrics.jsonl"
        text, _ = self.follow(self.folder / "one", [lambda: path.write_text(lines([row(1)])), interrupt], False)
        self.assertEqual(text.splitlines()[0], f"one  no step yet  waits for {path}")

    def test_a_killed_run_is_seen_on_its_host(self):
        folder = self.run_folder("one", [row(1)])
        killed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.addCleanup(killed.stdin.close)
        lines_of_lock = {"id": "5", "host": socket.gethostname(), "boot": lock.read_text("/proc/sys/kernel/random/boot_id").strip(),
                         "processes": lock.own_processes(), "process": killed.pid, "started": lock.start_of(killed.pid)}

        def write(**other):
            text = "".join(f"{key}: {value}\n" for key, value in {**lines_of_lock, **other}.items())
            (folder / "run.lock").write_text("This folder is in use by a run of Ostrakon; see docs/jobs.md.\n" + text)

        run = runs.Run(str(folder), "one")
        write()
        self.assertEqual(run.state(), "")
        write(started=1)  # another process has the number now
        self.assertEqual(run.state(), f"process {killed.pid} is gone")
        killed.kill()
        killed.wait()
        for other in ({"host": "elsewhere"}, {"boot": "another"}, {"processes": "pid:[1]"}, {"process": 0}, {"process": "x"}):
            write(**other)
            self.assertEqual(run.state(), "", other)
        write()
        text, _ = self.follow(folder, [interrupt], False)
        self.assertIn(f"one  step 1/8 12 %  process {killed.pid} is gone  loss", text)
        (folder / "run.lock").unlink()
        self.assertEqual(run.state(), "not running")

    def test_sparklines(self):
        self.assertEqual(follow.sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8), "▁▂▃▄▅▆▇█")
        self.assertEqual(follow.sparkline([math.nan, 1, 3, 3], 2), "▁█")
        self.assertEqual(follow.sparkline([math.nan, math.nan, 2], 3), "  ▁")
        self.assertEqual(follow.sparkline([], 8), "")


if __name__ == "__main__":
    unittest.main()
