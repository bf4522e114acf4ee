#!/usr/bin/env python3
"""At every named step of changing the image store something goes wrong, and nothing is half there.

For each step that `caisson_image_tool steps` names, as root and as ordinary users:
  fail   the step fails: the command ends with 125 and a message that names the step;
  kill   the process that is in the step gets SIGKILL.
Both in an import (into an empty store, and over an image of the same name) and in a removal. After
each, whatever name there is must mean a whole image, the old or the new one, without anything else
being done first; the same command must then succeed; and when the name is removed, the store must be
as empty as one that nobody has used. A step that no command enters fails the test.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402

PRESET = "switches"  # the build with fault points
FOLDERS = ("refs", "ids", "rootfs", "blobs", "cache", "partial", "tmp")


def store_steps():
    tool = harness.build_dir(PRESET) / "tests" / "caisson_image_tool"
    return subprocess.run([tool, "steps"], capture_output=True, check=True, text=True).stdout.split()


class StoreSteps(unittest.TestCase):
    maxDiff = None

    def archive(self, caller, name, text):
        """An image's archive whose one file `what` has that text."""
        path = caller.folder / f"{name}.tar"
        caller.write(f"{name}/what", text, 0o644)
        with tarfile.open(path, "w") as tar:
            for i in range(50):
                tar.add(caller.folder / name / "what", f"folder{i % 5}/file{i}")
            tar.add(caller.folder / name / "what", "what")
        path.chmod(0o644)
        return path

    def folder(self, caller):
        return caller.folder / "state" / "caisson" / "images"

    def left(self, caller):
        """What the store holds, as paths; an empty store holds none."""
        found = [f"{folder}/{name}" for folder in FOLDERS if (self.folder(caller) / folder).is_dir()
                 for name in os.listdir(self.folder(caller) / folder)]
        return found + (["work"] if (self.folder(caller) / "work").exists() else [])

    def nothing_left(self, caller):
        # A killed command's worker dies with it, but not at the same instant, and is not swept before.
        harness.wait_until(lambda: self.must(caller, "ls") and not self.left(caller), 10)
        self.assertEqual(self.left(caller), [])

    def run_it(self, caller, *arguments, fault=None):
        env = {"CAISSON_FAULT": fault} if fault else {}
        return caller.caisson("image", *arguments, preset=PRESET, env=env)

    def must(self, caller, *arguments):
        done = self.run_it(caller, *arguments)
        self.assertEqual(done.returncode, 0, done)
        return done

    def image(self, caller):
        """The whole image that the name means: its id and how many files it has. None: no name."""
        named = json.loads(self.must(caller, "ls", "--json").stdout)
        if not named:
            return None
        self.assertEqual([entry["name"] for entry in named], ["x:latest"])
        self.assertTrue(named[0]["usable"], named)
        inspected = json.loads(self.must(caller, "inspect", "x").stdout)[0]
        self.assertEqual(inspected["id"], named[0]["id"])
        return inspected["id"], named[0]["entries"]

    def fails(self, caller, step, how, *arguments):
        """Whether the command entered the step: then it ended as it must."""
        done = self.run_it(caller, *arguments, fault=f"{step}:{how}")
        if how == "kill":
            self.assertIn(done.returncode, (0, -signal.SIGKILL), done)
            return done.returncode != 0
        if done.returncode == 0:
            return False  # an import says nothing of a sweep that failed behind it
        self.assertEqual(done.returncode, 125, done)
        self.assertIn(f"{step}: fault injected", done.err)
        self.assertEqual(done.err.count("\n"), 1, done)
        return True

    def each(self, caller, step, how):
        """Whether any of the commands entered the step."""
        entered = False
        for before in (None, "old"):
            if before:
                self.must(caller, "import", "x", self.old)
            entered |= self.fails(caller, step, how, "import", "x", self.new)
            whole = self.image(caller)
            self.assertIn(whole, (before and self.ids["old"], self.ids["new"]))
            self.must(caller, "import", "x", self.new)
            self.assertEqual(self.image(caller), self.ids["new"])
            self.must(caller, "rm", "x")
            self.nothing_left(caller)
        self.must(caller, "import", "x", self.new)
        entered |= self.fails(caller, step, how, "rm", "x")
        self.assertIn(self.image(caller), (None, self.ids["new"]))
        if self.image(caller):
            self.must(caller, "rm", "x")
        self.nothing_left(caller)
        return entered

    def test_fail_and_kill(self):
        steps = store_steps()
        self.assertGreater(len(steps), 10)
        for kind in harness.callers():
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                self.old, self.new = self.archive(caller, "old", "old\n"), self.archive(caller, "new", "new\n")
                self.ids = {}
                for name, path in (("old", self.old), ("new", self.new)):
                    self.must(caller, "import", "x", path)
                    self.ids[name] = self.image(caller)
                    self.must(caller, "rm", "x")
                self.assertNotEqual(self.ids["old"][0], self.ids["new"][0])
                self.assertEqual(self.left(caller), [])
                for step in steps:
                    for how in ("fail", "kill"):
                        with self.subTest(caller=kind, step=step, how=how):
                            self.assertTrue(self.each(caller, step, how), "no command entered the step")
                print(f"{kind}: {len(steps)} steps failed and killed", flush=True)


if __name__ == "__main__":
    harness.require_programs(PRESET)
    harness.subreaper()
    unittest.main()
