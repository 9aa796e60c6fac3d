# SPDX-License-Identifier: Apache-2.0
"""Colours, and how quantities are written. Colours are Okabe and Ito's, which people with any kind of
colour vision can tell apart (Color Universal Design, 2008)."""

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
YELLOW, BLUE, RED, PURPLE = "#f0e442", "#0072b2", "#d55e00", "#cc79a7"
GREY, DARK = "#bbbbbb", "#444444"
LINES = [BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY]

# Kinds of actions, in groups that have a colour each.
KIND_GROUPS = {
    "forward": (SKY, ["forward"]),
    "recompute": (BLUE, ["recompute"]),
    "backward": (RED, ["backward"]),
    "gather": (GREEN, ["gather", "dequantize", "gather_gradients", "gather_updates"]),
    "reduce": (ORANGE, ["reduce_scatter", "accumulate"]),
    "update": (PURPLE, ["optimize", "direction", "orthogonalize", "verify"]),
    "loss, norm, clip": (DARK, ["loss", "norm", "clip", "reduce_sums"]),
    "copy, send, receive": (YELLOW, ["copy_to_device", "copy_to_host", "send", "receive", "exchange"]),
    "other": (GREY, ["begin", "load", "keep", "release", "visit", "digest", "audit"]),
}
GROUP_OF_KIND = {kind: group for group, (_, kinds) in KIND_GROUPS.items() for kind in kinds}

# Categories of memory: from the bottom what stays from step to step, then what comes and goes.
CATEGORIES = {
    "parameters": BLUE, "optimizer_state": PURPLE, "other": GREY, "gradients": ORANGE,
    "activations": RED, "gathered_parameters": GREEN, "communication_staging": SKY, "workspace": YELLOW,
}
STREAMS = ["compute", "gather", "reduce", "upload", "download", "host", "send", "receive", "exchange"]


def group_of(kind):
    return GROUP_OF_KIND.get(kind, "other")


def text_on(color):
    red, green, blue = (int(color[i:i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else "black"


def scale_of(most, units, base):
    """The divisor and the name of the unit in which `most` is at least 1."""
    divisor = 1.0
    for unit in units[:-1]:
        if abs(most) < base * divisor:
            return divisor, unit
        divisor *= base
    return divisor, units[-1]


def bytes_scale(most):
    return scale_of(most, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024.0)


def seconds_scale(most):
    divisor, unit = scale_of(most * 1e6, ["µs", "ms", "s"], 1000.0)
    return divisor * 1e-6, unit


def quantity(value, scale):
    divisor, unit = scale
    return f"{value / divisor:.4g} {unit}"


def bytes_text(value):
    return quantity(value, bytes_scale(value))


def seconds_text(value):
    return quantity(value, seconds_scale(value))


def flops_text(value):
    return quantity(value, scale_of(value, [p + "FLOP" for p in ["", "k", "M", "G", "T", "P", "E"]], 1000.0))


def duration_text(seconds):
    """As progress lines of ostrakon-train have it: 00:12:30, 2-00:00:00."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{whole % 60:02}"
