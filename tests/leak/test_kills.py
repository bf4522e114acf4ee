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
The histogram tells in which step the kill struck (the step that was the last one to end before it);
every step must be struck by the long tier, the named steps are struck one by one in test_steps.py.
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
COMMAND = ("run", "--", "sh", "-c", SCRIPT)
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

    def tell(self, what, number, victim, left, text):
        self.failures.append(f"{self.runner.kind} run {number}, {victim} killed: {what}: {left}\n{text[-600:]}")

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
    failures, struck = [], collections.Counter()
    with Ground() as ground:
        kinds = [wanted.caller] if wanted.caller else runner_kinds(ground)
        before = host_objects()
        for kind in kinds:
            runs = -(-wanted.runs // len(kinds))
            began = time.monotonic()
            with Runner(ground, kind) as runner:
                series = Series(runner, random.Random(f"{wanted.seed} {kind}"))
                for number in range(runs):
                    series.one(number)
                    if len(series.failures) >= 10:
                        break
            failures += series.failures
            struck += series.struck
            print(f"{kind}: {runs} runs, median {series.median * 1000:.0f} ms, killed {dict(series.victims)}, "
                  f"{time.monotonic() - began:.0f} s", flush=True)
        grown = growth(before, wanted.runs)
        if grown:
            failures.append(f"objects of the host that grew: {grown}")
        print(f"slowest settling {ground.slowest * 1000:.0f} ms", flush=True)
    print("the last step that had ended when the kill struck:")
    for step, count in struck.most_common():
        print(f"  {count:6} {step}")
    if wanted.runs >= 5000 and not wanted.caller:
        # The last one of each process ends without a word: "timing" lines tell ends.
        missing = [step for step in steps()[0] if step not in struck and step not in ("up", "exec")]
        if missing:
            failures.append(f"steps that no kill struck: {', '.join(missing)}")
    for failure in failures:
        print(f"FAILED seed {wanted.seed}: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
