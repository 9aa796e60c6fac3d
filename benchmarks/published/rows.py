#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts the measured steps of rows.csv with ostrakon-plan.

    benchmarks/published/rows.py BUILD [--rows ID,ID] [--output FOLDER] [--decks] [--write] [--check]

Writes a deck for each row and, where its program differs from its stack in machines/stacks, a stack
file, and runs, with as many at a time as there are cores,

    ostrakon-plan DECK --ranks N --ranks-per-node M --time MACHINE --stack STACK --json --brief

Prints a line for each row, then tables. With --write tables go into docs/simulation.md, rows into
docs/simulation-rows.csv, and the errors of those of rows-check.csv into that. With --check runs
only the latter, and fails where one is further off than the file says. With --decks runs nothing:
FOLDER then has the decks, the stack files, and index.csv, which lists them for fit_machines.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

import row_decks
import row_tables

CHECKED = os.path.join(row_decks.HERE, "rows-check.csv")
PAGE = os.path.join(row_decks.SOURCES, "docs", "simulation.md")
TABLE = os.path.join(row_decks.SOURCES, "docs", "simulation-rows.csv")
BEGIN, END = "<!-- tables: rows.py -->\n", "<!-- end of tables: rows.py -->\n"
LEFT_OUT = os.path.join(row_decks.HERE, "rows-left-out-of-fits.csv")
CHECKED_HEAD = """# SPDX-License-Identifier: Apache-2.0
# Rows of rows.csv that a test predicts, with each stack and each dimension, and the most that each
# may be off: a per cent more than when rows.py --write wrote this.
id,most_percent
"""


def predict(row, program, folder):
    """What the program says of a row, or its message where it refuses the row."""
    command = row_decks.words(row, program, row_decks.write_files(row, folder), ["--brief"])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def read_left_out():
    """Seconds of each row by numbers that were fitted without its source."""
    with open(LEFT_OUT, encoding="utf-8") as file:
        return {line["id"]: float(line["left_out_s"]) for line in csv.DictReader(file)}


def predict_all(rows, program, folder, shows=True):
    """A list of Predicted, and of pairs of row and message; prints each in order if it `shows`."""
    predicted, refused = [], []
    left_out = read_left_out()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for row, found in zip(rows, pool.map(lambda row: predict(row, program, folder), rows)):
            if isinstance(found, str):
                refused.append((row, found))
                print("%-8s %s" % (row.id, found), flush=True)
                continue
            one = row_tables.Predicted(row, found, left_out.get(row.id))
            predicted.append(one)
            if not shows:
                continue
            print("%-8s %-20s %-30s %10.4g s measured %10.4g s predicted %+6.1f %%" %
                  (row.id, row.group, row.stack, row.measured, one.seconds, one.error), flush=True)
    return predicted, refused


def read_checked():
    with open(CHECKED, encoding="utf-8") as file:
        lines = csv.DictReader(line for line in file if not line.startswith("#"))
        return {line["id"]: float(line["most_percent"]) for line in lines}


def kinds(rows):
    """Stacks and dimensions."""
    return {row.stack for row in rows} | {name for row in rows for name in row.dimensions}


def check(all_rows, program, folder):
    bounds = read_checked()
    rows = [row for row in all_rows if row.id in bounds]
    if len(rows) < len(bounds):
        sys.exit("rows-check.csv: ids that rows.csv does not have")
    if kinds(all_rows) - kinds(rows):
        sys.exit("rows-check.csv: no row with " + ", ".join(sorted(kinds(all_rows) - kinds(rows))))
    predicted, refused = predict_all(rows, program, folder)
    worse = ["row %s: %+.2f %%, expected at most %.2f %%" % (one.row.id, one.error,
                                                             bounds[one.row.id])
             for one in predicted if not abs(one.error) <= bounds[one.row.id]]
    worse += ["row %s: %s" % (row.id, message) for row, message in refused]
    if worse:
        sys.exit("\n".join(worse))


def write_page(text):
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    row_decks.write(PAGE, before + BEGIN + text + END + after)


def write_checked(predicted):
    bounds = read_checked()
    lines = ["%s,%.1f" % (one.row.id, math.ceil(10.0 * abs(one.error)) / 10.0 + 1.0)
             for one in predicted if one.row.id in bounds]
    row_decks.write(CHECKED, CHECKED_HEAD + "\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--rows", help="ids of rows, with commas between them; default: all")
    parser.add_argument("--output", help="folder for decks and stack files; default: temporary")
    parser.add_argument("--decks", action="store_true", help="only write decks and index.csv")
    parser.add_argument("--write", action="store_true",
                        help="write docs/simulation.md, simulation-rows.csv and rows-check.csv")
    parser.add_argument("--check", action="store_true", help="only compare with rows-check.csv")
    arguments = parser.parse_args()
    if arguments.decks and not arguments.output:
        parser.error("--decks needs --output")
    if arguments.rows and (arguments.write or arguments.check):
        parser.error("--write is of all rows, and --check of those of rows-check.csv")
    program = os.path.join(arguments.build, "apps", "ostrakon-plan")
    rows = row_decks.read_rows()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or temporary
        os.makedirs(folder, exist_ok=True)
        if arguments.check:
            return check(rows, program, folder)
        if arguments.rows:
            ids = arguments.rows.split(",")
            unknown = set(ids) - {row.id for row in rows}
            if unknown:
                parser.error("--rows: rows.csv has no " + ", ".join(sorted(unknown)))
            rows = [row for row in rows if row.id in ids]
        if arguments.decks:
            return row_decks.write_index(rows, os.path.abspath(folder))
        predicted, refused = predict_all(rows, program, folder)
        sizes, refused_sizes = predict_all(row_tables.other_sizes(rows), program, folder,
                                           shows=False)
    found = {one.row.id: (one.seconds, one.row.measured) for one in predicted + sizes}
    text = row_tables.tables(predicted, refused + refused_sizes, found)
    print("\n" + text)
    if arguments.write:
        write_page(text)
        row_decks.write(TABLE, "\n".join(row_tables.csv_lines(predicted)) + "\n")
        write_checked(predicted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
