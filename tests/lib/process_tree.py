"""Which processes came of which, from /proc alone: for tests, the benchmark and a test machine.

Needs nothing but the standard library, so that it can be copied into a test machine as it is.
"""
import os


def descendants(pid):
    """[(pid, parent, depth)] of a process and all that is below it, parents first, itself (0, 0) ahead."""
    found = [(pid, 0, 0)]
    for parent, _, depth in found:
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{parent}/task/{task}/children") as children:
                    found += [(int(child), parent, depth + 1) for child in children.read().split()]
            except OSError:
                continue
    return found
