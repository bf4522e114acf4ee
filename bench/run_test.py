#!/usr/bin/env python3
"""The benchmark's own tests, with a small script in caisson's place and no peer installed."""

import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run
from lib import memory, peers, stats

GOOD = """#!/bin/sh
if [ "$1" = --version ]; then echo caisson 9; exit; fi
if [ -n "$CAISSON_TIMINGS" ]; then echo 'timing clone 120' >&2; echo 'timing root 300' >&2; fi
shift 2
"$@"
exit $?
"""


class Statistics(unittest.TestCase):
    def test_percentile(self):
        self.assertEqual([stats.percentile(range(1, 101), share) for share in (0, 0.5, 0.95, 1)], [1, 50, 95, 100])
        with self.assertRaises(ValueError):
            stats.percentile([], 0.5)

    def test_interval_holds_the_median(self):
        rounds = [[i, i + 1, i + 2] for i in range(30)]
        low, high = stats.interval(rounds)
        self.assertTrue(low <= stats.median(rounds) <= high)
        self.assertLess(low, high)

    def test_ratio_of_the_same_rounds_is_sharp(self):
        rounds = [[i + 1.0] * 3 for i in range(30)]
        low, high = stats.interval(rounds, [[2 * value for value in one] for one in rounds])
        self.assertAlmostEqual(low, 0.5)
        self.assertAlmostEqual(high, 0.5)
        with self.assertRaisesRegex(ValueError, "different rounds"):
            stats.interval(rounds, rounds[1:])


class Whole(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.document = self.folder / "benchmarks.md"
        self.document.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n")
        # Whatever this machine has installed is left out; only the sleeping program is real.
        self.enterContext(mock.patch.object(peers, "find", lambda name: None))

    def caisson(self, text):
        for build in ("release", "switches"):
            path = self.folder / build / "caisson"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def bench(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run.main(["--build", str(self.folder / "release"), "--document", str(self.document),
                               "--json", str(self.folder / "run.json"), "--rounds", "2",
                               "--throughput-rounds", "1", "--seconds", "0.1", *arguments])
        return status, out.getvalue(), err.getvalue()

    def test_measures_and_writes(self):
        self.caisson(GOOD)
        status, out, err = self.bench("--require")
        self.assertEqual(status, 0, err)
        text = self.document.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("\nafter\n"))
        self.assertNotIn("old", text)
        for words in ("| `caisson` |", "caisson 9", "`bwrap`: not installed: package bubblewrap",
                      "| clone | 120 µs |", "| root | 300 µs |", "python3 -c pass"):
            self.assertIn(words, text)
        result = json.loads((self.folder / "run.json").read_text())
        self.assertEqual([len(one) for one in result["latency_us"]["/bin/true"]["caisson"]], [run.RUNS_PER_ROUND] * 2)
        self.assertGreater(result["memory"]["caisson"]["idle_pss_kib"], 0)

    def test_missing_program_is_named(self):
        status, out, err = self.bench("--no-write")
        self.assertEqual(status, 0, err)
        self.assertIn("caisson: not built", err)
        self.assertIn("`caisson`: not built", out)
        self.assertIn("old", self.document.read_text())

    def test_missing_program_is_an_error_where_it_is_required(self):
        status, _, err = self.bench("--require")
        self.assertEqual(status, 1)
        self.assertIn("caisson cannot be measured: not built", err)

    def test_a_program_that_refuses_is_quoted(self):
        self.caisson("#!/bin/sh\necho first >&2\necho 'no namespaces here' >&2\nexit 125\n")
        status, _, err = self.bench("--require")
        self.assertEqual(status, 1)
        self.assertIn("does not run here: no namespaces here", err)

    def test_a_program_that_fails_now_and_then_is_an_error(self):
        self.caisson(f"#!/bin/sh\nif [ -e {self.folder}/once ]; then exit 3; fi\n: > {self.folder}/once\n")
        status, _, err = self.bench()
        self.assertEqual(status, 1)
        self.assertRegex(err, "caisson ended 3 of 3 runs of /bin/true with status 3")

    def test_a_document_without_markers_is_an_error(self):
        self.caisson(GOOD)
        self.document.write_text("nothing\n")
        status, _, err = self.bench()
        self.assertEqual(status, 1)
        self.assertIn("must hold", err)
        self.assertEqual(self.document.read_text(), "nothing\n")

    def test_hyperfine_that_is_not_there_is_an_error(self):
        self.caisson(GOOD)
        with mock.patch.object(run, "find", lambda name: None if name == "hyperfine" else peers.shutil.which(name)):
            status, _, err = self.bench("--hyperfine")
        self.assertEqual((status, "package hyperfine" in err), (1, True), err)

    def test_a_busy_machine_is_named(self):
        self.caisson(GOOD)
        for load, named in ((90.0, True), (0.0, False)):
            with mock.patch.object(os, "getloadavg", lambda load=load: (load, load, load)):
                status, out, err = self.bench("--no-write")
            self.assertEqual((status, "busy" in out, "busy" in err), (0, named, named), err)

    def test_rounds_must_be_positive(self):
        with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit):
            run.parse(["--rounds", "0"])
        self.assertIn("must be positive", err.getvalue())


class Bundle(unittest.TestCase):
    def test_configuration(self):
        spec = {"process": {"terminal": True, "args": ["sh"]}, "root": {}, "mounts": []}
        made = peers.bundle_config(spec, ["/bin/true"])
        self.assertEqual((made["process"]["terminal"], made["process"]["args"]), (False, ["/bin/true"]))
        self.assertTrue(made["root"]["readonly"])
        self.assertIn("ro", made["mounts"][0]["options"])
        self.assertTrue(spec["process"]["terminal"], "the given one stays as it is")


if __name__ == "__main__":
    unittest.main(verbosity=2)
