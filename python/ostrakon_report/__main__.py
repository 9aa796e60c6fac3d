# SPDX-License-Identifier: Apache-2.0
"""ostrakon-report, or python3 -m ostrakon_report: the command line."""

import argparse
import importlib
import os
import sys
import time

from . import ReportError, __version__, export
from .follow import follow
from .runs import make_runs, read_runs

# Module and function that make the picture, the most files (None: any number), what is drawn from what.
COMMANDS = {
    "plan": ("plan.make", 1, "a plan in plan order, from plan.json of a run or ostrakon-plan --json"),
    "stages": ("timeline.make_stages", 1, "what stages of a pipeline compute when, from ostrakon-plan --json with "
               "--time or rates"),
    "step": ("timeline.make_step", 2, "a step true in time, from ostrakon-plan --json with --time or rates; with "
             "what was measured, from a second file, a run's trace.json"),
    "study": ("study.make", 1, "a scaling study, from collected.json or ostrakon-plan --time --sweep --json"),
    "snapshot": ("snapshot.make", 1, "memory of a plan for PyTorch's memory_viz, from plan.json of a run or "
                 "ostrakon-plan --json"),
    "run": ("run.make", None, "training runs, from the metrics.jsonl of each; a page is that of --html"),
}
FORMATS = ("svg", "png", "html", "md", "pickle")
OF_COMMAND = {"study": FORMATS[:4], "snapshot": FORMATS[4:]}
PAGE_EVERY = 60.0  # seconds between pages of runs that go on


def parse_picture(arguments):
    parser = argparse.ArgumentParser(prog="ostrakon-report", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="".join(f"{name:10}{what}\n" for name, (_, _, what) in COMMANDS.items()))
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", dest="outputs", action="append", required=True, metavar="OUT.(svg|png|html)",
                        help="what to write; may be given several times; of a study also OUT.md, of a snapshot OUT.pickle")
    parser.add_argument("--format", choices=FORMATS, help="of OUT, whatever its name")
    parser.add_argument("--title", help="of the picture")
    return parser.parse_args(arguments)


def parse_runs(arguments):
    parser = argparse.ArgumentParser(
        prog="ostrakon-report", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Training runs as a page, in a terminal, and for other tools.",
        epilog="ostrakon-report COMMAND FILE... -o OUT draws pictures; COMMAND --help says more:\n"
        + "".join(f"  {name:10}{what}\n" for name, (_, _, what) in COMMANDS.items()))
    parser.add_argument("--version", action="version", version=f"ostrakon-report {__version__}")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's output.directory, or its metrics.jsonl")
    parser.add_argument("--html", metavar="PAGE", help="write a page, which needs no other file; needs jinja2")
    parser.add_argument("--tensorboard", metavar="FOLDER", help="write event files; needs tensorboard or tensorboardX")
    parser.add_argument("--wandb", metavar="PROJECT", help="send to Weights & Biases; needs wandb")
    parser.add_argument("--mlflow", metavar="EXPERIMENT", help="send to MLflow; needs mlflow")
    parser.add_argument("--follow", action="store_true",
                        help="show progress, and write and send what is new, until the runs are done")
    parser.add_argument("--title", help="of the page")
    options = parser.parse_args(arguments)
    if not (options.html or options.tensorboard or options.wandb or options.mlflow or options.follow):
        parser.error("nothing to do; expected --html, --tensorboard, --wandb, --mlflow or --follow")
    return options


def format_of(path, options):
    known = OF_COMMAND.get(options.command, FORMATS[:3])
    ending = options.format or os.path.splitext(path)[1][1:].lower()
    if ending not in known:
        raise ReportError(f"-o {path}: expected a name that ends in .{', .'.join(known)}, or --format")
    return ending


def draw(arguments):
    options = parse_picture(arguments)
    formats = [format_of(path, options) for path in options.outputs]
    maker, most, what = COMMANDS[options.command]
    if most and len(options.files) > most:
        raise ReportError(f"{options.command} takes {most} file{'' if most == 1 else 's'}; found {len(options.files)}")
    if options.command == "run" and set(formats) == {"html"}:
        for path in options.outputs:
            write_page(options.files, path, options.title)
        return
    module, function = maker.split(".")
    try:
        make = getattr(importlib.import_module("." + module, __package__), function)
    except ImportError as error:
        raise ReportError(f"{error}; expected the Python packages matplotlib and jinja2") from error
    report = checked(options.files, what, lambda: make(options.files, options.title))
    for path, ending in zip(options.outputs, formats):
        if options.command == "run" and ending == "html":
            write_page(options.files, path, options.title)
        else:
            report.write(path, ending)


def checked(files, what, work):
    """work(), with what is missing in a file as an error that says what was expected."""
    try:
        return work()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error).split("\n", maxsplit=1)[0]
        names = ", ".join(files)
        raise ReportError(f"{names}: is not what is drawn here ({reason}); expected {what}") from error


def write_page(files, out, title):
    try:
        page = importlib.import_module(".page", __package__)
        checked(files, "files of training runs", lambda: page.write_page(files, out, title))
    except ImportError as error:
        raise ReportError(f"{error}; expected the Python package jinja2") from error


class Page:
    """The page of runs that go on, written anew from time to time."""

    def __init__(self, options):
        self.options = options
        self.is_new = False  # whether rows have come since the last page
        self.written = 0.0

    def add(self, run, row, when):
        self.is_new = True

    def flush(self):
        if self.is_new and time.monotonic() - self.written >= PAGE_EVERY:
            self.close()

    def close(self):
        if self.is_new:
            write_page(self.options.runs, self.options.html, self.options.title)
            self.is_new, self.written = False, time.monotonic()


def show_runs(arguments):
    options = parse_runs(arguments)
    sinks = [export.Sink(option, value, make) for option, value, make in (
        ("--tensorboard", options.tensorboard, export.TensorBoard), ("--wandb", options.wandb, export.WeightsAndBiases),
        ("--mlflow", options.mlflow, export.MLflow), ("--html", options.html, lambda _: Page(options))) if value]
    if options.follow:
        follow(make_runs(options.runs), sinks)
    else:
        for run in read_runs(options.runs):
            rows = run.history.rows()
            for row, when in zip(rows, export.times(run, rows)):
                for sink in sinks:
                    sink.add(run, row, when)
    for sink in sinks:
        sink.close()


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        (draw if arguments and arguments[0] in COMMANDS else show_runs)(arguments)
    except (ReportError, OSError) as error:
        is_of_file = isinstance(error, OSError) and error.filename is not None and error.strerror
        reason = f"{error.filename}: {error.strerror}" if is_of_file else error
        print(f"ostrakon-report: error: {reason}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
