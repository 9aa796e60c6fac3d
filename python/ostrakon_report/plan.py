# SPDX-License-Identifier: Apache-2.0
"""A plan in plan order: streams, waits, and memory over the step."""

import matplotlib
import numpy

from . import style, timeline
from .report import Report, read_json

MOST_ACTIONS = 1000  # in one picture
MOST_WITH_WAITS = 200  # more lines can't be told apart
MOST_WITH_LABELS = 110


def windows(count, peak):
    """Ranges of actions to draw: all, or of a long plan its begin, what is around the peak, its end."""
    if count <= MOST_ACTIONS:
        return [(0, count)]
    part = MOST_ACTIONS // 3
    wanted = [(0, part), (max(0, peak - part // 2), min(count, peak + part // 2)), (count - part, count)]
    joined = []
    for begin, end in sorted(wanted):
        if joined and begin <= joined[-1][1] + part // 4:
            begin, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((begin, end))
    return joined


def places(drawn):
    """Where each action of the windows is on the horizontal axis; the gaps before windows, and the end."""
    gap = 0.03 * sum(end - begin for begin, end in drawn)
    place, gaps, at, before = {}, [], 0.0, 0
    for begin, end in drawn:
        if begin > before:
            gaps.append((at + gap / 2, begin - before))
            at += gap
        place.update((a, at + a - begin) for a in range(begin, end))
        at, before = at + end - begin, end
    return place, gaps, at


def live_bytes(plan):
    """Live bytes of each category of device memory at each action."""
    count = len(plan["actions"])
    live = {category: numpy.zeros(count + 1) for category in style.CATEGORIES}
    for buffer in plan["buffers"]:
        first, last = (0, count - 1) if buffer["persistent"] else (buffer["first_action"], buffer["last_action"])
        if buffer["space"] == "device" and first >= 0:
            live[buffer["category"]][first] += buffer["bytes"]
            live[buffer["category"]][last + 1] -= buffer["bytes"]
    return {category: changes.cumsum()[:-1] for category, changes in live.items()}


def draw_actions(axes, actions, place, end):
    """Whether waits are drawn, too."""
    used = {action["stream"] for action in actions}
    streams = [stream for stream in style.STREAMS if stream in used]
    style.lanes(axes, streams, "stream")
    width = 0.9 if len(place) <= MOST_WITH_WAITS else 1.0
    bars, seen, free = {}, set(), -1.0
    for a, x in place.items():
        kind, batch, lane = actions[a]["kind"], actions[a]["micro_batch"], -streams.index(actions[a]["stream"])
        # A release is the end of something, no work: a low bar.
        bars.setdefault(style.group_of(kind), []).append((x, lane - 0.4, width, 0.1 if kind == "release" else 0.8))
        if len(place) <= MOST_WITH_LABELS and kind != "release":
            label_bar(axes, actions[a], x + width / 2, lane)
        if kind == "forward" and batch not in seen:
            seen.add(batch)
            axes.axvline(x, color="#999999", linewidth=0.7, linestyle=":", zorder=1)
            if x >= free:
                axes.annotate(f"micro-batch {batch}", (x, 1.0), xycoords=("data", "axes fraction"), fontsize=7,
                              color="#555555", va="bottom")
                free = x + 0.08 * end
    colors = {group: color for group, (color, _) in style.KIND_GROUPS.items() if group in bars}
    for group, color in colors.items():
        style.bars(axes, bars[group], color)
    style.color_legend(axes, colors, "actions")
    shows_waits = len(place) == len(actions) <= MOST_WITH_WAITS
    if shows_waits:
        draw_waits(axes, actions, streams)
    return shows_waits


def label_bar(axes, action, x, lane):
    label = action["kind"] + (f" {action['unit']}" if action["unit"] else "")
    if len(label) > 17:
        label = action["unit"] or action["kind"]
    color = style.text_on(style.KIND_GROUPS[style.group_of(action["kind"])][0])
    axes.text(x, lane, label, rotation=90, ha="center", va="center", fontsize=6, color=color, zorder=3)


def draw_waits(axes, actions, streams):
    """From the end of each action that is waited for to the begin of that which waits."""
    paths = []
    for a, action in enumerate(actions):
        to = -streams.index(action["stream"])
        for waited in action["waits"]:
            start = -streams.index(actions[waited]["stream"])
            side = 0.4 if to > start else -0.4
            y1, y2 = start + side, to - side
            points = [(waited + 0.9, y1), (waited + 0.9, (y1 + y2) / 2), (a, (y1 + y2) / 2), (a, y2)]
            paths.append(matplotlib.path.Path(points, [1, 4, 4, 4]))
    axes.add_collection(matplotlib.collections.PathCollection(
        paths, facecolors="none", edgecolors="#777777", linewidths=0.6, zorder=1))


def draw_memory(axes, plan, drawn, place, gaps):
    live, memory = live_bytes(plan), plan["memory"]
    divisor, unit = style.bytes_scale(memory["arena_bytes"])
    for begin, end in drawn:
        edges = place[begin] + numpy.arange(end - begin + 1)
        style.stack(axes, edges, {name: values[begin:end] for name, values in live.items()}, divisor)
    for middle, left_out in gaps:
        axes.annotate(f"{left_out:,} actions are left out", (middle, 0.5), xycoords=("data", "axes fraction"),
                      rotation=90, ha="center", va="center", fontsize=7, color="#555555")
    for name, dashes in (("arena", "--"), ("persistent", ":")):
        size = memory[name + "_bytes"]
        axes.axhline(size / divisor, color="black", linewidth=1.0, linestyle=dashes)
        axes.annotate(f"{name} {style.bytes_text(size)}", (1.0, size / divisor), xycoords=("axes fraction", "data"),
                      xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    peak = memory["peak_action"]
    total = sum(values[peak] for values in live.values())
    axes.plot([place[peak] + 0.5], [total / divisor], "o", color="white", markeredgecolor="black", markersize=5)
    axes.set_title(f"live device memory: peak {style.bytes_text(total)} at {memory['peak_action_name']}")
    axes.set_ylabel(f"live bytes of a rank ({unit})")
    axes.set_ylim(0, 1.06 * memory["arena_bytes"] / divisor)
    style.color_legend(axes, style.used_categories(live), "memory", loc="upper center", ncol=8,
                       bbox_to_anchor=(0.5, -0.14))


def facts_of(plan):
    traffic, copies, batches = plan["traffic"], plan["copies"], plan["micro_batches"]
    return ", ".join([
        f"{len(plan['actions']):,} actions", f"{batches:,} micro-batch" + ("" if batches == 1 else "es"),
        style.bytes_text(traffic["bytes_inside_nodes"] + traffic["bytes_across_nodes"]) + " sent",
        style.bytes_text(copies["bytes_to_device"] + copies["bytes_to_host"]) + " copied",
        style.flops_text(plan["flops"])])


def make(files, title):
    plan = read_json(files[0])
    actions, stages = plan["actions"], plan.get("timelines", [])
    title = title or f"Plan of a step on {plan['ranks']} ranks"
    drawn = windows(len(actions), plan["memory"]["peak_action"])
    place, gaps, end = places(drawn)
    lane = 1.15 if len(place) <= MOST_WITH_LABELS else 0.5
    heights = [lane * len({action["stream"] for action in actions}) + 0.4, 3.2]
    if len(stages) > 1:
        heights.insert(0, 0.35 * len(stages) + 0.9)
    figure, (*above, upper, lower) = style.figure(title, 15, heights)
    if above:
        timeline.draw_stages(above[0], stages)
    shows_waits = draw_actions(upper, actions, place, end)
    draw_memory(lower, plan, drawn, place, gaps)
    upper.set_title(f"{facts_of(plan)}; actions in plan order, each as wide as every other: widths are not times"
                    + ("; lines are waits" if shows_waits else ""), pad=18, fontweight="normal")
    tick = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200) if 9 * step >= end / len(drawn))
    numbers = [a for a in place if a % tick == 0]
    lower.set_xticks([place[a] for a in numbers], [str(a) for a in numbers])
    lower.set_xlabel("action, by its number in the plan")
    upper.set_xticks([])
    for axes in (upper, lower):
        axes.set_xlim(-0.5, end + 0.5)
    return Report(title, figure, [facts_of(plan)])
