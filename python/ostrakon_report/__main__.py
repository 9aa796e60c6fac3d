# SPDX-License-Identifier: Apache-2.0
"""python3 -m ostrakon_report: the command line."""

import argparse
import importlib
import os
import sys

from . import ReportError

# Module and function that make the report, the most files (None: any number), what is drawn from what.
COMMANDS = {
    "plan": ("plan.make", 1, "a plan in plan order, from plan.json of a run or ostrakon-plan --json"),
    "stages": ("timeline.make_stages", 1, "what stages of a pipeline compute when, from ostrakon-plan --json with "
               "--time or rates"),
    "step": ("timeline.make_step", 2, "a step true in time, from ostrakon-plan --json with --time or rates; with "
             "what was measured, from a second file, a run's trace.json"),
    "study": ("study.make", 1, "a scaling study, from collected.json or ostrakon-plan --time --sweep --json"),
    "run": ("run.make", None, "training runs, from the metrics.jsonl of each"),
}
FORMATS = ("svg", "png", "html", "md")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="ostrakon_report", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="".join(f"{name:8}{what}\n" for name, (_, _, what) in COMMANDS.items()))
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", dest="outputs", action="append", required=True, metavar="OUT.(svg|png|html)",
                        help="what to write; may be given several times; of a study also OUT.md")
    parser.add_argument("--format", choices=FORMATS, help="of OUT, whatever its name")
    parser.add_argument("--title", help="of the picture")
    return parser.parse_args(arguments)


def format_of(path, options):
    known = FORMATS if options.command == "study" else FORMATS[:3]
    ending = options.format or os.path.splitext(path)[1][1:].lower()
    if ending not in known:
        raise ReportError(f"-o {path}: expected a name that ends in .{', .'.join(known)}, or --format")
    return ending


def run(arguments):
    options = parse(arguments)
    formats = [format_of(path, options) for path in options.outputs]
    maker, most, what = COMMANDS[options.command]
    if most and len(options.files) > most:
        raise ReportError(f"{options.command} takes {most} file{'' if most == 1 else 's'}; found {len(options.files)}")
    module, function = maker.split(".")
    try:
        make = getattr(importlib.import_module("." + module, __package__), function)
    except ImportError as error:
        raise ReportError(f"{error}; expected the Python packages matplotlib and jinja2") from error
    try:
        report = make(options.files, options.title)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error).split("\n", maxsplit=1)[0]
        files = ", ".join(options.files)
        raise ReportError(f"{files}: is not what is drawn here ({reason}); expected {what}") from error
    for path, ending in zip(options.outputs, formats):
        report.write(path, ending)


def main(arguments=None):
    try:
        run(arguments)
    except (ReportError, OSError) as error:
        print(f"ostrakon_report: error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
