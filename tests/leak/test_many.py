#!/usr/bin/env python3
"""Many sandboxes at once, detached ones, and what a sweep may and may not touch.

Counted as everywhere here (ground.py): equal to before when the test says that nothing is left.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import unittest

from ground import Ground, descendants
from sandboxes import PRESET, Runner, alive, kill_trees, nobody_left, runner_kinds

import harness

MANY = 50
SLEEPER = "sleep 1000"


def sleepers():
    """The commands of detached and of waiting sandboxes, wherever they hang in our tree."""
    found = []
    for pid, _, _ in descendants():
        try:
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:
            continue
        if line == SLEEPER:
            found.append(pid)
    return found


class Many(unittest.TestCase):
    maxDiff = None

    def test_all_killed_one_sweep(self):
        """Fifty sandboxes die with everybody who would clean up; one command removes it all."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                running = [runner.start("run", "--", *SLEEPER.split()) for _ in range(MANY)]
                self.assertTrue(harness.wait_until(lambda: len(sleepers()) == MANY, 120), [one.err() for one in running[:3]])
                kill_trees([one.process.pid for one in running])
                for one in running:
                    one.end()
                self.assertTrue(nobody_left()[0])
                self.assertEqual(len(runner.caller.sandboxes_left()), MANY)
                began = time.monotonic()
                runner.sweep()
                print(f"{runner.kind}: {MANY} swept in {time.monotonic() - began:.2f} s", flush=True)
                self.assertEqual(runner.left(), {})

    def test_sweeps_at_the_same_time(self):
        """Several commands find the same dead sandboxes; new ones start meanwhile; a living one stays."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                living = runner.start("run", "--", *SLEEPER.split())
                self.assertTrue(harness.wait_until(lambda: len(sleepers()) == 1, 30))
                dead = [runner.start("run", "--", *SLEEPER.split()) for _ in range(8)]
                self.assertTrue(harness.wait_until(lambda: len(sleepers()) == 9, 60))
                kill_trees([one.process.pid for one in dead])
                for one in dead:
                    one.end()
                several = [runner.start(*words) for words in
                           (("ps",), ("run", "--", "true"), ("ps",), ("run", "--", "true"), ("image", "ls"), ("ps",))]
                for one in several:
                    self.assertEqual(one.end(), 0, one.text)
                self.assertTrue(harness.wait_until(lambda: len(runner.caller.sandboxes_left()) == 1, 5))
                self.assertEqual(len(sleepers()), 1)
                self.assertIsNone(living.process.poll())
                living.kill("command")
                self.assertEqual(living.end(), 137, living.text)
                self.assertEqual(runner.left(), {})

    def test_every_command_sweeps(self):
        """The next start of any command, also of those that start no sandbox."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                for words, codes in ((("ps",), (0,)), (("exec", "nosuch", "--", "true"), (125,)), (("logs", "nosuch"), (125,)),
                                     (("kill", "nosuch"), (125,)), (("cp", "nosuch:/x", "/dev/null"), (125,)),
                                     (("image", "ls"), (0,)), (("doctor",), (0, 1)), (("run", "--", "true"), (0,))):
                    with self.subTest(caller=runner.kind, command=words):
                        one = runner.start("run", "--", *SLEEPER.split())
                        self.assertTrue(harness.wait_until(sleepers, 30), one.err())
                        one.kill_all()
                        one.end()
                        self.assertTrue(nobody_left()[0])
                        self.assertNotEqual(runner.left(0), {})
                        done = runner.run(*words)
                        self.assertIn(done.returncode, codes, done)
                        self.assertEqual(runner.left(), {})

    def test_detached_client_killed(self):
        """`run -d` whose caisson is killed at any time: no sandbox, or one with its command."""
        chance = random.Random(SEED)
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                kept = 0
                began = time.monotonic()
                runner.must_run("run", "-d", "--", "true")
                took = time.monotonic() - began
                self.assertTrue(nobody_left()[0])
                self.assertEqual(runner.left(), {})
                for number in range(40):
                    one = runner.start("run", "-d", "--", *SLEEPER.split())
                    time.sleep(chance.uniform(0, took))
                    one.kill("cli")
                    one.end()
                    # A sandbox without a command ends by itself.
                    settled = harness.wait_until(lambda: sleepers() or not descendants_living(), 20)
                    self.assertTrue(settled, f"seed {SEED}, run {number}: {runner.left(0)}")
                    for entry in json.loads(runner.must_run("ps", "--json").stdout):
                        kept += 1
                        runner.must_run("kill", entry["id"])
                    self.assertTrue(nobody_left()[0], f"seed {SEED}, run {number}: {runner.left(0)}")
                    self.assertEqual(runner.left(), {}, f"seed {SEED}, run {number}")
                print(f"{runner.kind}: 40 clients of detached sandboxes killed, {kept} sandboxes had their command", flush=True)

    def test_detached_members_killed(self):
        """Of a detached sandbox: whoever cleans up is the launcher, and after it the next command."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                for depth, role in enumerate(("launcher", "supervisor", "guest", "command")):
                    with self.subTest(caller=runner.kind, role=role):
                        runner.must_run("run", "-d", "--", *SLEEPER.split())
                        self.assertTrue(harness.wait_until(sleepers, 20))
                        members = [pid for pid, _, level in descendants() if level == depth + 1 and alive(pid)]
                        self.assertEqual(len(members), 1)
                        os.kill(members[0], 9)
                        self.assertTrue(nobody_left()[0])
                        if role == "launcher":
                            runner.sweep()
                        self.assertEqual(runner.left(), {})

    def test_paused_ones_end(self):
        """Whoever ends a paused sandbox, and however, nothing of it is left."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                for how in ("kill", "launcher", "supervisor", "guest", "timeout"):
                    with self.subTest(caller=runner.kind, how=how):
                        limits = ("--timeout", "3s" if how == "timeout" else "1m")
                        name = runner.must_run("run", "-d", *limits, "--", *SLEEPER.split()).out.strip()
                        self.assertTrue(harness.wait_until(sleepers, 20))
                        paused = runner.run("pause", name)
                        if paused.returncode != 0:
                            self.assertIn("no control group can hold", paused.err)
                            runner.must_run("kill", name)
                        elif how == "kill":
                            runner.must_run("kill", name)
                        elif how != "timeout":
                            level = ("launcher", "supervisor", "guest").index(how) + 1
                            members = [pid for pid, _, depth in descendants() if depth == level and alive(pid)]
                            self.assertEqual(len(members), 1)
                            os.kill(members[0], 9)
                        self.assertTrue(nobody_left()[0])
                        if how == "launcher":
                            runner.sweep()
                        self.assertEqual(runner.left(), {})

    def test_hostile_leftovers(self):
        """A sweep removes what is half made, and never what is not a sandbox's."""
        for kind in runner_kinds(GROUND):
            with self.subTest(caller=kind), Runner(GROUND, kind) as runner:
                run = runner.caller.folder / "run" / "caisson"
                for folder in ("sandboxes/half", "sandboxes/halfway", "etc/new-999999", "etc/new-999999/ssl"):
                    (run / folder).mkdir()
                (run / "etc/new-999999/hosts").write_text("half")
                (run / "etc/.new.999999.999999").write_text("half")
                (run / "sandboxes/halfway/lock").write_text("")
                # A pid with another start time is somebody else, and a path that is no group of ours is not ours.
                bystander = subprocess.Popen(["sleep", "1000"])
                foreign = runner.caller.mkdir("foreign")
                (run / "sandboxes/halfway/journal").write_text(f"guest {bystander.pid} 1\n{foreign}\n/\n\n")
                if runner.caller.uid != 0:
                    for path in (*run.glob("sandboxes/**/*"), *run.glob("etc/**/*"), *run.glob("etc/.new*")):
                        runner.caller.own(path)
                runner.sweep()
                self.assertIsNone(bystander.poll())
                self.assertTrue(foreign.is_dir())
                bystander.kill()
                bystander.wait()
                foreign.rmdir()
                self.assertEqual(runner.left(), {})


def descendants_living():
    nobody_left(0)
    return descendants()


if __name__ == "__main__":
    SEED = int(os.environ.get("CAISSON_LEAK_SEED", random.randrange(1 << 32)))
    harness.require_programs(PRESET)
    began = time.monotonic()
    print(f"seed {SEED}", flush=True)
    with Ground() as GROUND:
        result = unittest.main(verbosity=2, exit=False).result
    print(f"slowest settling {GROUND.slowest * 1000:.0f} ms; {time.monotonic() - began:.0f} s in all", flush=True)
    sys.exit(not result.wasSuccessful())
