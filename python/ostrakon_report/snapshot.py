# SPDX-License-Identifier: Apache-2.0
"""The planned memory of a step as a snapshot of PyTorch's allocator, which its memory_viz shows.

A buffer is an allocation at its place in the arena, from the first action that uses it to the last one. Its
stack is its name and the action. Device memory is device 0; host memory, where the plan has any, is device 1."""

import pickle

from .runs import read_json

SPACES = ("device", "host")
BASES = (1 << 40, 2 << 40)  # addresses of the arenas: any that are not 0


def stack(plan, name, action):
    """The stack of a buffer that is allocated or freed at an action: one frame."""
    at = plan["actions"][action]["name"] if action < len(plan["actions"]) else "end of the step"
    return [{"name": name, "filename": at, "line": action}]


def lifetimes(plan, space):
    """Buffers of a memory space by the action at which they become live; persistent ones are live before all."""
    end = len(plan["actions"])
    for buffer in plan["buffers"]:
        if buffer["space"] == space and buffer["bytes"] > 0 and buffer["first_action"] >= 0:
            yield (-1, end, buffer) if buffer["persistent"] else (buffer["first_action"], buffer["last_action"] + 1, buffer)


def trace(plan, space, base, size):
    """Events of a step: what is freed at an action is so before what it allocates. The arena is one segment, of
    `size` bytes, which is allocated before the step."""
    events, moments = [{"action": "segment_alloc", "addr": base, "size": size, "stream": 0, "time_us": 0,
                        "frames": [{"name": "arena", "filename": "before the step", "line": 0}]}], []
    for index, (begin, end, buffer) in enumerate(lifetimes(plan, space)):
        moments.append((begin, 1, index, "alloc", buffer))
        if not buffer["persistent"]:
            moments += [(end, 0, index, action, buffer) for action in ("free_requested", "free_completed")]
    moments.sort(key=lambda moment: moment[:3])
    for at, _, _, action, buffer in moments:
        at = max(0, at)
        events.append({"action": action, "addr": base + buffer["offset"], "size": buffer["bytes"], "stream": 0,
                       "time_us": at, "category": buffer["category"], "frames": stack(plan, buffer["name"], at)})
    return events


def segment(plan, space, device, base, size):
    """The arena after the step, with the persistent buffers in it."""
    blocks, at = [], 0

    def add(end, state, frames=()):
        nonlocal at
        if end > at:
            blocks.append({"address": base + at, "size": end - at, "requested_size": end - at, "state": state,
                           "frames": list(frames)})
            at = end

    kept = [buffer for _, _, buffer in lifetimes(plan, space) if buffer["persistent"]]
    for buffer in sorted(kept, key=lambda buffer: buffer["offset"]):
        add(buffer["offset"], "inactive")
        add(buffer["offset"] + buffer["bytes"], "active_allocated", stack(plan, buffer["name"], 0))
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    add(size, "inactive")
    return {"device": device, "address": base, "total_size": size, "allocated_size": active, "active_size": active,
            "requested_size": active, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks}


class Snapshot:
    def __init__(self, plan):
        sizes = [plan["memory"]["arena_bytes"], plan["host_memory"]["arena_bytes"]]
        arenas = [arena for arena in zip(SPACES, range(len(SPACES)), BASES, sizes) if arena[-1] > 0]
        self.content = {"segments": [segment(plan, *arena) for arena in arenas],
                        "device_traces": [trace(plan, space, base, size) for space, _, base, size in arenas],
                        "external_annotations": [], "allocator_settings": {}}

    def write(self, path, _):
        with open(path, "wb") as file:
            pickle.dump(self.content, file, protocol=4)


def make(files, _):
    return Snapshot(read_json(files[0]))
