#!/usr/bin/env python3
"""Runs every attempt of the attack programs against the release build, as root, as an ordinary user and
as an ordinary user with a subuid range: each must be contained with the outcome that INDEX declares,
the host must be as before, and nothing may be left.

    run_escape.py [--as root|user|range] [--ids ID...] [--list]
"""
import argparse
import sys
import time

import suite
from suite import check_index, harness


def attack(kind, rows, verbose):
    start, faults, notes = time.monotonic(), [], []
    with suite.Host(kind) as host:
        found = suite.outcomes(host, rows)
        for row in rows:
            outcome = found[row.id]
            if verbose:
                print(f"  {outcome.word:11} {row.id:5} {row.name}, {row.vector}: {outcome.detail[:200]}")
            if outcome.word == "unsupported":
                notes.append(f"{row.id} {outcome.detail}")
            fault = suite.judge(row, outcome)
            if fault is not None:
                faults.append(fault)
        faults += [f"the host changed: {change}" for change in host.changes()]
        faults += [f"left behind: {thing}" for thing in host.left()]
    for note in notes:
        print(f"  {kind}: not tried: {note}")
    for fault in faults:
        print(f"  {kind}: {fault}")
    print(f"{kind}: {len(rows) - len(notes)} attempts, {len(faults)} faults, {time.monotonic() - start:.1f} s", flush=True)
    return len(faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as", dest="kinds", action="append", choices=["root", "user", "range"])
    parser.add_argument("--ids", nargs="+")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    harness.require_programs()
    rows = [row for row in check_index.load() if row.file.endswith(".c")]
    if arguments.ids:
        unknown = set(arguments.ids) - {row.id for row in rows}
        if unknown:
            sys.exit(f"no attack program has {', '.join(sorted(unknown))}")
        rows = [row for row in rows if row.id in arguments.ids]
    else:
        rows = [row for row in rows if row.run != "fuzz"]
    kinds = arguments.kinds or harness.callers()
    if len(kinds) > 1:
        return 1 if suite.as_each(kinds, sys.argv[1:]) else 0
    harness.subreaper()
    suite.enter_own_host()
    faults = sum(attack(kind, suite.scoped(rows, kind), arguments.verbose) for kind in kinds)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
