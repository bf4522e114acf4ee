#!/usr/bin/env python3
"""Nothing of a sandbox is left on cgroup v2, whoever of its processes is killed and when.

    CAISSON_VM_RUNS (12), CAISSON_VM_SEED (random, printed)
"""

import json
import os
import random
import unittest
from pathlib import Path

from case import ALL, DELEGATED, MachineTest, each_caller, main

HERE = Path(__file__).resolve().parent
RUNS = int(os.environ.get("CAISSON_VM_RUNS", "12"))
SEED = int(os.environ.get("CAISSON_VM_SEED", random.randrange(1 << 30)))


class Leaks(MachineTest):
    keywords = {"files": {"leak_probe.py": str(HERE / "leak_probe.py"),
                          "process_tree.py": str(HERE.parent / "lib" / "process_tree.py")}}

    @each_caller(*DELEGATED, short=("root", "user"))
    def test_kills(self, caller):
        runs = max(4, RUNS // (len(DELEGATED) if ALL else 2))
        result = self.shell(f"python3 -S /opt/caisson/leak_probe.py {runs} {SEED}", caller, timeout=120 + 20 * runs)
        self.assertEqual(result.status, 0, f"seed {SEED}: {result.stderr.decode(errors='replace')[-2000:]}")
        found = json.loads(result.stdout)
        print(f"{caller}: seed {SEED}, {runs} runs, median {found['median']:.2f} s, killed {found['hit']}", flush=True)
        self.assertEqual(found["at_end"], {}, f"seed {SEED}: left after the sweep")
        # One process killed: those that are left clean up. Only the launcher's own end can leave
        # empty groups and named folders to the next command.
        wrong = [left for left in found["at_once"] if not left["victim"].startswith(("caisson-launch", "caisson-superv"))]
        self.assertEqual(wrong, [], f"seed {SEED}")


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
