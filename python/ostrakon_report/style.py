# SPDX-License-Identifier: Apache-2.0
"""How pictures look."""

import matplotlib
import numpy
from matplotlib.figure import Figure

from .palette import *  # noqa: F403 - pictures take colours and quantities from here, too

matplotlib.rcParams.update({
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "ostrakon",  # the same picture is the same file
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
})


def figure(title, width, heights, columns=1):
    """A figure with rows of axes of these heights, in inches."""
    made = Figure(figsize=(width, sum(heights) + 0.8), layout="constrained")
    made.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    axes = made.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    return made, list(axes.flatten())


def lanes(axes, names, label):
    """Lanes below each other, the first one at the top, with centres at 0, -1, ..."""
    for lane in range(len(names)):
        axes.axhspan(-lane - 0.4, -lane + 0.4, color="#f3f3f3", linewidth=0, zorder=0)
    axes.set_yticks([-lane for lane in range(len(names))], names)
    axes.set_ylim(-len(names) + 0.5, 0.5)
    axes.set_ylabel(label)
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    axes.spines["left"].set_visible(False)


def bars(axes, rectangles, color, line_width=0.0):
    """Rectangles (left, bottom, width, height) as one shape, which keeps files small."""
    vertices = [point for x, y, w, h in rectangles
                for point in ((x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y))]
    path = matplotlib.path.Path(vertices, [1, 2, 2, 2, 79] * len(rectangles))
    axes.add_patch(matplotlib.patches.PathPatch(path, facecolor=color, edgecolor="white",
                                                linewidth=line_width, zorder=2))


def color_legend(axes, colors, title, **where):
    """Right of the axes, or where it is said. `colors`: by label."""
    patches = [matplotlib.patches.Patch(color=color, label=label) for label, color in colors.items()]
    axes.legend(handles=patches, title=None if where else title, alignment="left",
                **(where or {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}))


def stack(axes, edges, live, divisor):
    """Stacked areas of memory. `live`: values of each category between the edges, which are one more."""
    values = numpy.array(list(live.values()))
    keep = numpy.append(True, (values[:, 1:] != values[:, :-1]).any(axis=0))  # equal neighbours are one
    edges, live = numpy.append(edges[:-1][keep], edges[-1]), {name: of[keep] for name, of in live.items()}
    base = 0.0 * edges[:-1]
    for category, color in CATEGORIES.items():
        if category not in live or not live[category].any():
            continue
        roof = base + live[category] / divisor
        axes.stairs(roof, edges, baseline=base, fill=True, color=color, linewidth=0)
        base = roof


def log_scale(axes):
    """Ticks at 1, 2 and 5 times powers of ten, as plain numbers."""
    axes.set_yscale("log")
    axis = axes.yaxis
    axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def used_categories(live):
    return {name.replace("_", " "): color for name, color in reversed(CATEGORIES.items())
            if name in live and live[name].any()}
