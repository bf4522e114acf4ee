"""The frame of the command-line tests: one set of test cases, run as every kind of user there is.

A test module defines classes that derive from CallerTest and calls main(); each class is run once
for every kind of caller (root, an ordinary user, one with a subuid range) that this process can be.
After each class nothing of its sandboxes may be left: no process, no folder, no mount, no group.
"""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import harness  # noqa: E402


class CallerTest(unittest.TestCase):
    """`self.caller` is the user; `self.run_in(...)` is `caisson run` with arguments."""

    kind = None
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.caller = harness.Caller(cls.kind)
        cls.mounts = harness.mounts()

    @classmethod
    def tearDownClass(cls):
        # Detached sandboxes of a failed test end here, so that one failure stays one failure.
        if cls.caller.sandboxes_left():
            cls.caller.caisson("kill", "--all")
        left = harness.wait_until(lambda: not cls.caller.sandboxes_left(), 3)
        remaining = cls.caller.sandboxes_left()
        processes = harness.living_children()
        mounts = harness.mounts()
        cls.caller.close()
        assert left, f"sandboxes left behind: {remaining}"
        assert not processes, f"processes left behind: {processes}"
        assert mounts == cls.mounts, f"mounts changed: {set(mounts) ^ set(cls.mounts)}"

    def run_in(self, *arguments, **options):
        return self.caller.caisson("run", *arguments, **options)

    def verdict(self, *arguments, **options):
        """The JSON of `caisson run --json`, whose exit status is kept in "status"."""
        done = self.run_in("--json", *arguments, **options)
        self.assertEqual(done.stdout.count(b"\n"), 1, done)
        result = done.json()
        result["status"] = done.returncode
        return result

    def assert_ended(self, result, kind, status, **fields):
        self.assertEqual(result["verdict"]["kind"], kind, result)
        self.assertEqual(result["status"], status, result)
        for key, value in fields.items():
            self.assertEqual(result["verdict"].get(key), value, result)

    def assert_refused(self, done, *words):
        """Our own error: 125, and one sentence on stderr with these words."""
        self.assertEqual(done.returncode, 125, done)
        self.assertTrue(done.err.startswith("caisson: "), done)
        self.assertEqual(done.err.count("\n"), 1, done)
        for word in words:
            self.assertIn(word, done.err, done)


def main():
    """Runs the calling module's tests for every caller; exits with 1 where one failed."""
    harness.require_programs()
    harness.subreaper()
    module = sys.modules["__main__"]
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")]
    suite = unittest.TestSuite()
    classes = [c for c in vars(module).values() if isinstance(c, type) and issubclass(c, unittest.TestCase)]
    for cls in (c for c in classes if c is not CallerTest):
        kinds = harness.callers() if issubclass(cls, CallerTest) else [None]
        for kind in kinds:
            name = f"{cls.__name__}_{kind}" if kind else cls.__name__
            made = type(name, (cls,), {"kind": kind, "__module__": cls.__module__})
            for test in unittest.defaultTestLoader.loadTestsFromTestCase(made):
                if not wanted or any(word in test.id() for word in wanted):
                    suite.addTest(test)
    os.environ.setdefault("LANG", "C.UTF-8")
    result = unittest.TextTestRunner(verbosity=2 if "-v" in sys.argv else 1).run(suite)
    if result.testsRun == 0:
        sys.exit("no test was run")
    sys.exit(not result.wasSuccessful())
