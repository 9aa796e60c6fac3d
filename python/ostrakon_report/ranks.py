# SPDX-License-Identifier: Apache-2.0
"""Where the time of all ranks goes over a run, from the rank_seconds of its rows."""

from . import palette
from .charts import Curve

PARTS = ("compute", "communication", "data", "copies", "between_steps")


def windows(run):
    """(step, rank_seconds) of the rows that have them."""
    return [(row["step"], row["rank_seconds"]) for row in run.history.steps if "rank_seconds" in row]


def curves(runs):
    """Compute and communication of a step, as means over ranks, and compute of the rank with the most."""
    for index, run in enumerate(runs):
        found = windows(run)
        steps = [step for step, _ in found]
        if steps:
            yield Curve(index, "compute, mean of ranks", steps, [mean(times["compute"]) for _, times in found])
            yield Curve(index, "compute, slowest rank", steps, [max(times["compute"]) for _, times in found], "dotted")
            yield Curve(index, "communication and waiting in it, mean of ranks", steps,
                        [mean(times["communication"]) for _, times in found], "dashed")


def mean(values):
    return sum(values) / len(values)


def table(run):
    """Rows: part, seconds of a step as mean over ranks, and of the ranks with the least and the most, over the whole
    run; none without rank_seconds. The parts overlap where streams do."""
    found = [times for _, times in windows(run)]
    count = sum(times["steps"] for times in found)
    rows = []
    for part in PARTS if count else ():
        sums = [sum(times[part][rank] * times["steps"] for times in found) / count
                for rank in range(len(found[-1][part]))]
        if any(sums):
            least, most = sums.index(min(sums)), sums.index(max(sums))
            text = palette.seconds_text
            rows.append([part.replace("_", " "), text(mean(sums)), f"{text(sums[least])} (rank {least})",
                         f"{text(sums[most])} (rank {most})"])
    return rows


def late(run):
    """A text for each rank and part that was late."""
    found, count = {}, 0
    for _, times in windows(run):
        count += 1
        for one in times.get("late", ()):
            found.setdefault((one["rank"], one["part"]), []).append(one["share"])
    return [f"rank {rank} was late by {part.replace('_', ' ')} in {len(shares):,} of {count:,} windows, which cost at "
            f"most {100 * max(shares):.1f} % of the step" for (rank, part), shares in sorted(found.items())]
