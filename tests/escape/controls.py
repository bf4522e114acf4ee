#!/usr/bin/env python3
"""Positive controls: the same attempts with the mechanism that stops them switched off (build/switches)
must succeed, or the attempts would prove nothing.

A control "A + B + C" of mechanism A is two runs: with A, B and C off the attempt must escape; with B and
C off and A on it must be contained. So A alone is seen to hold it, whatever else would have as well.
`with FLAGS` is one run with a limit set wider. `vm: …` runs only where --vm says that this host is a
throwaway one.

    controls.py [--as root|user|range] [--ids ID...] [--vm] [--verbose]
    controls.py --matrix        each mechanism of switches.h: which attempts turn red without it

Plain python3 and the programs of CAISSON_BUILD and its sibling `switches` are all that it needs.
"""
import argparse
import collections
import contextlib
import os
import resource
import sys
import time

import host_case
import host_files  # noqa: F401  (fills ATTEMPTS)
import host_life  # noqa: F401
import suite
from suite import check_index, harness

# Mechanisms that no attempt can show by being switched off alone or with others, and why. The matrix
# fails for any other that turns nothing red.
NO_RED = {
    "pid_namespace": "the guest must be PID 1 of its namespace: without one no sandbox starts",
    "supervisor_confine": "tests/integration looks at the supervisor's ids, capabilities and filter from outside",
    "cgroup_devices": "the device controller stands behind nodev and ids that own no device",
}


def controlled(rows, kind, vm):
    rows = [row for row in suite.scoped(rows, kind) if check_index.has_control(row)]
    if os.geteuid() != 0:
        # The network around a sandbox is the real one then, and not for attacks.
        rows = [row for row in rows if "net_namespace" not in (check_index.control_of(row) or [])]
    # With a single id there is no other user inside.
    rows = [row for row in rows if kind != "user" or check_index.control_user(row) is None]
    return [row for row in rows if vm or not row.control.startswith("vm:")]


def run_programs(host, rows, off):
    """Outcomes of attack programs with the named mechanisms off, and the host made new again."""
    found = {}
    for user in {check_index.control_user(row) for row in rows}:
        group = [row for row in rows if check_index.control_user(row) == user]
        extra = ["--user", f"{user}:{user}"] if user else []
        found.update(suite.outcomes(host, group, preset="switches", off=off, extra=extra))
    host.reset()
    return found


def check_programs(host, rows, verbose):
    faults, by_off, belts = [], collections.defaultdict(list), collections.defaultdict(list)
    for row in rows:
        if row.control.startswith("with "):
            flags = row.control.removeprefix("with ").split()
            outcome = suite.outcomes(host, [row], extra=flags)[row.id]
            if outcome.word != "ESCAPED":
                faults.append(f"{row.id} {row.name}, {row.vector}: {row.control} still {outcome.word} {outcome.detail[:1000]}")
            continue
        off = check_index.control_of(row)
        by_off[tuple(off)].append(row)
        if len(off) > 1:
            belts[tuple(sorted(off[1:]))].append(row)
    for off, group in sorted(by_off.items()):
        found = run_programs(host, group, off)
        for row in group:
            outcome = found[row.id]
            if verbose:
                print(f"  without {'+'.join(off)}: {outcome.word} {row.id} {outcome.detail[:160]}")
            if outcome.word != "ESCAPED":
                faults.append(f"{row.id} {row.name}, {row.vector}: without {' and '.join(off)} still {outcome.word} "
                              f"{outcome.detail[:1000]}")
    for off, group in sorted(belts.items()):
        found = run_programs(host, group, off)
        for row in group:
            if found[row.id].word != "contained":
                faults.append(f"{row.id} {row.name}, {row.vector}: {row.mechanism} alone (without {' and '.join(off)}) "
                              f"does not hold it: {found[row.id].word} {found[row.id].detail[:1000]}")
    return faults


def check_host_attempts(host, rows):
    faults = []
    for row in rows:
        if row.control.startswith("with "):
            changes = {"flags": row.control.removeprefix("with ").split()}
        else:
            changes = {"preset": "switches", "off": check_index.control_of(row)}
        try:
            word = host_case.ATTEMPTS[row.id](host_case.Case(host, row.id, **changes))
        except host_case.Escaped:
            continue
        except host_case.Untried as reason:
            print(f"  not tried: {row.id} {reason}")
            continue
        faults.append(f"{row.id} {row.name}, {row.vector}: {row.control} still gives {word}")
    return faults


def controls(kind, rows, arguments):
    start = time.monotonic()
    # An attempt that escapes ends at once; on a busy host it may take longer to show.
    with suite.Host(kind, patience=20) as host:
        # The refusal reports of a sandbox change nothing here; the writable grant starts new each time.
        mine = controlled(rows, kind, arguments.vm)
        faults = check_programs(host, [row for row in mine if row.run not in ("host", "slow")], arguments.verbose)
        faults += check_host_attempts(host, [row for row in mine if row.run == "host"])
        faults += [f"left behind: {thing}" for thing in host.left()]
    for fault in faults:
        print(f"  {kind}: {fault}")
    print(f"{kind}: {len(mine)} positive controls, {len(faults)} faults, {time.monotonic() - start:.1f} s", flush=True)
    return len(faults)


def matrix(kind, rows):
    """For each mechanism: which attempts, as they stand in INDEX, turn red with it alone off; where none
    does, which do together with the belts that their controls name."""
    names = check_index.switches((harness.ROOT / "src" / "base" / "switches.h").read_text())
    # What only keeps busy for a while is left out.
    plain = [row for row in suite.scoped(rows, kind)
             if row.run in ("plain", "asroot") and row.expect not in ("survived", "reaped")]
    others = [row for row in suite.scoped(rows, kind) if row.run not in ("plain", "asroot", "fuzz", "tty", "host")]
    faults = 0
    with suite.Host(kind) as host:
        for name in names:
            red = []
            if name not in NO_RED:
                tried = plain + [row for row in others if row.mechanism == name]
                red = [number for number, outcome in run_programs(host, tried, [name]).items() if outcome.word == "ESCAPED"]
            how = "alone"
            if not red and name not in NO_RED:
                for row in rows:
                    off = check_index.control_of(row) if check_index.has_control(row) else None
                    if row.mechanism != name or not off or row.scope == "rootless" and kind == "root":
                        continue
                    if row.run == "host":
                        if not check_host_attempts(host, [row]):
                            red.append(row.id)
                    elif run_programs(host, [row], off)[row.id].word == "ESCAPED":
                        red.append(row.id)
                how = "with the belts of its controls off too"
            if name in NO_RED:
                print(f"{name:20} none: {NO_RED[name]}")
            elif red:
                print(f"{name:20} {len(red):3} red {how}: {' '.join(red[:12])}{' …' if len(red) > 12 else ''}")
            else:
                print(f"{name:20} NOTHING turns red")
                faults += 1
    return faults


@contextlib.contextmanager
def host_stays_as_it_was():
    """Without `devices` /dev/shm is the host's, and 35a makes a file there."""
    planted = "/dev/shm/left-behind"
    before = os.path.lexists(planted)
    try:
        yield
    finally:
        if not before and os.path.lexists(planted):
            os.unlink(planted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as", dest="kinds", action="append", choices=["root", "user", "range"])
    parser.add_argument("--ids", nargs="+")
    parser.add_argument("--vm", action="store_true")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    harness.require_programs()
    harness.require_programs("switches")
    rows = check_index.load()
    if arguments.ids:
        rows = [row for row in rows if row.id in arguments.ids]
    kinds = arguments.kinds or (harness.callers()[:1] if arguments.matrix else harness.callers())
    if len(kinds) > 1:
        return 1 if suite.as_each(kinds, sys.argv[1:]) else 0
    harness.subreaper()
    # Without our rlimits a command has the caller's, and a login's soft limit of 1024 descriptors would
    # hold the attempt as well as ours does.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    suite.enter_own_host()
    with host_stays_as_it_was():
        if arguments.matrix:
            return 1 if sum(matrix(kind, rows) for kind in kinds) else 0
        return 1 if sum(controls(kind, rows, arguments) for kind in kinds) else 0


if __name__ == "__main__":
    sys.exit(main())
