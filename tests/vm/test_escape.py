#!/usr/bin/env python3
"""The escape suite on Linux 6.1 with cgroup v2, on a host that may break: every attempt must be contained
here too, and the positive controls must succeed, those that are too dangerous for any other host
(INDEX: `vm: …`) among them.

Minutes of it: the longer tier's alone.
"""

import sys
import unittest
from pathlib import Path

from case import MachineTest, main
from vm import BUILD
from vm_parts import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests" / "escape"))
import check_index

# What the uptime inside is compared with: it must have had time to differ from the sandbox's own age.
UPTIME = "115d"


class Escape(MachineTest):
    keywords = {
        "presets": ("switches",),
        "memory": 1536,
        "files": {
            "build/escape": Path(BUILD) / "escape",
            "src/base/switches.h": REPOSITORY / "src" / "base" / "switches.h",
            "SECURITY.md": REPOSITORY / "SECURITY.md",
            "tests/escape": REPOSITORY / "tests" / "escape",
            "tests/lib": REPOSITORY / "tests" / "lib",
        },
    }

    def suite(self, script, *arguments, timeout):
        command = f"cd /tmp && CAISSON_BUILD=/opt/caisson/build python3 /opt/caisson/tests/escape/{script} {' '.join(arguments)}"
        result = self.shell(command, timeout=timeout)
        print(f"{script} {' '.join(arguments)[:60]}: {result.elapsed:.1f} s\n{result.text}", flush=True)
        self.assertFalse(result.timed_out, f"{command} hung\n{result.text}")
        self.assertEqual(result.status, 0, f"{result.text}\n{result.stderr.decode(errors='replace')[-4000:]}")
        self.assertEqual(result.survivors, 0, "processes outlived the suite")
        return result.text

    def attacks(self, kind):
        ids = [row.id for row in check_index.load() if row.file.endswith(".c") and row.run != "fuzz" and row.id != UPTIME]
        text = self.suite("run_escape.py", "--as", kind, "--ids", *ids, timeout=400)
        self.assertRegex(text, rf"(?m)^{kind}: [1-9]\d\d attempts, 0 faults")
        self.suite("run_escape.py", "--as", kind, "--ids", UPTIME, timeout=60)

    def test_attacks_as_root(self):
        self.attacks("root")

    def test_attacks_as_an_ordinary_user(self):
        self.attacks("user")

    def test_attacks_with_a_range(self):
        self.attacks("range")

    def test_attempts_from_outside(self):
        self.suite("host_attacks.py", timeout=900)

    def controls(self, kind):
        self.assertRegex(self.suite("controls.py", "--vm", "--as", kind, timeout=1500),
                         rf"(?m)^{kind}: [1-9]\d+ positive controls, 0 faults")

    def test_controls_as_root(self):
        self.controls("root")

    def test_controls_as_an_ordinary_user(self):
        self.controls("user")

    def test_controls_with_a_range(self):
        self.controls("range")


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
