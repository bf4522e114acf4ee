#!/usr/bin/env python3
"""The egress benchmark's own tests: its order, its tables, its verdicts, what is missing; with a made-up lab."""

import contextlib
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import egress
from lib import egress_lab

MEDIANS = {"direct": 1000, "splice": 1500, "squid, splice": 1200, "inspect": 4500, "squid, bump": 6000, "direct, HTTP": 500, "HTTP": 800}


class MadeUp:
    """A lab in which splice adds half, inspect too much, mitmproxy is not there, and nothing leads to TCP."""

    def __init__(self, caller):
        self.policy = "net.yaml"
        self.ways = {way.name: way for way in egress_lab.ways()}
        for way in self.ways.values():
            way.missing = "not installed: package mitmproxy" if way.name.startswith("mitmproxy") else ""

    def times(self, name, count, at_once, size=100, pause_us=0, kept=False):
        if "TCP" in name:
            raise egress.frame.BenchError("no way to it")
        return [MEDIANS[name]] * count * at_once

    @contextlib.contextmanager
    def held(self, name, count):
        failed = 7 if name.startswith("squid") and count > 1 else 0
        yield f"open {count - failed} failed {failed}", lambda: f"answered {count - failed} failed {failed} cut off", os.getpid()

    def keeper(self, name, pid):
        return pid

    def create(self, *options):
        return 3000 if not options else 5000 if options[1].startswith("allow:") else 6000

    def close(self):
        pass


def result(*arguments):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        options = egress.parse(["--quick", "--json", f"{folder}/egress.json", *arguments])
        return egress.measure(options, MadeUp)


class Egress(unittest.TestCase):
    def test_each_way_is_first_in_turn(self):
        order = []
        found = egress.alternate(3, {"a": lambda: order.append("a") or [1], "b": lambda: order.append("b") or [2]})
        self.assertEqual(order, ["a", "b", "b", "a", "a", "b"])
        self.assertEqual(found, {"a": [[1]] * 3, "b": [[2]] * 3})

    def test_each_part_has_its_tables_or_its_reason(self):
        text = egress.report(result())
        for line in ("**a connection with one request, one after another**", "| direct | 1.00 | - | 1.00 | 1.0 |",
                     "| splice | 1.50 | 0.50 (0.50 to 0.50) | 1.50 | 1.5 |", "| HTTP | 0.80 | 0.30 (0.30 to 0.30) | 0.80 | 1.6 |",
                     "| with one | 5.00 | 2.00 (2.00 to 2.00) | 5.00 | 1.7 |", "| with one that opens TLS | 6.00 | 3.00 (3.00 to 3.00) | 6.00 | 2.0 |",
                     "| direct | 500 | 0 | 0 | - | - |",
                     "| squid, splice | 493 | 7 | 7 |", "Not measured: no way to it"):
            self.assertIn(line, text)

    def test_what_is_not_here_is_told_and_not_measured(self):
        text = egress.report(result("--parts", "requests"))
        self.assertIn("Not measured here:\n\n- mitmproxy, passing: not installed: package mitmproxy\n- mitmproxy: not installed", text)
        self.assertNotIn("| mitmproxy", text)

    def test_what_was_asked_for_is_judged(self):
        text = egress.report(result("--parts", "requests"))
        self.assertIn("`splice` adds less than 1 ms at the median, at 1 and at 16 connections: so it is", text)
        self.assertIn("`inspect` adds less than 3 ms at the median, at 1 and at 16 connections: missed: 3.50 ms for a connection with", text)
        fast = {"TLS": {way: [[200e6]] for way in ("direct", "splice", "inspect")}}
        self.assertIn("| splice | 200 | 1.00 (1.00 to 1.00) |", egress.rate_tables(fast))
        self.assertIn("(125 MB/s): so it is", egress.rate_tables(fast)[-1])
        self.assertIn("missed by inspect", egress.rate_tables({"TLS": {**fast["TLS"], "inspect": [[100e6]]}})[-1])

    def test_a_client_that_ended_is_told(self):
        self.assertEqual(egress.counts("open 5 failed 1 connect: refused"), (5, 1))
        with self.assertRaises(egress.frame.BenchError):
            egress.counts("")

    def test_the_document_has_its_markers(self):
        text = (egress.ROOT / "docs" / "benchmarks.md").read_text()
        self.assertEqual((text.count(egress.BEGIN), text.count(egress.END)), (1, 1))

    def test_what_cannot_be_is_refused(self):
        for arguments in (["--parts", "x"], ["--rounds", "0"], ["--open", "0"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                egress.parse(arguments)


if __name__ == "__main__":
    unittest.main()
