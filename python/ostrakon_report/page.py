# SPDX-License-Identifier: Apache-2.0
"""The page of one training run or more: charts over steps, settings, plans, in one file."""

import base64
import importlib
import math
import os
import shlex
import statistics

import jinja2

from . import ReportError, palette, parts, ranks
from .charts import Chart, Curve, Grid, nice_step
from .runs import read_json, read_runs

MOST_COLUMNS, MOST_POINTS = 700, 3500  # of a chart; of a curve of each run together
MOST_SKIPPED = 20
SHORT_SECONDS = 10.0  # below, times are shown with parts of a second
MOST_PLANS_BYTES = 700_000  # of the plans' pictures together
MOST_TRACE_BYTES = 60_000_000  # larger ones take too long to read

# Title, unit, kind, whether the axis begins at 0, what is drawn: (field, name, look).
CHARTS = [
    ("Loss", "nats per token", "number", False,
     [("loss", "training", "line"), ("validation_loss", "validation", "dots"),
      ("ema_validation_loss", "validation of averages", "dots")]),
    ("Bits per byte", "validation", "number", False, [("bits_per_byte", "", "dots")]),
    ("Loss of the tokens behind the next ones", "nats per token", "number", False, [("multi_token_loss", "", "line")]),
    ("Gradient norm", "before clipping", "number", False, [("grad_norm", "", "line")]),
    ("Learning rate", "", "number", True, [("learning_rate", "", "line")]),
    ("Throughput", "tokens/s of all ranks", "number", True, [("tokens_per_second", "", "line")]),
    ("MFU", "of the ranks' peak rate", "percent", True, [("mfu", "", "line")]),
    ("Memory of a rank", "of the rank with the most", "bytes", True,
     [("peak_bytes", "counted", "line"), ("planned_peak_bytes", "planned", "dotted"),
      ("resident_bytes", "resident memory of the process", "dashed")]),
    ("Loss scale", "", "number", False, [("loss_scale", "", "line")]),
    ("Tokens that count in the loss", "of a step", "number", True, [("counted_tokens", "", "line")]),
]


def curves(runs, fields):
    for index, run in enumerate(runs):
        for name, label, look in fields:
            steps, values = run.history.column(name)
            if steps:
                yield Curve(index, label, steps, values, look)


def expert_curves(runs):
    """The most and the least of the loads of all layers."""
    for index, run in enumerate(runs):
        rows = [(row["step"], row["expert_load"]) for row in run.history.steps if "expert_load" in row]
        if rows:
            steps = [step for step, _ in rows]
            yield Curve(index, "most", steps, [load["max"] for _, load in rows])
            least = [min(least for least, _ in load["layers"]) for _, load in rows]
            yield Curve(index, "least", steps, least, "dashed")


def source_curves(runs):
    """Shares of a mixture's files in the samples taken since step 1."""
    for index, run in enumerate(runs):
        rows = [(row["step"], row["source_samples"]) for row in run.history.steps if "source_samples" in row]
        for source in range(len(rows[0][1]) if rows else 0):
            yield Curve(index, f"file {source + 1}", [step for step, _ in rows],
                        [samples[source] / max(1, sum(samples)) for _, samples in rows])


def answer_curves(runs):
    """Shares of questions with the right answer, by file."""
    for index, run in enumerate(runs):
        rows = [(row["step"], row["evaluation"]) for row in run.history.others if "evaluation" in row]
        for file in sorted({file for _, found in rows for file in found}):
            of_file = [(step, found[file]["acc"]) for step, found in rows if "acc" in found.get(file, {})]
            yield Curve(index, file, [step for step, _ in of_file], [acc for _, acc in of_file], "dots")


def charts_of(runs, grid):
    charts = [Chart(title, unit, list(curves(runs, fields)), kind, from_zero)
              for title, unit, kind, from_zero, fields in CHARTS]
    charts += [Chart("Time of a step", "seconds", list(ranks.curves(runs)), from_zero=True),
               Chart("Questions", "share with the right answer (acc)", list(answer_curves(runs)), "percent", True),
               Chart("Load of experts", "relative to the mean of a layer; 1 is even", list(expert_curves(runs))),
               Chart("Files of the mixture", "share of the samples", list(source_curves(runs)), "percent", True)]
    return [chart for chart in charts if chart.lay_out(grid)]


def row_of(name, runs, text):
    return [name] + [text(run) for run in runs]


def overview(runs):
    """Rows of a table with a column for each run."""
    def last(name, text, missing=""):
        def of(run):
            _, values = run.history.column(name)
            return text(values[-1]) if values else missing
        return of

    def steps(run):
        done, planned = run.history.steps[-1]["step"], run.last_step()
        return f"{done:,}" + (f" of {planned:,}" if planned else "")

    def loss(run):
        rows = run.history.steps
        values = [row["loss"] for row in rows[-max(1, len(rows) // 100):] if row["loss"] is not None]
        return f"{statistics.fmean(values):.4g}" if values else "not finite"

    def best(run):
        pairs = [(value, step) for step, value in zip(*run.history.column("validation_loss")) if math.isfinite(value)]
        return "{:.4g} at step {:,}".format(*min(pairs)) if pairs else ""

    def median(name, text):
        def of(run):
            values = [value for value in run.history.column(name)[1] if math.isfinite(value)]
            return text(statistics.median(values)) if values else ""
        return of

    def mfu(run):
        is_bound = any(row.get("mfu_uncertain") for row in run.history.steps)
        return ("at most " if is_bound else "") + median("mfu", lambda value: f"{100 * value:.1f} %")(run)

    def skipped(run):
        return f"{sum('skipped' in row for row in run.history.steps):,}"

    def seconds(run):
        total = sum(row.get("step_seconds", 0.0) for row in run.history.steps)
        return palette.seconds_text(total) if total < SHORT_SECONDS else palette.duration_text(total)

    def plan(name):
        return lambda run: f"{run.plan[name]:,}" if run.plan else ""

    rows = [row_of(name, runs, text) for name, text in (
        ("Steps", steps), ("Parameters", plan("parameter_elements")), ("Ranks", plan("ranks")),
        ("Tokens", last("tokens", lambda value: f"{value:,}")), ("Loss, mean of the last 1 % of steps", loss),
        ("Least validation loss", best), ("Time in steps", seconds),
        ("Tokens/s, median", median("tokens_per_second", lambda value: f"{value:,.0f}")), ("MFU, median", mfu),
        ("Memory of a rank, planned", last("planned_peak_bytes", palette.bytes_text)),
        ("Memory of a rank, counted", last("peak_bytes", palette.bytes_text)),
        ("Resident memory", last("resident_bytes", palette.bytes_text)),
        ("Allocations during steps", lambda run: f"{sum(row.get('allocations', 0) for row in run.history.steps):,}"),
        ("Skipped steps", skipped))]
    return [row for row in rows if any(row[1:])]


def skipped_steps(runs):
    """(label, text) for each reason for which a run skipped steps."""
    for run in runs:
        by_reason = {}
        for row in run.history.steps:
            if "skipped" in row:
                by_reason.setdefault(row["skipped"], []).append(f"{row['step']:,}")
        for reason, steps in by_reason.items():
            more = len(steps) - MOST_SKIPPED
            yield run.label, (f"{reason}: step{'' if len(steps) == 1 else 's'} " + ", ".join(steps[:MOST_SKIPPED])
                              + (f" and {more:,} more" if more > 0 else ""))


def settings_of(runs):
    """Keys with the values of all runs: those that differ, and all by section."""
    found = [run.settings() for run in runs]
    keys = list(dict.fromkeys(key for settings in found for key in settings))
    rows = [[key] + [settings.get(key, "") for settings in found] for key in keys]
    differ = [row for row in rows if len(set(row[1:])) > 1]
    return differ, rows


def read_file(run, name, most=None):
    """The JSON of a file in a run's folder; None where it is not there, or larger than that."""
    path = os.path.join(run.folder, name)
    try:
        return None if most and os.path.getsize(path) > most else read_json(path)
    except FileNotFoundError:
        return None


def time_of_steps(runs, remarks):
    """For each run with a trace: label, what was traced, parts with their share and colour."""
    colors = {group: color for group, (color, _) in palette.KIND_GROUPS.items()}
    for index, run in enumerate(runs):
        path = os.path.join(run.folder, "trace.json")
        try:
            trace = read_file(run, "trace.json", MOST_TRACE_BYTES)
        except ReportError:
            remarks.append(f"{path} is not whole: where the time goes is not shown.")
            continue
        if trace is None:
            if os.path.exists(path):
                remarks.append(f"{path} is larger than {MOST_TRACE_BYTES // 1_000_000} MB: not read.")
            continue
        seconds = {row["step"]: row.get("step_seconds", 0.0) for row in run.history.steps}
        shares, steps, ranks = parts.mean_parts(trace, path, seconds)
        order = [*colors, *("exposed " + group for group in colors), parts.WAITING]
        found = [(what, f"{100 * shares[what]:.2f}", colors.get(what.replace("exposed ", ""), "transparent"),
                  what.startswith("exposed ")) for what in order if shares.get(what, 0) >= 0.0005]
        yield {"run": index, "label": run.label, "parts": found,
               "of": f"mean of {steps:,} step{'' if steps == 1 else 's'} and {ranks:,} rank{'' if ranks == 1 else 's'}"}


def times_of_ranks(runs):
    """For each run whose rows have times of all ranks: label, rows of a table, texts on late ranks."""
    for index, run in enumerate(runs):
        if rows := ranks.table(run):
            yield {"run": index, "label": run.label, "rows": rows, "late": ranks.late(run)}


def planned_memory(plan):
    """Bytes of each category at the plan's peak of device memory, and of the arena."""
    peak, sizes = plan["memory"]["peak_action"], dict.fromkeys(palette.CATEGORIES, 0)
    for buffer in plan["buffers"]:
        if buffer["space"] == "device" and (buffer["persistent"]
                                            or buffer["first_action"] <= peak <= buffer["last_action"]):
            sizes[buffer["category"]] += buffer["bytes"]
    return {**sizes, "arena": plan["memory"]["arena_bytes"]}


def draw_plan(path):
    """The picture of a plan as an SVG file, or None without matplotlib."""
    try:
        made = importlib.import_module(".plan", __package__).make([path], None)
    except ImportError:
        return None
    return made.image("svg")


def plans_of(runs, remarks):
    """Different plans of the runs: labels, facts, memory, picture."""
    by_hash, room, left_out, has_matplotlib = {}, MOST_PLANS_BYTES, [], True
    for run in runs:
        if run.plan:
            by_hash.setdefault(run.plan["hash"], []).append(run)
    for same in by_hash.values():
        plan, path = same[0].plan, os.path.join(same[0].folder, "plan.json")
        picture = draw_plan(path) if room > 0 and has_matplotlib else b""
        has_matplotlib = has_matplotlib and picture is not None
        encoded = base64.b64encode(picture or b"").decode()
        if len(encoded) > room:
            encoded = ""
        room -= len(encoded)
        if not encoded:
            left_out.append(path)
        traffic = plan["traffic"]
        yield {"labels": ", ".join(run.label for run in same), "picture": encoded, "memory": planned_memory(plan),
               "facts": f"{plan['ranks']:,} ranks, {len(plan['actions']):,} actions, hash {plan['hash']}; peak at "
                        f"{plan['memory']['peak_action_name']}; a rank sends "
                        f"{palette.bytes_text(traffic['bytes_inside_nodes'] + traffic['bytes_across_nodes'])} in a "
                        f"step and computes {palette.flops_text(plan['flops'])}"}
    if left_out:
        reason = (f"pictures have at most {MOST_PLANS_BYTES / 1e6:.1f} MB together" if has_matplotlib
                  else "this python3 has no matplotlib")
        remarks.append(f"No picture of {', '.join(left_out)}, as {reason}; one is drawn by ostrakon-report plan "
                       f"{shlex.quote(left_out[0])} -o plan.svg" + ("." if has_matplotlib else " with matplotlib."))


def memory_rows(plans):
    """Rows of a table with a column for each plan."""
    return [[name.replace("_", " ")] + [palette.bytes_text(plan["memory"][name]) for plan in plans]
            for name in (*palette.CATEGORIES, "arena") if any(plan["memory"][name] for plan in plans)]


def grid_of(runs):
    first = min(run.history.steps[0]["step"] for run in runs)
    last = max(run.history.steps[-1]["step"] for run in runs)
    return Grid.of(first, last, max(100, min(MOST_COLUMNS, MOST_POINTS // len(runs))))


def step_ticks(grid):
    """Places of steps in percent of the width, with texts; the same below all charts."""
    axis_step = max(1, round(nice_step(grid.width * grid.columns, 5)))
    first = math.ceil(grid.first / axis_step) * axis_step
    last = grid.first + grid.width * grid.columns
    return [(f"{100 * (grid.column(step) + 0.5) / grid.columns:.4g}", f"{step:,}")
            for step in range(first, int(last), axis_step)]


def make_page(paths, title=None):
    """The text of the page."""
    runs, remarks = read_runs(paths), []
    for run in runs:
        run.plan = read_file(run, "plan.json") or {}
    grid, (differ, settings), plans = grid_of(runs), settings_of(runs), list(plans_of(runs, remarks))
    environment = jinja2.Environment(loader=jinja2.PackageLoader(__package__), trim_blocks=True, lstrip_blocks=True,
                                     autoescape=True)
    return environment.get_template("runs.html").render(
        title=title or "Training: " + ", ".join(run.label for run in runs), labels=[run.label for run in runs],
        grid=grid, charts=charts_of(runs, grid), ticks=step_ticks(grid), overview=overview(runs),
        times=list(time_of_steps(runs, remarks)), ranks=list(times_of_ranks(runs)),
        skipped=list(skipped_steps(runs)), differ=differ, settings=settings, plans=plans,
        memory=memory_rows(plans), remarks=remarks)


def write_page(paths, out, title=None):
    """Writes the page; one that is there is replaced when the new one is complete. Raises ReportError, OSError."""
    page = make_page(paths, title)
    part = f"{out}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(part, out)
    except OSError as error:
        raise ReportError(f"{out}: can't be written: {error.strerror}") from error
