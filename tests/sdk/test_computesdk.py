#!/usr/bin/env python3
"""ComputeSDK's published provider for E2B against caisson-serve (computesdk/)."""
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import node  # noqa: E402
import serve_lab  # noqa: E402


class ComputeSdk(unittest.TestCase):
    def test_what_the_provider_calls_works(self):
        folder = node.packages(HERE / "computesdk")
        with serve_lab.fresh() as server:
            done = subprocess.run([node.node(), "--test", "--test-timeout=120000", folder / "provider.test.mjs"], cwd=folder,
                                  env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **server.environment()},
                                  capture_output=True, text=True, timeout=280)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + server.said())
            self.assertRegex(done.stdout, r"(?m)pass 5$")
            self.assertEqual(server.sandboxes(), [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("not run: the base image's users need root, or a range of ids")
        sys.exit(77)
    unittest.main(verbosity=2)
