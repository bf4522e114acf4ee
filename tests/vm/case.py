"""What the tests on the machine share: one machine for a whole file, and caisson inside it.

CAISSON_VM=all runs each test for every kind of caller, else where a test names none for the three that
differ most. Every test's time is printed.
"""

import functools
import json
import os
import shlex
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from vm import Vm

# Who calls caisson, and what of the host is theirs: root; a user with a range of ids and a control
# group of their own, as systemd gives it; one without a range; one with neither.
CALLERS = {
    "root": {"user": "root"},
    "user": {"user": "user"},
    "plain": {"user": "plain"},
    "bare": {"user": "plain", "group": "session"},
}
DELEGATED = ("root", "user", "plain")
ALL = os.environ.get("CAISSON_VM") == "all"

_machines = {}


def machine(**keywords):
    """The machine of this process; booted once, powered off at the end."""
    key = repr(sorted(keywords.items()))
    if key not in _machines:
        _machines[key] = Vm(**keywords)
    return _machines[key]


def close_machines():
    while _machines:
        _machines.popitem()[1].close()


class Ran:
    """One `caisson run --json`: its exit status, its document, the host's time for it."""

    def __init__(self, result, command):
        self.result, self.command = result, command
        try:
            self.document = json.loads(result.stdout)
        except ValueError:
            raise AssertionError(f"no JSON from: {command}\n{self}") from None
        self.status = result.status
        self.verdict = self.document["verdict"]
        self.kind = self.verdict["kind"]
        self.cause = self.verdict.get("cause", "")
        # A failure of our own before the command ran has a verdict and nothing else.
        self.usage, self.held = self.document.get("usage", {}), self.document.get("held", {})
        self.hit = self.document.get("limits_hit", [])
        self.stdout, self.stderr = self.document.get("stdout", ""), self.document.get("stderr", "")
        self.whole_kind = f"{self.kind} {self.cause}".strip()

    def __str__(self):
        return (f"{self.command}\n  -> {self.result.status} after {self.result.elapsed:.2f} s"
                f"\n  stdout: {self.result.text[-3000:]}\n  stderr: {self.result.stderr.decode(errors='replace')[-2000:]}")


class MachineTest(unittest.TestCase):
    keywords = {}

    @property
    def vm(self):
        return machine(**self.keywords)

    def shell(self, script, caller="root", **options):
        return self.vm.run(script, **CALLERS[caller], **options)

    def caisson(self, *arguments, caller="root", prefix="", timeout=60):
        """`caisson run --json ARGUMENTS` in the machine. prefix: shell words before the command."""
        command = f"{prefix} caisson run --json {shlex.join(map(str, arguments))}"
        result = self.shell(command, caller, timeout=timeout)
        self.assertFalse(result.timed_out, f"hung: {command}\nstderr: {result.stderr.decode(errors='replace')}")
        ran = Ran(result, command)
        self.assertEqual(result.survivors, 0, f"processes outlived\n{ran}")
        return ran

    def assert_verdict(self, ran, kind, status, cause=None):
        self.assertEqual((ran.kind, ran.status), (kind, status), str(ran))
        if cause is not None:
            self.assertEqual(ran.cause, cause, str(ran))


def each_caller(*callers, short=("root", "bare")):
    """Runs the test for each of these callers (all, where none is named), as subtests. short: for whom
    without CAISSON_VM=all."""
    chosen = [caller for caller in callers or CALLERS if ALL or caller in short]
    assert chosen, f"{short} names none of {callers}"

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for caller in chosen:
                with self.subTest(caller=caller):
                    test(self, caller)
        return run
    return decorate


class Timed(unittest.TextTestResult):
    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        self.stream.writeln(f"    {time.monotonic() - self.began:5.1f} s  {test.id().removeprefix('__main__.')}")
        self.stream.flush()
        super().stopTest(test)


def main():
    began = time.monotonic()
    try:
        unittest.main(module="__main__", testRunner=unittest.TextTestRunner(verbosity=2, resultclass=Timed))
    finally:
        close_machines()
        print(f"{os.path.basename(sys.argv[0])}: {time.monotonic() - began:.1f} s in all", flush=True)
