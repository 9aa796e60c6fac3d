# SPDX-License-Identifier: Apache-2.0
"""ostrakon_report as a user runs it, on what the programs of this build write."""

import contextlib
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("OSTRAKON_SOURCE", Path(__file__).parents[2]))
APPS = Path(os.environ.get("OSTRAKON_APPS", SOURCE / "build" / "apps"))
sys.path.insert(0, str(SOURCE / "python"))
from ostrakon_report import style, timeline  # noqa: E402
from ostrakon_report.__main__ import main  # noqa: E402

MACHINE = str(SOURCE / "machines" / "h100-infiniband.yaml")
DECK = str(SOURCE / "input_decks" / "quickstart.yaml")
PIPELINE = ["--ranks", "4", "--set", "parallel.pipeline=2"]
SHARES = ["compute", "imbalance", "exposed_communication", "exposed_host", "exposed_copies", "waiting"]
FACTORS = ["compute_rate", "balance", "overlap", "host", "copies", "bubbles"]


def study(prediction):
    """collected.json of two sizes, as ostrakon-scale writes it."""
    points = []
    for ranks in (1, 2):
        interval = {"mean": 1.0, "half_width": 0.05}
        points.append({
            "ranks": ranks, "nodes": 1, "runs": 2, "step_seconds": {"mean": 0.5 / ranks, "half_width": None},
            "tokens_per_second": {"mean": 2000.0 * ranks, "half_width": 12.0}, "speedup": interval,
            "ideal_speedup": float(ranks), "efficiency": interval, "superlinear": ranks == 2, "mfu": 0.25,
            "mfu_uncertain": True, "peak_bytes": 4096, "relative_factors": dict.fromkeys(FACTORS, 1.0),
            "shares": dict.fromkeys(SHARES, 1 / 6), "prediction": prediction and {
                "step_seconds": 0.45, "speedup": 1.5, "error": -0.1, "shares": dict.fromkeys(SHARES, 1 / 6)}})
    sizes = [{"prediction": prediction and {"source": "made-up rates"}}]
    return {"study": {"deck": "decks/a<b>&c.yaml", "scaling": "strong", "version": "1.2.3", "build": "a compiler",
                      "steps": 12, "warmup": 2, "repeat": 2, "sizes": sizes},
            "runs": [{}, {}, {}, {}], "points": points, "remarks": ["hosts: <one>"], "outlier_steps": ["step 7"]}


class Kinds(unittest.TestCase):
    def test_every_kind_of_action_has_a_colour(self):
        rows = re.findall(r'\{Kind::\w+, "(\w+)"', (SOURCE / "src/ostrakon/plan/ir/kinds.hpp").read_text())
        self.assertGreater(len(rows), 20)
        self.assertEqual(sorted(rows), sorted(style.GROUP_OF_KIND))


class Bars(unittest.TestCase):
    def test_short_bars_join_their_own_group_first(self):
        forward = [("forward", 0.1 * i, 0.1 * (i + 1)) for i in range(30)]  # each too short to be seen
        backward = [("backward", 3.0 + 2 * i, 5.0 + 2 * i) for i in range(2)]
        seen = timeline.joined_short(forward + backward + [("update", 7.0, 7.1)], 1.0)
        self.assertEqual([group for group, _, _ in seen], ["forward", "backward", "backward"])
        self.assertEqual([round(end, 6) for _, _, end in seen], [3.0, 5.0, 7.1])


class Report(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)

    def file(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def planned(self, *options):
        made = subprocess.run([APPS / "ostrakon-plan", DECK, "--json", *options], check=True, stdout=subprocess.PIPE)
        return self.file("plan.json", made.stdout.decode())

    def run_package(self, *arguments):
        """Exit status, standard output and error, in this process: starting another takes longer than drawing."""
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as ended:
                status = ended.code
        return status, out.getvalue(), err.getvalue()

    def draw(self, ending, *arguments):
        """The text of what is drawn."""
        self.assertEqual(self.run_package(*arguments, "-o", "out." + ending), (0, "", ""))
        return (self.folder / ("out." + ending)).read_text(encoding="utf-8")

    def expect(self, text, *parts):
        for part in parts:
            self.assertIn(part, text)

    def test_plan(self):
        plan = self.planned("--ranks", "8")
        svg = self.draw("svg", "plan", plan, "--title", "a & <b>")
        self.expect(svg, "a &amp; &lt;b&gt;", ">compute<", ">gather<", ">reduce<", ">host<", "lines are waits",
                    "forward block.0", ">activations<", "live bytes of a rank (MiB)", "arena 45.77 MiB",
                    "peak 45.77 MiB at backward(block.3, micro-batch 0)")
        self.assertEqual(svg, self.draw("svg", "plan", plan, "--title", "a & <b>"), "the same every time")
        self.assertLess(len(svg), 150_000)
        subprocess.run([sys.executable, "-m", "ostrakon_report", "plan", plan, "-o", "picture", "--format", "png"],
                       env=dict(os.environ, PYTHONPATH=str(SOURCE / "python")), check=True)
        self.assertEqual((self.folder / "picture").read_bytes()[1:4], b"PNG")

    def test_a_snapshot_has_the_planned_memory(self):
        plan = self.planned("--ranks", "2")
        content = json.loads(Path(plan).read_text())
        memory, persistent = content["memory"], sum(
            buffer["bytes"] for buffer in content["buffers"] if buffer["persistent"] and buffer["space"] == "device")
        self.assertEqual(self.run_package("snapshot", plan, "-o", "plan.pickle"), (0, "", ""))
        snapshot = pickle.loads((self.folder / "plan.pickle").read_bytes())
        segment, events = snapshot["segments"][0], snapshot["device_traces"][0]
        self.assertEqual((events[0]["action"], events[0]["size"]), ("segment_alloc", memory["arena_bytes"]))
        self.assertEqual((segment["total_size"], segment["active_size"]),
                         (memory["arena_bytes"], persistent))
        self.assertEqual(sum(block["size"] for block in segment["blocks"]), segment["total_size"])
        live, peak = {}, 0
        for event in events[1:]:
            begin, end = event["addr"], event["addr"] + event["size"]
            if event["action"] == "alloc":
                self.assertFalse([other for other in live.items() if begin < other[1] and other[0] < end], event)
                self.assertTrue(events[0]["addr"] <= begin and end <= events[0]["addr"] + events[0]["size"])
                live[begin] = end
                peak = max(peak, sum(end - begin for begin, end in live.items()))
            elif event["action"] == "free_completed":
                self.assertEqual(live.pop(begin), end)
        # The plan counts the persistent buffers with what aligns them.
        self.assertEqual(peak - persistent, memory["lower_bound_bytes"] - memory["persistent_bytes"])
        self.assertEqual(sum(end - begin for begin, end in live.items()), persistent)
        self.assertIn({"name": "embedding parameters", "filename": "begin", "line": 0},
                      [event["frames"][0] for event in events])

    def test_a_long_plan_is_cut(self):
        svg = self.draw("svg", "plan", self.planned("--set", "training.global_batch_size=800"))
        self.expect(svg, "actions are left out", ">micro-batch 0<", "peak ")
        self.assertLess(len(svg), 1_000_000)

    def test_stages_and_steps(self):
        plan = self.planned(*PIPELINE, "--time", MACHINE)
        self.expect(self.draw("svg", "stages", plan), ">stage<", ">1<", "% for each other", ">backward<",
                    "time in the step (")
        event = {"ph": "X", "pid": 0, "tid": 1, "cat": "gather", "ts": 5.0, "dur": 2e6, "args": {"step": 3}}
        events = [dict(event, pid=rank) for rank in range(4)]
        svg = self.draw("svg", "step", plan, self.file("trace.json", {"traceEvents": [{"ph": "M"}, *events]}))
        self.expect(svg, "gather, measured", "time in the step (s)", "live device memory: at most ")
        page = self.draw("html", "step", plan)
        self.expect(page, "<!doctype html>", "<svg ", "H100 SXM", "factors of MFU", "What would help", "</html>")
        for outside in ("<script", "src=", "href=\"http", "@import"):
            self.assertNotIn(outside, page)
        self.expect(self.draw("svg", "plan", self.planned(*PIPELINE, "--gflops", "7")), ">stage<", ">host<")

    def test_studies(self):
        collected = self.file("collected.json", study(True))
        page = self.draw("html", "study", collected)
        self.expect(page, "Strong scaling of a&lt;b&gt;&amp;c.yaml", ">predicted<", "hosts: &lt;one&gt;", ">Speedup<",
                    ">Efficiency<", ">Factors of the efficiency<", ">Time of a step<", "<td>100.0 ± 5.0 % superlinear</td>")
        text = self.draw("md", "study", collected)
        self.expect(text, "# Strong scaling of a<b>&c.yaml\n", "| 1 | 1 | 2 | 0.5 s | 2000 ± 12 | 2000 | ≤ 25.0 % |",
                    "| 2, predicted | 16.7 % |", "-10.0 %", "Predicted with made-up rates.", "## Outlier steps\n- step 7")
        text = self.draw("md", "study", self.file("collected.json", study(None)))
        self.expect(text, "No prediction")
        self.assertNotIn("predicted step", text)
        sweep = self.planned("--time", MACHINE, "--sweep", "ranks=1,2,4")
        self.expect(self.draw("svg", "study", sweep), "Weak scaling", ">kernels<", "% of those on 1 rank")

    def test_runs(self):
        rows = [{"step": step, "loss": None if step == 3 else 5.0 / step, "grad_norm": 1.0, "tokens_per_second": 1e4,
                 "peak_bytes": 1 << 30, "planned_peak_bytes": 1 << 30, "resident_bytes": 1 << 31} for step in range(1, 9)]
        rows.append({"step": 8, "validation_loss": 0.7})
        files = [self.file(name + "/metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows)) for name in "ab"]
        self.expect(self.draw("svg", "run", *files), ">Training: a, b<", ">a: validation<", ">Gradient norm<", ">GiB<",
                    "tokens/s of all ranks")

    def test_bad_files_are_refused_in_one_line(self):
        text, empty, number = self.file("a.txt", "{"), self.file("empty.json", {}), self.file("one.json", "1")
        timed = Path(self.planned("--time", MACHINE)).rename(self.folder / "timed.json")
        plan = self.planned("--ranks", "2")
        torn = self.file("torn.json", {"timelines": [{"actions": []}]})
        for arguments, words in (
                (["plan", "none.json"], "none.json"), (["plan", text], "a.txt: is no JSON"),
                (["plan", empty], "empty.json: is not what is drawn here (no 'actions')"),
                (["plan", number], "one.json: is not what is drawn here"),
                (["stages", plan], "plan.json: has no timelines"), (["step", torn], "torn.json: is not what"),
                (["study", plan], "plan.json: has no points"), (["run", plan], "plan.json: line 1 is no JSON"),
                (["run", empty], "empty.json: line 1 has no step"), (["plan", plan, plan], "plan takes 1 file; found 2"),
                (["step", timed, empty], "empty.json: has no actions of rank 0")):
            status, out, err = self.run_package(*arguments, "-o", "out.svg")
            self.assertEqual((status, out), (1, ""), arguments)
            self.assertEqual(err.count("\n"), 1, err)
            self.expect(err, "ostrakon-report: error: ", words)
        _, _, err = self.run_package("plan", plan, "-o", "out.pdf")
        self.expect(err, "-o out.pdf: expected a name that ends in .svg, .png, .html, or --format")
        self.assertFalse((self.folder / "out.svg").exists())


if __name__ == "__main__":
    unittest.main()
