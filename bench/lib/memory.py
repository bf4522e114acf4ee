"""Memory of everything that a sandbox keeps running beside the program in it."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "lib"))
import process_tree  # noqa: E402

SECONDS = "0.731"  # An argument that tells our sleeping program from any other.


def is_payload(pid):
    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return len(line) >= 2 and line[0].endswith(b"sleep") and line[1] == SECONDS.encode()


def sample(pid):
    """(resident KiB, proportional KiB, processes) of the tree without the program itself; and whether
    the program runs already."""
    resident = proportional = processes = 0
    started = False
    for member, _, _ in process_tree.descendants(pid):
        try:
            if is_payload(member):
                started = True
                continue
            text = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:
            continue
        processes += 1
        resident += int(re.search(r"^Rss:\s+(\d+)", text, re.M)[1])
        proportional += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    return resident, proportional, processes, started


def measure(command, environment, folder, rounds=5):
    """Medians over rounds: the highest sums that were seen, and those while the program slept."""
    found = []
    for number in range(rounds):
        words = [part.replace("%n", f"-{os.getpid()}-memory{number}") for part in command]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peak_resident = peak_proportional = 0
        idle = None
        while process.poll() is None:
            resident, proportional, processes, started = sample(process.pid)
            peak_resident, peak_proportional = max(peak_resident, resident), max(peak_proportional, proportional)
            if started and processes:
                idle = (resident, proportional, processes)
            time.sleep(0.001)
        if idle:
            found.append((peak_resident, peak_proportional, *idle))
    if not found:
        return None
    middle = [sorted(column)[len(column) // 2] for column in zip(*found)]
    return dict(zip(("peak_rss_kib", "peak_pss_kib", "idle_rss_kib", "idle_pss_kib", "processes"), middle))
