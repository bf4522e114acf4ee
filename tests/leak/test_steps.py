#!/usr/bin/env python3
"""At every named step of making a sandbox something goes wrong, and nothing is left.

For each step that `caisson-launcher --list-steps` names, as root and as ordinary users:
  fail   the step fails: `caisson run` ends with 125 and a message that names the step;
  kill   the process that is in the step gets SIGKILL: 125, and a message;
  hang   the process stays in the step while the launcher, the supervisor or PID 1 inside is killed
         (one process: what is left is counted when `caisson run` has returned), or all of them at
         the same time (counted after the next command).
A step that no process ever enters fails the test: then `fail` ends with 0. After each single case
everything is counted (ground.py) and must be equal to before.
"""
import sys
import time
import unittest

from ground import Ground
from sandboxes import Runner, nobody_left, runner_kinds, steps

import harness

# Of the set-up with one uid or a range alone: root prepares these mounts before the namespaces.
ROOT_ONLY = {"image", "grants"}


class Steps(unittest.TestCase):
    maxDiff = None

    def each(self, kind):
        early, late = steps()
        self.assertGreater(len(early), 20)
        return [step for step in early if kind == "root" or step not in ROOT_ONLY], late

    def nothing_left(self, runner, case):
        left = runner.left()
        if left:
            runner.sweep()  # so that one leak is told once
        self.assertEqual(left, {}, case)

    def test_fail_and_kill(self):
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                early, late = self.each(runner.kind)
                for step in early:
                    for how in ("fail", "kill"):
                        with self.subTest(caller=runner.kind, step=step, how=how):
                            done = runner.run("run", "--", "true", env={"CAISSON_FAULT": f"{step}:{how}"})
                            self.assertEqual(done.returncode, 125, done)
                            # The line of ours is there in both cases; only who failed can say where.
                            lines = [line for line in done.err.splitlines() if "host image" not in line]
                            self.assertEqual(len(lines), 1, done)
                            if how == "fail":
                                self.assertIn(f"{step}: fault injected", lines[0])
                            else:
                                self.assertRegex(lines[0], "was killed before the sandbox was up|the setup child died|the namespaces' maker died")
                            self.nothing_left(runner, f"{runner.kind} {step}:{how}")
                for step in late:
                    with self.subTest(caller=runner.kind, step=step):
                        done = runner.run("run", "--", "true", env={"CAISSON_FAULT": f"{step}:kill"})
                        # The verdict of a command that had ended before stays what it was.
                        self.assertEqual(done.returncode, 125 if step == "supervise" else 0, done)
                        self.nothing_left(runner, f"{runner.kind} {step}:kill")
                print(f"{runner.kind}: {len(early)} steps failed and killed, {len(late)} killed", flush=True)

    def hang(self, runner, step, victim):
        running = runner.start("run", "--", "true", env={"CAISSON_FAULT": f"{step}:hang"})
        hangs = running.wait_for(f"hanging {step}")
        if not hangs:
            running.kill_all()
        elif victim == "all":
            running.kill_all()
        else:
            hangs = running.kill(victim) or running.members()
        code = running.end()
        self.assertTrue(hangs, f"never entered: {running.text}")
        self.assertEqual(hangs if victim != "all" else victim, victim if victim != "all" else "all")
        if victim == "all":
            self.assertTrue(nobody_left()[0])
            runner.sweep()
        else:
            self.assertEqual(code, 125, running.text)

    def test_hang(self):
        """Somebody else is killed while a process is in the step."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                cases = 0
                early, _ = self.each(runner.kind)
                setup, exec_step = early.index("enter"), early.index("exec")
                for number, step in enumerate(early):
                    victims = ["launcher", "all"]
                    if number >= early.index("fork") + 1:
                        victims.append("supervisor")
                    if setup <= number <= exec_step:
                        victims.append("guest")
                    for victim in victims:
                        with self.subTest(caller=runner.kind, step=step, victim=victim):
                            self.hang(runner, step, victim)
                            self.nothing_left(runner, f"{runner.kind} {victim} killed while {step} hung")
                            cases += 1
                print(f"{runner.kind}: {cases} kills of somebody else during a step", flush=True)

    def test_hanging_supervisor_is_killed(self):
        """The one who asked is dead, and the supervisor neither goes on nor ends."""
        with Runner(GROUND, "root" if GROUND.root else "user") as runner:
            running = runner.start("run", "--", "true", env={"CAISSON_FAULT": "maps:hang"})
            self.assertTrue(running.wait_for("hanging maps"), running.err())
            self.assertEqual(running.kill("cli"), "cli")
            running.end()
            ended, took = nobody_left(40)
            self.assertTrue(ended)
            self.assertEqual(runner.left(), {})
            print(f"a supervisor that hung was killed after {took:.1f} s", flush=True)


if __name__ == "__main__":
    harness.require_programs("switches")
    began = time.monotonic()
    with Ground() as GROUND:
        result = unittest.main(verbosity=2, exit=False).result
    print(f"slowest settling {GROUND.slowest * 1000:.0f} ms; {time.monotonic() - began:.0f} s in all", flush=True)
    sys.exit(not result.wasSuccessful())
