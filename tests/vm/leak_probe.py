"""Runs inside the test machine: many sandboxes, most of them killed midway, and a count of what is left.

    leak_probe.py RUNS SEED      prints one line of JSON

A run is `caisson run` of a short program. At a time uniform over one and a half median runs one of
its processes (the caisson that was typed, the launcher, the supervisor, the guest: whoever of its
descendants is drawn) gets SIGKILL. Counted before and after, equal: mounts, control groups,
processes, network and other namespaces, unix sockets, and the files of run, state and temporary
folders; after each kill at once (only what is allowed to wait for the sweep may be there), and after
one more command, which sweeps.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

# Copied beside this file (test_leaks.py).
from process_tree import descendants

COMMAND = ["caisson", "run", "--", "sh", "-c", "echo x > $HOME/file; exit 0"]
SETTLE = 15.0
KERNEL_THREAD = 0x00200000  # PF_KTHREAD in a process's flags


def files():
    found = []
    places = ["/run", "/tmp", "/var/tmp", "/var/lib", "/dev/shm", os.path.expanduser("~")]
    for place in places:
        for folder, folders, names in os.walk(place):
            found += [os.path.join(folder, name) for name in folders + names]
    # What any first run makes and keeps: our own folders, locks and the journal's folder.
    return sorted(name for name in found if not name.startswith("/run/script-"))


def count():
    namespaces, processes = set(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            if int(rest.split()[6]) & KERNEL_THREAD:
                continue
            processes.append(name.partition("(")[2])
            namespaces.update(os.readlink(space) for space in (entry / "ns").iterdir())
        except OSError:
            continue
    groups = [folder for folder, _, _ in os.walk("/sys/fs/cgroup")]
    return {
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "groups": sorted(groups),
        "processes": sorted(processes),
        "namespaces": len(namespaces),
        "sockets": len(Path("/proc/net/unix").read_text().splitlines()),
        "files": files(),
    }


def differences(before, after):
    found = {}
    for key, old in before.items():
        new = after[key]
        if old == new:
            continue
        if isinstance(old, list):
            extra = list(new)
            for item in old:
                if item in extra:
                    extra.remove(item)
            gone = [item for item in old if item not in new]
            found[key] = {"more": extra[:20], "gone": gone[:20]}
        else:
            found[key] = {"before": old, "after": new}
    return found


def settled(before):
    """What still differs once things have had time to end; empty when all is as before."""
    end = time.monotonic() + SETTLE
    while True:
        left = differences(before, count())
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def one_run():
    began = time.monotonic()
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"the plain run failed with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return time.monotonic() - began


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


def main():
    runs, seed = int(sys.argv[1]), int(sys.argv[2])
    chance = random.Random(seed)
    one_run()
    times = sorted(one_run() for _ in range(5))
    median = times[len(times) // 2]
    before = count()
    hit, at_once = {}, []
    for number in range(runs):
        process = subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 1.5 * median))
        victim = chance.choice(descendants(process.pid))[0]
        name = name_of(victim)
        hit[name] = hit.get(name, 0) + 1
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            process.wait(SETTLE)
        except subprocess.TimeoutExpired:
            at_once.append({"run": number, "victim": name, "left": "the command hangs"})
            process.kill()
            process.wait()
            continue
        left = settled(before)
        if left:
            at_once.append({"run": number, "victim": name, "left": left})
            one_run()  # The sweep.
    one_run()
    print(json.dumps({"median": median, "hit": hit, "at_once": at_once[:10], "at_once_count": len(at_once),
                      "at_end": settled(before)}))


main()
