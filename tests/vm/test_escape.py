#!/usr/bin/env python3
"""The escape suite on Linux 6.1 with cgroup v2, on a host that may break: every attempt must be contained
here too, and the positive controls must succeed, those that are too dangerous for any other host
(INDEX: `vm: …`) among them.

Minutes of it: the longer tier's alone.
"""

import re
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
# Controls that show nothing on this kernel, since it holds the attempt itself.
HELD_BY_THE_KERNEL = {
    "9b": "open_by_handle_at wants the host's own capability before Linux 6.11",
    "45a": "the machine's kernel has no nf_tables module loaded",
    "52d": "a microvm has no such devices",
    "106c": "Landlock scopes abstract sockets since version 6; this is version 2",
    "117a": "cachestat came with Linux 6.5",
    "121a": "statmount came with Linux 6.8",
    "121b": "listmount came with Linux 6.8",
}
# Wide limits of the host's own, and bpf as other distributions have it: what is left to hold the
# attempts is the sandbox.
WIDE = "ulimit -Hn 524288; ulimit -n 524288; ulimit -i 200000; echo 0 > /proc/sys/kernel/unprivileged_bpf_disabled; "


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

    def suite(self, script, *arguments, timeout, statuses=(0,)):
        command = f"{WIDE} cd /tmp && CAISSON_BUILD=/opt/caisson/build python3 /opt/caisson/tests/escape/{script} {' '.join(arguments)}"
        result = self.shell(command, timeout=timeout)
        print(f"{script} {' '.join(arguments)[:60]}: {result.elapsed:.1f} s\n{result.text}", flush=True)
        self.assertFalse(result.timed_out, f"{command} hung\n{result.text}")
        self.assertIn(result.status, statuses, f"{result.text}\n{result.stderr.decode(errors='replace')[-4000:]}")
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
        text = self.suite("controls.py", "--vm", "--as", kind, timeout=1500, statuses=(0, 1))
        self.assertRegex(text, rf"(?m)^{kind}: [1-9]\d+ positive controls, ")
        failed = re.findall(rf"(?m)^  {kind}: (\S+)", text)
        self.assertEqual({number for number in failed if number not in HELD_BY_THE_KERNEL}, set(), text)

    def test_controls_as_root(self):
        self.controls("root")

    def test_controls_as_an_ordinary_user(self):
        self.controls("user")

    def test_controls_with_a_range(self):
        self.controls("range")


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
