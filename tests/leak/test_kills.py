#!/usr/bin/env python3
"""Sandboxes whose processes are killed at any moment leave nothing.

    test_kills.py [--runs 300] [--seed N] [--caller root|user|delegated]

Each run is a `caisson run` in which, at a time uniform over one and a half median runs, one of its
processes gets SIGKILL (the caisson that was typed, the launcher, the supervisor, PID 1 inside, the
command), or all of them do at the same time. Counted each time (ground.py), and equal to before:
  one killed   at once: when `caisson run` has returned; where that one was killed, when the
               launcher that is left has ended;
  all killed   first, that nothing is left but empty groups and the sandbox's named directory; then,
               after the next command, that nothing is left at all.
Before that one kill strikes at each named step by the fault points. The histogram tells, by step, how
many of those kills struck (every step must be struck), and after which step's end the others did.
"""
import argparse
import collections
import random
import re
import statistics
import sys
import time

from ground import Ground, differences, growth, host_objects
from sandboxes import ROLES, Runner, nobody_left, runner_kinds, steps

import harness

SCRIPT = 'echo x > "$HOME/file"; for i in 1 2 3 4 5; do echo $i; done; exit 0'
# A limit of I/O adds a hierarchy on version 1 and a controller on version 2.
COMMAND = ("run", "--io-read", "1GiB/s", "--", "sh", "-c", SCRIPT)
SANDBOX_FILES = {"", "/info", "/journal", "/lock", "/socket"}
TIMED = {"CAISSON_TIMINGS": "1"}


def median_run(runner):
    times = []
    for _ in range(9):
        began = time.monotonic()
        running = runner.start(*COMMAND, env=TIMED)
        if running.end() != 0:
            sys.exit(f"the plain run failed: {running.text}")
        times.append(time.monotonic() - began)
    return statistics.median(times)


def wrong_after_all(left):
    """What of `left` is more than empty groups and the directory of a sandbox."""
    wrong = {what: change for what, change in left.items() if what not in ("groups", "files")}
    for what in ("groups", "files"):
        if left.get(what, {}).get("gone"):
            wrong[what] = left[what]
    for group in left.get("groups", {}).get("more", []):
        try:
            with open(f"{group}/cgroup.procs") as members:
                if members.read().strip():
                    wrong[group] = "has members"
        except OSError:
            pass
    for line in left.get("files", {}).get("more", []):
        path = line.rsplit(" ", 1)[0]
        match = re.search(r"/run/caisson/sandboxes/[a-z0-9]+(.*)$", path)
        unfinished = re.search(r"/run/caisson/etc/(new-|\.new\.)", path)
        if not unfinished and (not match or match[1] not in SANDBOX_FILES):
            wrong[path] = "is left"
    return wrong


class Series:
    def __init__(self, runner, chance):
        self.runner, self.chance = runner, chance
        self.median = median_run(runner)
        self.struck, self.victims, self.failures = collections.Counter(), collections.Counter(), []
        self.at_points = collections.Counter()

    def tell(self, what, number, victim, left, text):
        self.failures.append(f"{self.runner.kind} run {number}, {victim} killed: {what}: {left}\n{text[-600:]}")

    def at_point(self, step):
        """The process that enters the step is killed there."""
        running = self.runner.start(*COMMAND, env={"CAISSON_FAULT": f"{step}:kill"})
        code = running.end()
        if code == 125 and re.search("was killed before the sandbox was up|the setup child died|the namespaces' maker died", running.text):
            self.at_points[step] += 1
        left = self.runner.left()
        if left:
            self.tell("left", "fault point", step, left, running.text)
            self.runner.sweep()

    def one(self, number):
        runner = self.runner
        delay, wanted = self.chance.uniform(0, 1.5 * self.median), self.chance.choice((*ROLES, "all"))
        running = runner.start(*COMMAND, env=TIMED)
        time.sleep(delay)
        if wanted == "all":
            running.kill_all()
            victim = "all"
        else:
            # Where nobody has that role yet or any more, whoever has one is as good.
            alive = [role for role, pids in running.members().items() if pids]
            victim = running.kill(wanted if wanted in alive else self.chance.choice(alive)) if alive else None
        code = running.end()
        # In order, as the processes wrote them; the step that was going on is the next one.
        ended = re.findall(r"^timing (\S+) ", running.text, re.M)
        self.struck[ended[-1] if ended and victim else "start" if victim else "not killed"] += 1
        self.victims[victim or "nobody"] += 1
        if code is None:
            return self.tell("the command hangs", number, victim, "", running.text)
        if victim in ("cli", "all") and not nobody_left()[0]:
            self.tell("somebody lives on", number, victim, runner.left(0), running.text)
        if victim == "all":
            left = wrong_after_all(differences(runner.before, runner.count()))
            left = left and wrong_after_all(runner.left())
            if left:
                self.tell("more than what waits for the sweep", number, victim, left, running.text)
            runner.sweep()
        left = runner.left()
        if left:
            self.tell("left", number, victim, left, running.text)
            runner.sweep()
            if runner.left():
                runner.before = runner.count()  # a leak is told once


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--caller")
    wanted = parser.parse_args()
    harness.require_programs("switches")
    print(f"seed {wanted.seed}", flush=True)
    failures, struck, at_points = [], collections.Counter(), collections.Counter()
    named, _ = steps()
    with Ground() as ground:
        kinds = [wanted.caller] if wanted.caller else runner_kinds(ground)
        before = host_objects()
        for kind in kinds:
            runs = -(-wanted.runs // len(kinds))
            began = time.monotonic()
            with Runner(ground, kind) as runner:
                series = Series(runner, random.Random(f"{wanted.seed} {kind}"))
                for step in named:
                    series.at_point(step)
                for number in range(runs):
                    series.one(number)
                    if len(series.failures) >= 10:
                        break
            failures += series.failures
            struck += series.struck
            at_points += series.at_points
            print(f"{kind}: {runs} runs, median {series.median * 1000:.0f} ms, killed {dict(series.victims)}, "
                  f"{time.monotonic() - began:.0f} s", flush=True)
        grown = growth(before, wanted.runs)
        if grown:
            failures.append(f"objects of the host that grew: {grown}")
        print(f"slowest settling {ground.slowest * 1000:.0f} ms", flush=True)
    print("  at the step   after its end   step")
    for step in (*named, *(step for step in struck if step not in named)):
        print(f"{at_points[step] if step in named else '':13} {struck[step]:15}   {step}")
    missing = [step for step in named if not at_points[step]]
    if missing:
        failures.append(f"steps that no kill struck: {', '.join(missing)}")
    for failure in failures:
        print(f"FAILED seed {wanted.seed}: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
