# SPDX-License-Identifier: Apache-2.0
"""The run.lock in a run's folder, which names the process that trains there."""

import os
import socket


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def start_of(process):
    """When a process of this host started, in ticks since boot, as text; "" where the system does not show it."""
    # The second field is the program's name in parentheses, which may contain any character.
    fields = read_text(f"/proc/{process}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def is_no_process(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another user's process, or a number that can be none
        pass
    return False


def own_processes():
    """The process-id namespace, which containers may have their own of."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def gone_process(path):
    """The number of the process that a lock file names, if that is known to be gone; else None. Nothing is known
    of processes of other hosts, boots and process-id namespaces."""
    found = dict(line.partition(": ")[::2] for line in read_text(path).splitlines())
    here = {"host": socket.gethostname(), "boot": read_text("/proc/sys/kernel/random/boot_id").strip(),
            "processes": own_processes()}
    number = found.get("process", "")
    if not here["boot"] or any(found.get(key) != value for key, value in here.items()):
        return None
    if not (number.isascii() and number.isdigit() and int(number)):
        return None
    process = int(number)
    if is_no_process(process):
        return process
    start, now = found.get("started", ""), start_of(process)
    return process if start.isdigit() and now and start != now else None
