# SPDX-License-Identifier: Apache-2.0
"""Scaling studies: what ostrakon-scale has collected, or what ostrakon-plan --sweep has simulated."""

import math
import os

import matplotlib
from matplotlib.figure import Figure

from . import ReportError, style
from .report import Report, Table, read_json

FACTOR_COLORS = [style.BLUE, style.RED, style.ORANGE, style.PURPLE, style.GREEN, style.SKY, style.BLACK, style.GREY]
SHARE_COLORS = [style.BLUE, style.SKY, style.ORANGE, style.PURPLE, style.GREEN, style.GREY]
MARKERS = "osD^vPX*"

def words_of(name):
    return name.replace("_", " ")


def digits(value):
    """Four digits, or all that are before the point."""
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def with_interval(interval, scale=1.0, unit=""):
    """Two digits of the interval, and as many decimals of the mean; without one, four digits."""
    mean, half = scale * interval["mean"], scale * (interval["half_width"] or 0.0)
    if not half > 0.0:
        return digits(mean) + unit
    decimals = min(9, max(0, 1 - math.floor(math.log10(half))))
    return f"{mean:.{decimals}f} ± {half:.{decimals}f}{unit}"


def percent(share):
    return f"{100 * share:.1f} %"


def tables_of(points):
    predicted = any(point["prediction"] for point in points)
    speed = Table("Speed", ["ranks", "nodes", "runs", "step", "tokens/s", "tokens/s per rank", "MFU", "speedup",
                            "efficiency"] + (["predicted step", "error of prediction"] if predicted else []), [])
    factor_names, share_names = list(points[0]["relative_factors"]), list(points[0]["shares"])
    factors = Table("Factors of the efficiency",
                    ["ranks"] + [words_of(name) for name in factor_names] + ["product", "efficiency"], [])
    shares = Table("Where the time of a step goes", ["ranks"] + [words_of(name) for name in share_names], [])
    for point in points:
        ranks, prediction, relative = str(point["ranks"]), point["prediction"], point["relative_factors"]
        row = [ranks, str(point["nodes"]), str(point["runs"]), with_interval(point["step_seconds"], 1.0, " s"),
               with_interval(point["tokens_per_second"]), digits(point["tokens_per_second"]["mean"] / point["ranks"]),
               ("≤ " if point["mfu_uncertain"] else "") + percent(point["mfu"]), with_interval(point["speedup"]),
               with_interval(point["efficiency"], 100.0, " %") + (" superlinear" if point["superlinear"] else "")]
        if predicted:
            error = prediction and prediction["error"]
            row += [f"{prediction['step_seconds']:.4g} s" if prediction else "no prediction",
                    "" if error is None else f"{100 * error:+.1f} %"]
        speed.rows.append(row)
        factors.rows.append([ranks] + [f"{relative[name]:.4f}" for name in factor_names]
                            + [f"{math.prod(relative.values()):.4f}", f"{point['efficiency']['mean']:.4f}"])
        shares.rows.append([ranks] + [percent(point["shares"][name]) for name in share_names])
        if prediction:
            shares.rows.append([f"{ranks}, predicted"] + [percent(prediction["shares"][name]) for name in share_names])
    return [speed, factors, shares]


def rank_axis(axes, ranks):
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(count) for count in ranks])
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_xlabel("ranks")
    axes.margins(x=0.08)


def draw_lines(axes, ranks, measured, ideal=None, predicted=None):
    """`measured`: intervals. `predicted`: (ranks, values)."""
    if ideal:
        axes.plot(ranks, ideal, color=style.GREY, linewidth=2, label="ideal")
    if predicted and predicted[0]:
        axes.plot(*predicted, color=style.ORANGE, linestyle="--", marker="s", label="predicted")
    axes.errorbar(ranks, [interval["mean"] for interval in measured], color=style.BLUE, marker="o", capsize=4,
                  yerr=[interval["half_width"] or 0.0 for interval in measured], label="measured, 95 % interval")
    rank_axis(axes, ranks)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=3)


def draw_factors(axes, ranks, factors, title, label):
    """`factors`: for each number of ranks, values by name."""
    for name, color, marker in zip(factors[0], FACTOR_COLORS, MARKERS):
        axes.plot(ranks, [one[name] for one in factors], color=color, marker=marker, markersize=5, alpha=0.9,
                  label=words_of(name))
    rank_axis(axes, ranks)
    axes.set_title(title)
    axes.set_ylabel(label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw_shares(axes, points):
    bars = []
    for point in points:
        bars.append((str(point["ranks"]), point["shares"]))
        if point["prediction"]:
            bars.append((f"{point['ranks']}\npredicted", point["prediction"]["shares"]))
    base = [0.0] * len(bars)
    for name, color in zip(points[0]["shares"], SHARE_COLORS):
        heights = [100 * shares[name] for _, shares in bars]
        axes.bar(range(len(bars)), heights, 0.7, bottom=base, color=color, label=words_of(name))
        base = [low + height for low, height in zip(base, heights)]
    axes.set_xticks(range(len(bars)), [label for label, _ in bars])
    axes.set_title("Where the time of a step goes")
    axes.set_xlabel("ranks")
    axes.set_ylabel("share of the step (%)")
    axes.set_ylim(0, 100)
    axes.grid(False, axis="x")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0))


def draw(points):
    figure = Figure(figsize=(14, 8.5), layout="constrained")
    upper, lower = figure.subfigures(2, 1)
    panels = [*upper.subplots(1, 3), *lower.subplots(1, 2)]
    ranks = [point["ranks"] for point in points]
    relative = [(point["ranks"], point["prediction"]["speedup"], point["ideal_speedup"]) for point in points
                if point["prediction"] and point["prediction"]["speedup"] > 0]
    base = f"those on {ranks[0]} {'rank' if ranks[0] == 1 else 'ranks'}"
    draw_lines(panels[0], ranks, [point["speedup"] for point in points],
               [point["ideal_speedup"] for point in points], ([r for r, _, _ in relative], [s for _, s, _ in relative]))
    panels[0].set_title("Speedup")
    panels[0].set_ylabel(f"tokens/s over {base}")
    efficiency = [{"mean": 100 * point["efficiency"]["mean"], "half_width": 100 * (point["efficiency"]["half_width"] or 0)}
                  for point in points]
    draw_lines(panels[1], ranks, efficiency, [100.0] * len(points),
               ([r for r, _, _ in relative], [100 * s / ideal for _, s, ideal in relative]))
    panels[1].set_title("Efficiency")
    panels[1].set_ylabel("efficiency (%)")
    panels[1].set_ylim(bottom=0)
    draw_shares(panels[3], points)
    draw_factors(panels[4], ranks, [point["relative_factors"] for point in points], "Factors of the efficiency",
                 "relative to the fewest ranks")
    predicted = [(point["ranks"], point["prediction"]["step_seconds"]) for point in points if point["prediction"]]
    draw_lines(panels[2], ranks, [point["step_seconds"] for point in points], None,
               ([r for r, _ in predicted], [s for _, s in predicted]))
    panels[2].set_title("Time of a step")
    panels[2].set_ylabel("time of a step (s)")
    for axes in (panels[0], panels[2]):
        style.log_scale(axes)
    return figure


def make_measured(data, title):
    study, points = data["study"], data["points"]
    scaling = "Strong" if study["scaling"] == "strong" else "Weak"
    title = title or f"{scaling} scaling of {os.path.basename(study['deck'])}"
    batch = ("is the same on any number of ranks" if study["scaling"] == "strong" else "grows with the ranks")
    count = len(data["runs"])
    sources = [size["prediction"]["source"] for size in study["sizes"] if size["prediction"]]
    facts = [f"Deck {study['deck']}; Ostrakon {study['version']} ({study['build']}). {scaling} scaling: the global "
             f"batch {batch}. {count} run{'' if count == 1 else 's'} of {study['steps']} steps, {study['repeat']} of "
             f"each size, of which steps {study['warmup'] + 1} to {study['steps']} count.",
             f"Predicted with {sources[-1]}." if sources
             else "No prediction: the study was planned without rates of a machine."]
    figure = draw(points)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    return Report(title, figure, facts, remarks=data["remarks"], tables=tables_of(points),
                  outliers=data["outlier_steps"], has_words=True)


def make_simulated(data, title):
    rows = data["rows"]
    ranks = [row["ranks"] for row in rows]
    title = f"{data['scaling'].capitalize()} scaling{' of ' + title if title else ''}, simulated: {data['machine']}"
    if data.get("stack", "Ostrakon") != "Ostrakon":
        title += f", {data['stack']}"
    figure, (left, right) = style.figure(title, 13, [3.8], 2)
    left.axhline(100, color=style.GREY, linewidth=2, label="ideal")
    efficiency = [100 * row["efficiency"] for row in rows]
    best = [e * row["step_seconds"] / row["fastest_step_seconds"] for e, row in zip(efficiency, rows)]
    worst = [e * row["step_seconds"] / row["slowest_step_seconds"] for e, row in zip(efficiency, rows)]
    left.fill_between(ranks, worst, best, color=style.SKY, alpha=0.4, linewidth=0, label="19 of 20 cases")
    left.plot(ranks, efficiency, color=style.BLUE, marker="o", label="expected")
    rank_axis(left, ranks)
    left.set_title("Efficiency: tokens/s of a rank")
    left.set_ylabel(f"% of those on {ranks[0]} {'rank' if ranks[0] == 1 else 'ranks'}")
    left.set_ylim(bottom=0)
    left.legend(loc="lower left")
    draw_factors(right, ranks, [row["factors"] for row in rows], "Where the time goes: factors of MFU", "factor")
    table = Table("Steps", ["ranks", "batch", "step", "tokens/s", "efficiency", "MFU", "arena"],
                  [[str(row["ranks"]), str(row["global_batch_size"]), style.seconds_text(row["step_seconds"]),
                    f"{row['tokens_per_second']:,.0f}", percent(row["efficiency"]), percent(row["mfu"]),
                    style.bytes_text(row["arena_bytes"])] for row in rows])
    return Report(title, figure, tables=[table])


def make(files, title):
    data = read_json(files[0])
    if isinstance(data, dict) and data.get("rows"):
        return make_simulated(data, title)
    if not isinstance(data, dict) or not data.get("points"):
        raise ReportError(f"{files[0]}: has no points; expected collected.json as ostrakon-scale collect writes it, "
                          "or the JSON of ostrakon-plan --time --sweep --json")
    return make_measured(data, title)
