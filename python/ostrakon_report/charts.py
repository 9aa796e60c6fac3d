# SPDX-License-Identifier: Apache-2.0
"""Charts of a page: curves over steps as SVG that stretches to any width, with the numbers for a reader's
pointer. A chart has columns; what falls into one is drawn as its mean, within its least and most."""

import json
import math
from dataclasses import dataclass, field

from . import palette

WIDTH, HEIGHT = 4000, 1000  # of the coordinates within a chart, which are integers


@dataclass
class Curve:
    run: int  # index of the run, which gives the colour
    name: str  # "" or what it is among a run's curves in the chart
    steps: list
    values: list  # NaN where a value was not finite
    look: str = "line"  # line, dashed, dotted or dots


@dataclass
class Grid:
    """Columns that all charts of a page share: `columns` of `width` steps each, from the step `first` on."""
    first: int
    width: float
    columns: int

    @classmethod
    def of(cls, first, last, most):
        count = last - first + 1
        return cls(first, 1.0, count) if count <= most else cls(first, count / most, most)

    def column(self, step):
        return min(self.columns - 1, int((step - self.first) / self.width))


@dataclass
class Points:
    """A curve by columns: those that have a finite value, with mean, least and most; and those that have another."""
    columns: list = field(default_factory=list)
    means: list = field(default_factory=list)
    least: list = field(default_factory=list)
    most: list = field(default_factory=list)
    broken: list = field(default_factory=list)


def points_of(curve, grid):
    points, column, found = Points(), None, []

    def close():
        if found:
            points.columns.append(column)
            points.means.append(found[0] if min(found) == max(found) else math.fsum(found) / len(found))
            points.least.append(min(found))
            points.most.append(max(found))

    first, width, end = grid.first, grid.width, grid.columns - 1
    for step, value in zip(curve.steps, curve.values):
        at = int((step - first) / width)
        at = min(at, end)
        if at != column:
            close()
            column, found = at, []
        if math.isfinite(value):
            found.append(value)
        elif not points.broken or points.broken[-1] != at:
            points.broken.append(at)
    close()
    return points


def nice_step(span, most):
    """The least of 1, 2, 5, 10, ... by which `span` has at most so many steps."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if span <= most * power * factor * (1 + 1e-9))


class Axis:
    """The vertical axis: from `low` to `high`, with ticks. `kind`: number, bytes, percent or count."""

    def __init__(self, low, high, kind, from_zero):
        self.kind = kind
        self.is_log = not from_zero and low > 0 and high > 5 * low
        self.digits = 4
        if self.is_log:
            self.low, self.high = low, high
            self.ticks = self.log_ticks()
            return
        if from_zero:
            low = min(low, 0.0)
        if high <= low:
            low, high = (0.0, 1.0) if high == 0 else sorted((0.0, 2 * high)) if from_zero else (
                low - abs(low) / 10, high + abs(high) / 10)
        room = 0.04 * (high - low)
        self.low, self.high = (low if from_zero and low == 0 else low - room), high + room
        unit = palette.bytes_scale(high)[0] if kind == "bytes" else 0.01 if kind == "percent" else 1.0
        step = unit * nice_step((self.high - self.low) / unit, 5)
        first = math.ceil(self.low / step - 1e-9)
        self.ticks = [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        self.digits = max(4, 2 + math.floor(math.log10(max(map(abs, self.ticks)) / step)))

    def log_ticks(self):
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
            ticks = [factor * 10.0 ** power for power in powers for factor in factors]
            ticks = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(ticks) <= 6:
                return ticks
        return ticks[::-(-len(ticks) // 6)]

    def place(self, value):
        """How far above the bottom, from 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def text(self, value):
        divisor, unit = palette.bytes_scale(self.high) if self.kind == "bytes" else \
            (0.01, "%") if self.kind == "percent" else (1.0, "")
        value /= divisor
        if abs(value) >= 1000:
            return f"{value:,.0f} {unit}".strip()
        return f"{value:.{self.digits}g} {unit}".strip()


def moves(points):
    """Points (x, y) as a path: from each to the next, relative, without those inside of horizontal lines."""
    kept = [p for i, p in enumerate(points)
            if not 0 < i < len(points) - 1 or not points[i - 1][1] == p[1] == points[i + 1][1]]
    x, y = kept[0]
    path = f"M{x} {y}"
    for to_x, to_y in kept[1:]:
        dx, dy = to_x - x, to_y - y
        path += f"h{dx}" if dy == 0 else f"v{dy}" if dx == 0 else f"l{dx} {dy}"
        x, y = to_x, to_y
    return path


def stretches(points):
    """Ranges of indices between which no column is broken, so that a line may join them."""
    begin, breaks = 0, iter(points.broken)
    broken = next(breaks, None)
    for i, column in enumerate(points.columns):
        if broken is not None and broken <= column:
            if i > begin:
                yield begin, i
            begin = i
            while broken is not None and broken <= column:
                broken = next(breaks, None)
    if points.columns[begin:]:
        yield begin, len(points.columns)


@dataclass
class Chart:
    title: str
    unit: str
    curves: list
    kind: str = "number"
    from_zero: bool = False

    def lay_out(self, grid):
        """Makes what the template shows; False if no curve has a finite value."""
        drawn = [(curve, points_of(curve, grid)) for curve in self.curves]
        drawn = [(curve, points) for curve, points in drawn if points.columns]
        if not drawn:
            return False
        self.axis = Axis(min(min(points.least) for _, points in drawn), max(max(points.most) for _, points in drawn),
                         self.kind, self.from_zero)
        self.shapes = [self.shape(curve, points, grid) for curve, points in drawn]
        # Names of curves are of this package: nothing has to be escaped in a page.
        self.data = json.dumps([self.numbers(curve, points) for curve, points in drawn], separators=(",", ":"))
        return True

    def ticks(self):
        """Heights in percent of the plot, places in its coordinates, and texts."""
        return [(f"{100 * place:.4g}", round(HEIGHT * (1 - place)), self.axis.text(tick))
                for tick in self.axis.ticks for place in [self.axis.place(tick)]]

    def looks(self):
        """How curves look that have names: "line", "training"."""
        return list(dict.fromkeys((curve.look, curve.name) for curve in self.curves if curve.name))

    def shape(self, curve, points, grid):
        def x(column):
            return round(WIDTH * (column + 0.5) / grid.columns)

        def y(value):
            return round(HEIGHT * (1 - self.axis.place(value)))

        line, band, dots = "", "", ""
        for begin, end in stretches(points):
            xs = [x(column) for column in points.columns[begin:end]]
            is_dot = curve.look == "dots" or end - begin == 1  # a single point has no line that shows it
            means = list(zip(xs, map(y, points.means[begin:end])))
            line += moves(means)
            dots += "".join(f"M{to_x} {to_y}h0" for to_x, to_y in means) if is_dot else ""
            low, high = (list(map(y, values[begin:end])) for values in (points.least, points.most))
            if low != high:
                band += moves(list(zip(xs, high)) + list(zip(xs, low))[::-1]) + "z"
        marks = "".join(f"M{x(column)} {HEIGHT}v-60" for column in points.broken)
        return {"run": curve.run, "look": curve.look, "line": line, "band": band, "dots": dots, "marks": marks}

    @staticmethod
    def numbers(curve, points):
        """What a pointer shows: run, name, columns (the first one, where they follow each other), means, and
        if they differ, least and most; a list of equal values is one value."""
        def short(values):
            values = [value if isinstance(value, int) else float(f"{value:.5g}") for value in values]
            values = [int(value) if value == int(value) else value for value in values]
            return values[0] if len(set(values)) == 1 else values

        columns = points.columns
        follow = columns[-1] - columns[0] == len(columns) - 1
        numbers = {"r": curve.run, "n": curve.name, "c": columns[0] if follow else columns, "k": len(columns),
                   "m": short(points.means)}
        if points.least != points.most:
            numbers.update(a=short(points.least), b=short(points.most))
        return numbers
