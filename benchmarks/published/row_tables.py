# SPDX-License-Identifier: Apache-2.0
"""Tables of predicted against measured steps, which rows.py prints and writes."""
import statistics

COLUMNS = ("rows", "mean %", "median %", "most %", "bias %", "left out: mean %", "median %", "most %",
           "held", "half of range %")
# Tokens/s of a rank on many ranks relative to few, as published: rows (None: the row of `few`), and
# the ranks of `many` where no row has them; as measured, in per cent, where no row says it.
EFFICIENCIES = (
    ("torchtitan Llama 8B, eager, 8 to 128", "217", "220", 0, None),
    ("torchtitan Llama 8B, compiled, 8 to 128", "218", "221", 0, None),
    ("MosaicML MPT-7B, 128 to 512", "12", "12", 512, 92.0),
    ("MosaicML MPT-70B, 128 to 512", "3", "3", 512, 95.0),
    ("InternEvo 7B, ZeRO-1 over all, 8 to 1024", "282", "282", 1024, 56.0),
    ("InternEvo 7B, ZeRO-1 within nodes, 8 to 1024", "290", "295", 1024, 89.0))


class Predicted:
    """A row and what the program predicts for it. left_out: seconds that fit_machines predicts by
    numbers that are fitted without any row of the source; None: not known."""

    def __init__(self, row, found, left_out=None):
        self.row = row
        self.seconds = found["step_seconds"]
        self.fastest = found["fastest_step_seconds"]
        self.slowest = found["slowest_step_seconds"]
        self.error = 100.0 * (self.seconds / row.measured - 1.0)
        self.half_range = 50.0 * (self.slowest - self.fastest) / self.seconds
        self.left_out_error = None
        self.is_held = self.fastest <= row.measured <= self.slowest
        if left_out is not None:
            self.left_out_error = 100.0 * (left_out / row.measured - 1.0)
            measured = row.measured * self.seconds / left_out
            self.is_held = self.fastest <= measured <= self.slowest


def heading(what):
    return ["| %s | %s |" % (what, " | ".join(COLUMNS)), "|---" * (1 + len(COLUMNS)) + "|"]


def line(name, rows):
    errors = [abs(one.error) for one in rows]
    left_out = [abs(one.left_out_error) for one in rows if one.left_out_error is not None]
    of_left_out = ("%.2f | %.2f | %.1f" % (statistics.mean(left_out), statistics.median(left_out),
                                           max(left_out)) if left_out else " |  | ")
    return "| %s | %d | %.2f | %.2f | %.1f | %+.1f | %s | %.0f %% | %.1f |" % (
        name, len(rows), statistics.mean(errors), statistics.median(errors), max(errors),
        statistics.mean(one.error for one in rows), of_left_out,
        100.0 * sum(one.is_held for one in rows) / len(rows),
        statistics.median(one.half_range for one in rows))


def table(what, rows, keys):
    """A line for each of the names that `keys` gives a row, in their order."""
    groups = {}
    for one in rows:
        for key in keys(one.row):
            groups.setdefault(key, []).append(one)
    return heading(what) + [line(name, groups[name]) for name in sorted(groups)]


def other_sizes(rows):
    """The rows of EFFICIENCIES on ranks that no row has, each rank with as much."""
    by_id = {row.id: row for row in rows}
    found = []
    for _, _, many, ranks, _ in EFFICIENCIES:
        if ranks == 0 or many not in by_id:
            continue
        row = type(by_id[many])(by_id[many])
        if row.replicas == 1:
            row["shard_ranks"] = row.shard_ranks * ranks // row.gpus
        row.update(gpus=ranks, id="%s-%d" % (many, ranks))
        found.append(row)
    return found


def efficiencies(found):
    """found: id to seconds as predicted, and as measured."""
    lines = ["| scaling efficiency | measured % | predicted % |", "|---|---|---|"]
    for name, few, many, ranks, measured in EFFICIENCIES:
        large = many if ranks == 0 else "%s-%d" % (many, ranks)
        if few not in found or large not in found:
            continue
        if measured is None:
            measured = 100.0 * found[few][1] / found[many][1]
        lines.append("| %s | %.1f | %.1f |" % (name, measured,
                                               100.0 * found[few][0] / found[large][0]))
    return lines


def tables(rows, refused, found):
    """Markdown of all tables. `refused`: pairs of a row and the program's message."""
    parts = []
    for precision, title in (("bf16", "bf16 and fp16"), ("fp8", "fp8: only rounding fitted")):
        of_it = [one for one in rows if one.row.precision == precision]
        if not of_it:
            continue
        dimensions = table("", of_it, lambda row: row.dimensions)[2:]
        sources = table("", of_it, lambda row: [row.group])[2:] if precision == "bf16" else []
        parts.append(["### %s" % title] + heading("rows") + [line("all", of_it)] + dimensions +
                     sources)
    parts.append(["### Tokens/s of a rank on many ranks, of those on few"] + efficiencies(found))
    if refused:
        ids = {}
        for row, message in refused:
            ids.setdefault(message, []).append(row.id)
        parts.append(["### Rows that the program refuses"] +
                     ["- %s: %s" % (", ".join(of_it), message) for message, of_it in ids.items()])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def csv_lines(rows):
    lines = ["id,group,machine,stack,model,dimensions,precision,gpus,measured_s,predicted_s,"
             "error_percent,fastest_s,slowest_s,left_out_error_percent,is_held"]
    for one in rows:
        row = one.row
        lines.append(",".join([row.id, row.group, row.machine, row.stack, row.model,
                               "+".join(row.dimensions), row.precision, str(row.gpus)] +
                              ["%.4g" % seconds for seconds in (row.measured, one.seconds)] +
                              ["%+.2f" % one.error, "%.4g" % one.fastest, "%.4g" % one.slowest,
                               "" if one.left_out_error is None else "%+.2f" % one.left_out_error,
                               str(int(one.is_held))]))
    return lines
