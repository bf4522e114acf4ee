#!/usr/bin/env python3
"""Runs the attempts that need a hand outside (host_files.py, host_life.py) as every kind of caller.

    host_attacks.py [--as root|user|range] [--ids ID...] [--verbose]
"""
import argparse
import sys
import time
import traceback

import host_files  # noqa: F401  (fills ATTEMPTS)
import host_life  # noqa: F401
import suite
from host_case import ATTEMPTS, Case, Escaped, Untried
from suite import check_index, harness


def attack(host, row, verbose=False, **changes):
    """(fault or None, note or None) of one row."""
    case, start = Case(host, row.id, **changes), time.monotonic()
    try:
        word = ATTEMPTS[row.id](case)
    except Untried as reason:
        return None, f"{row.id} {reason}"
    except Escaped as how:
        return f"{row.id} {row.name}, {row.vector}: ESCAPED {how}; declared is {row.expect} by {row.mechanism}", None
    except Exception:
        return f"{row.id} {row.name}, {row.vector}: {traceback.format_exc(limit=-2)}", None
    if word not in row.expect.split("/"):
        return f"{row.id} {row.name}, {row.vector}: {word}; declared is {row.expect} by {row.mechanism}", None
    if verbose:
        print(f"  contained   {row.id:5} {row.name}, {row.vector}: {word}, {time.monotonic() - start:.1f} s")
    return None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--as", dest="kinds", action="append", choices=["root", "user", "range"])
    parser.add_argument("--ids", nargs="+")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    harness.require_programs()
    rows = [row for row in check_index.load() if row.run in ("host", "slow")]
    if arguments.ids:
        rows = [row for row in rows if row.id in arguments.ids]
    else:
        rows = [row for row in rows if row.run == "host"]
    kinds = arguments.kinds or harness.callers()
    if len(kinds) > 1:
        return 1 if suite.as_each(kinds, sys.argv[1:]) else 0
    harness.subreaper()
    suite.enter_own_host()
    total = 0
    for kind in kinds:
        start, faults, count = time.monotonic(), [], 0
        with suite.Host(kind) as host:
            for row in suite.scoped(rows, kind):
                fault, note = attack(host, row, arguments.verbose)
                if note:
                    print(f"  {kind}: not tried: {note}")
                count += note is None
                faults += [fault] if fault else []
            faults += [f"the host changed: {change}" for change in host.changes()]
            faults += [f"left behind: {thing}" for thing in host.left()]
        for fault in faults:
            print(f"  {kind}: {fault}")
        print(f"{kind}: {count} attempts, {len(faults)} faults, {time.monotonic() - start:.1f} s", flush=True)
        total += len(faults)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
