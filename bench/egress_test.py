#!/usr/bin/env python3
"""The egress benchmark's own tests: its order, its tables, what is missing; with a made-up lab."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import egress


class MadeUp:
    """A lab in which the gateway adds half."""

    def __init__(self, caller):
        self.closed, self.policy = False, "net.yaml"

    def times(self, way, kind, size, count, at_once=1):
        if kind == "tcp":
            raise egress.frame.BenchError("no way to it")
        return [1500 if way == "gateway" else 1000] * count * at_once

    def create(self, *options):
        return 6000 if options else 3000

    def close(self):
        self.closed = True


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

    def test_each_part_has_its_table_or_its_reason(self):
        text = egress.report(result())
        self.assertIn("| http, 1 at a time | 1.00 ms | 1.50 ms | 1.00 ms | 1.50 ms | 0.50 ms (0.50 to 0.50) | 1.50 (1.50 to 1.50) |", text)
        self.assertIn("| tls, 16 at a time | 1.00 ms | 1.50 ms |", text)
        self.assertIn("| `caisson run -- /bin/true` | 3.00 ms | 6.00 ms |", text)
        self.assertIn("Not measured: no way to it", text)

    def test_a_download_is_a_rate(self):
        lines = egress.rate_table({"http": {"direct": [[200e6]], "gateway": [[100e6]]}})
        self.assertEqual(lines[-1], "| http | 200 MB/s | 100 MB/s | 0.50 (0.50 to 0.50) |")

    def test_the_document_has_its_markers(self):
        text = (egress.ROOT / "docs" / "benchmarks.md").read_text()
        self.assertEqual((text.count(egress.BEGIN), text.count(egress.END)), (1, 1))

    def test_what_cannot_be_is_refused(self):
        for arguments in (["--parts", "x"], ["--rounds", "0"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                egress.parse(arguments)


if __name__ == "__main__":
    unittest.main()
