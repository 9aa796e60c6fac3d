# SPDX-License-Identifier: Apache-2.0
"""Steps true in time: the streams of a stage with its memory, and all stages of a pipeline."""

import numpy

from . import ReportError, style
from .report import Report, read_json

COLUMNS = 1500  # what is shorter than a step over this can't be seen


def joined(bars, is_one):
    """Bars (group, begin, end) in the order of time, neighbours for which is_one(last, next) holds as one.

    It has the group of the longest."""
    result = []
    for group, begin, end in sorted(bars, key=lambda bar: bar[1]):
        if result and is_one(result[-1], (group, begin, end)):
            last = result[-1]
            if end - begin > last[3]:
                last[0], last[3] = group, end - begin
            last[2] = max(last[2], end)
        else:
            result.append([group, begin, end, end - begin])
    return [tuple(bar[:3]) for bar in result]


def joined_groups(bars, least):
    """Neighbours of one group are one bar, where they are nearer than `least`."""
    return joined(bars, lambda last, bar: bar[0] == last[0] and bar[1] - last[2] < least)


def joined_short(bars, least):
    """What is shorter than `least` is one bar with its neighbours: of its own group first, then of any."""
    def are_short(last, bar):
        return bar[1] - last[2] < least and min(bar[2] - bar[1], last[2] - last[1]) < least

    return joined(joined(bars, lambda last, bar: bar[0] == last[0] and are_short(last, bar)), are_short)


def draw_bars(axes, lane, bars, colors, divisor, least, used):
    for group, color in colors.items():
        for is_wide in (False, True):  # only wide ones have room for a line around them
            spans = [(begin / divisor, lane - 0.4, (end - begin) / divisor, 0.8) for name, begin, end in bars
                     if name == group and (end - begin > least) == is_wide]
            if spans:
                used[group] = color
                style.bars(axes, spans, color, 0.5 if is_wide else 0.0)


def stage_bars(timeline):
    """What a stage computes: (what, micro-batch) with begin and end."""
    for action in timeline["actions"]:
        if action["stream"] != "compute":
            continue
        kind = action["kind"]
        if action["deferred"]:
            what = "deferred gradients"
        elif kind in ("forward", "backward"):
            what = kind
        else:
            what = "backward" if kind == "recompute" else "the rest"
        yield (what, action["micro_batch"]), action["begin"], action["end"]


STAGE_COLORS = {"forward": style.SKY, "backward": style.RED, "deferred gradients": style.ORANGE,
                "the rest": style.PURPLE}


def draw_stages(axes, timelines):
    seconds = timelines[0]["seconds"]
    divisor, unit = style.seconds_scale(seconds)
    style.lanes(axes, [str(timeline["stage"]) for timeline in timelines], "stage")
    used = {}
    for lane, timeline in enumerate(timelines):
        bars = joined_groups(stage_bars(timeline), seconds / COLUMNS)
        draw_bars(axes, -lane, [(key[0], begin, end) for key, begin, end in bars], STAGE_COLORS, divisor,
                  seconds / 300, used)
        for (what, batch), begin, end in bars:
            if batch is not None and end - begin > seconds / 110:
                axes.text((begin + end) / 2 / divisor, -lane, str(batch), ha="center", va="center",
                          fontsize=7, color=style.text_on(STAGE_COLORS[what]), zorder=3)
    waiting = sum(t["waiting_seconds"] / t["seconds"] for t in timelines) / len(timelines)
    axes.set_title(f"what each stage computes: {style.seconds_text(seconds)} a step, of which stages wait "
                   f"{100 * waiting:.1f} % for each other; numbers are micro-batches", fontweight="normal")
    axes.set_xlim(0, seconds / divisor)
    axes.set_xlabel(f"time in the step ({unit})")
    style.color_legend(axes, {what: color for what, color in STAGE_COLORS.items() if what in used}, "stages")


def live_in_columns(timeline, seconds):
    """Bytes of each category in each column of time: those of its moment with the most in all."""
    names = list(style.CATEGORIES)
    changes = sorted((buffer[when], sign * buffer["bytes"], names.index(buffer["category"]))
                     for buffer in timeline["buffers"] for when, sign in (("begin", 1), ("end", -1)))
    live = numpy.zeros((len(changes), len(names)))
    live[range(len(changes)), [index for _, _, index in changes]] = [size for _, size, _ in changes]
    live = live.cumsum(axis=0)
    column = numpy.minimum([time / seconds * COLUMNS for time, _, _ in changes], COLUMNS - 1).astype(int)
    # The last moment up to the end of each column; where there are several, that with the most.
    chosen = numpy.searchsorted(column, numpy.arange(COLUMNS), side="right") - 1
    by_size = live.sum(axis=1).argsort(kind="stable")
    chosen[column[by_size]] = by_size
    return dict(zip(names, live[chosen].T))


def draw_memory(axes, timeline, seconds, time_divisor):
    live = live_in_columns(timeline, seconds)
    most = sum(live.values()).max()
    divisor, unit = style.bytes_scale(most)
    style.stack(axes, numpy.linspace(0, seconds / time_divisor, COLUMNS + 1), live, divisor)
    axes.set_title(f"live device memory: at most {style.bytes_text(most)}", fontweight="normal")
    axes.set_ylabel(f"live bytes of a rank ({unit})")
    axes.set_ylim(0, 1.06 * most / divisor)
    style.color_legend(axes, style.used_categories(live), "memory")


def read_trace(path, rank):
    """The last step of a rank in a trace: its actions as a stage of "timelines" has them."""
    trace = read_json(path)
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    found = [event for event in events or [] if event.get("ph") == "X" and event.get("pid") == rank
             and "step" in event.get("args", {}) and {"tid", "cat", "ts", "dur"} <= event.keys()
             and event["tid"] < len(style.STREAMS)]
    if not found:
        raise ReportError(f"{path}: has no actions of rank {rank}; expected the trace.json of a run")
    step = max(event["args"]["step"] for event in found)
    found = [event for event in found if event["args"]["step"] == step]
    first = min(event["ts"] for event in found)
    return [{"stream": style.STREAMS[event["tid"]], "kind": event["cat"], "begin": 1e-6 * (event["ts"] - first),
             "end": 1e-6 * (event["ts"] - first + event["dur"])} for event in found]


def draw_streams(axes, timeline, measured, seconds, divisor):
    rows = [(actions, suffix) for actions, suffix in ((timeline["actions"], ""), (measured, ", measured")) if actions]
    used = {action["stream"] for actions, _ in rows for action in actions}
    names = [(stream, actions, suffix) for stream in style.STREAMS if stream in used for actions, suffix in rows]
    style.lanes(axes, [stream + suffix for stream, _, suffix in names], "stream")
    colors = {group: color for group, (color, _) in style.KIND_GROUPS.items()}
    seen = {}
    for lane, (stream, actions, _) in enumerate(names):
        bars = [(style.group_of(action["kind"]), action["begin"], action["end"])
                for action in actions if action["stream"] == stream and action["end"] > action["begin"]]
        draw_bars(axes, -lane, joined_short(bars, seconds / COLUMNS), colors, divisor, seconds / 300, seen)
    style.color_legend(axes, {group: color for group, color in colors.items() if group in seen}, "actions")
    axes.set_title(f"{style.seconds_text(timeline['seconds'])} a step; widths are times", fontweight="normal")


def timelines_of(data, path):
    if not isinstance(data, dict) or not data.get("timelines"):
        raise ReportError(f"{path}: has no timelines; expected the JSON of ostrakon-plan --json with --time "
                          "MACHINE.yaml or with rates such as --gflops")
    return data["timelines"]


def make_stages(files, title):
    data = read_json(files[0])
    timelines = timelines_of(data, files[0])
    title = title or f"Stages of a pipeline on {data['ranks']} ranks"
    figure, (axes,) = style.figure(title, 15, [0.4 * len(timelines) + 1.0])
    draw_stages(axes, timelines)
    return Report(title, figure, step=data)


def make_step(files, title):
    data = read_json(files[0])
    timelines = timelines_of(data, files[0])
    stage = data.get("stage", 0)
    timeline = timelines[stage]
    title = title or f"Step on {data['ranks']} ranks"
    measured = read_trace(files[1], stage * data["ranks"] // len(timelines)) if len(files) > 1 else []
    seconds = max([timeline["seconds"]] + [action["end"] for action in measured])
    divisor, unit = style.seconds_scale(seconds)
    streams = len({action["stream"] for action in timeline["actions"] + measured})
    heights = [0.45 * streams * (2 if measured else 1) + 0.8, 2.8]
    if len(timelines) > 1:
        heights.insert(0, 0.4 * len(timelines) + 1.0)
        title += f", stage {stage} below"
    figure, (*above, upper, lower) = style.figure(title, 15, heights)
    if above:
        draw_stages(above[0], timelines)
    draw_streams(upper, timeline, measured, seconds, divisor)
    draw_memory(lower, timeline, seconds, divisor)
    for axes in (upper, lower):
        axes.set_xlim(0, seconds / divisor)
    upper.tick_params(axis="x", labelbottom=False)
    lower.set_xlabel(f"time in the step ({unit})")
    return Report(title, figure, step=data)
