# SPDX-License-Identifier: Apache-2.0
"""Where a step's time goes, from the trace.json of a run."""

from collections import Counter, defaultdict

from . import ReportError, palette

WAITING = "waiting"


def divide(actions, seconds):
    """Divides a step of a rank, `seconds` long, into what it does: at each moment the action of the compute
    stream or, where none runs, what another stream does, as "exposed". `actions`: (stream, group, begin, end)
    in seconds, the stream as its place in palette.STREAMS. The sum of the result is `seconds`."""
    events = sorted((time, sign, stream, group) for stream, group, begin, end in actions if end > begin
                    for time, sign in ((begin, 1), (end, -1)))
    running, parts, before = Counter(), Counter(), 0.0
    for time, sign, stream, group in events:
        if time > before and running:
            first, what = min(running)
            parts[what if first == 0 else "exposed " + what] += time - before
        before = time
        running[stream, group] += sign
        if running[stream, group] == 0:
            del running[stream, group]
    parts[WAITING] = max(0.0, seconds - sum(parts.values()))
    return parts


def read_actions(trace, path):
    """{step: {rank: actions as `divide` takes them}} of a trace."""
    found = defaultdict(lambda: defaultdict(list))
    for event in trace.get("traceEvents", []) if isinstance(trace, dict) else []:
        if event.get("ph") == "X" and "step" in event.get("args", {}) and event["tid"] < len(palette.STREAMS):
            begin = 1e-6 * event["ts"]
            found[event["args"]["step"]][event["pid"]].append(
                (event["tid"], palette.group_of(event["cat"]), begin, begin + 1e-6 * event["dur"]))
    if not found:
        raise ReportError(f"{path}: has no actions; expected the trace.json of a run")
    return found


def mean_parts(trace, path, step_seconds):
    """The mean over ranks and traced steps: shares of the step by what is done; the number of steps, of ranks.
    `step_seconds`: by step; a step without is as long as the longest of its ranks' actions."""
    steps, shares, count = read_actions(trace, path), Counter(), 0
    for step, ranks in steps.items():
        spans = [max(end for *_, end in actions) - min(begin for _, _, begin, _ in actions)
                 for actions in ranks.values()]
        seconds = max(step_seconds.get(step, 0.0), *spans)
        for actions in ranks.values():
            count += 1
            for what, time in divide(actions, seconds).items():
                shares[what] += time / seconds
    return {what: share / count for what, share in shares.items()}, len(steps), count // len(steps)
