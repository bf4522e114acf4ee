#!/usr/bin/env python3
"""The README's lines for agents, run as they stand there: taken from it, in a shell, against a server.

What differs is where the server listens, since port 3000 may be somebody's (that this is the default is looked
at), the key, which the README cannot know, and `npm install`, which gets the version that the lock file names.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import harness  # noqa: E402
import node  # noqa: E402
import readme  # noqa: E402
import serve_lab  # noqa: E402

SDK = "e2b-2.51"
ADDRESS, KEY = "http://127.0.0.1:3000", "e2b_…"
NPM = """npm() {
  [ "$*" = "install e2b" ] || { echo "npm $*: the README asks for something else"; return 1; }
  mkdir node_modules && ln -s "$PACKAGES"/* node_modules/ && ln -sfn "$PACKAGES/%s" node_modules/e2b
}
""" % SDK


class Readme(unittest.TestCase):
    def test_its_lines_for_agents_work(self):
        serve, *rest = readme.block("## Use it from your agent").splitlines()
        self.assertTrue(serve.startswith("caisson serve "), serve)
        script = "\n".join(rest)
        self.assertEqual(script.count("npm install e2b"), 1, script)
        with serve_lab.fresh() as server, tempfile.TemporaryDirectory() as folder:
            config = server.caller.caisson("serve", "--print-config")
            self.assertIn("listen: 127.0.0.1:3000\n", config.out.replace('"', ""))
            script = readme.filled(script.replace(ADDRESS, server.address["url"]), {KEY: server.key})
            path = f"{pathlib.Path(node.node()).parent}:{os.environ['PATH']}"
            done = subprocess.run(["bash", "-e", "-c", NPM + script], cwd=folder, capture_output=True, text=True, timeout=120,
                                  env={"PATH": path, "HOME": folder, "PACKAGES": str(node.packages(HERE) / "node_modules")})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("uid=", done.stdout)
            self.assertEqual(server.sandboxes(), [])


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("not run: the base image's users need root, or a range of ids")
        sys.exit(77)
    unittest.main(verbosity=2)
