#!/usr/bin/env python3
"""Layers on disk (`--layer quota`): nobody's death leaves a loop device, a mount or a file.

Everything here runs as root on a disk folder of its own, beside the ground's places in memory; where
root has no loop devices or no disk it says so and ends well. Cases:
  at every step of the set-up, its own included, the process in it is killed, and at its own it fails;
  while the program writes, each process is killed, and all of them at the same time.
After each single case everything is counted (ground.py) and must be equal to before; of all killed at
once the next command removes what has a name, and a loop device never waits for it.
"""
import shutil
import sys
import time
import unittest

from ground import Ground
from sandboxes import ROLES, Runner, nobody_left, quota_steps, steps

import harness

WRITER = ("run", "--layer", "quota", "--disk", "64MiB", "--", "sh", "-c",
          'while :; do dd if=/dev/zero of="$HOME/x" bs=1M count=40 2>/dev/null; done')
PLAIN = ("run", "--layer", "quota", "--", "true")


class DiskRunner(Runner):
    def __init__(self, ground, disk):
        self.disk = disk
        super().__init__(ground, "root")
        self.caller.env["CAISSON_STATE_DIR"] = str(disk)
        self.must_run(*PLAIN)
        self.before = self.baseline()

    def count(self):
        return self.ground.count([self.caller.folder, self.disk])

    def left(self, seconds=2.0):
        return self.ground.settled(self.before, [self.caller.folder, self.disk], seconds)


class Quota(unittest.TestCase):
    maxDiff = None

    def nothing_left(self, runner, case):
        left = runner.left()
        if left:
            runner.sweep()
        self.assertEqual(left, {}, case)

    def test_steps(self):
        with DiskRunner(GROUND, DISK) as runner:
            early, late = steps()
            own = quota_steps()
            self.assertEqual(own, ["quota"])
            for step in (*early, *own, *late):
                with self.subTest(step=step):
                    done = runner.run(*PLAIN, env={"CAISSON_FAULT": f"{step}:kill"})
                    if step not in late:
                        self.assertEqual(done.returncode, 125, done)
                    self.nothing_left(runner, f"{step}:kill")
            for step in own:
                done = runner.run(*PLAIN, env={"CAISSON_FAULT": f"{step}:fail"})
                self.assertEqual(done.returncode, 125, done)
                self.assertIn(f"{step}: fault injected", done.err)
                self.nothing_left(runner, f"{step}:fail")

    def test_kills(self):
        with DiskRunner(GROUND, DISK) as runner:
            for victim in (*ROLES, "all"):
                with self.subTest(victim=victim):
                    running = runner.start(*WRITER)
                    self.assertTrue(running.wait_role("command"))
                    self.assertEqual(len(harness.loop_devices([DISK])), 1)
                    time.sleep(0.2)  # some of it is written and some is not
                    if victim == "all":
                        running.kill_all()
                    else:
                        self.assertEqual(running.kill(victim), victim)
                    running.end()
                    self.assertTrue(nobody_left()[0])
                    if victim == "all":
                        gone = harness.wait_until(lambda: not harness.loop_devices([DISK]), 2)
                        self.assertTrue(gone, "a loop device waits for the next command")
                        runner.sweep()
                    self.nothing_left(runner, f"{victim} killed")


if __name__ == "__main__":
    harness.require_programs("switches")
    DISK, why_not = harness.disk_folder()
    if DISK is None:
        print(f"skipped: {why_not}")
        sys.exit(0)
    try:
        with Ground() as GROUND:
            result = unittest.main(verbosity=2, exit=False).result
    finally:
        shutil.rmtree(DISK)
    print(f"slowest settling {GROUND.slowest * 1000:.0f} ms", flush=True)
    sys.exit(not result.wasSuccessful())
