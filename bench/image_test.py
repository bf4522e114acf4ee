#!/usr/bin/env python3
"""The image benchmark's own tests: tables, options, what is missing, with a script in caisson's place."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import image
from lib import stats

FAKE = """#!/bin/sh
case "$1 $2" in
  "image inspect") echo '[{"rootfs": {"form": "erofs", "entries": 12, "bytes": 1048576}}]' ;;
  "image import") cat "$4" > /dev/null ;;
  "run --image") shift 4; [ "$1" != false ] ;;
  *) echo "what is $1?" >&2; exit 3 ;;
esac
"""
ROUNDS = [[1000, 1200], [1100, 1300]]


class Difference(unittest.TestCase):
    def test_of_shifted_rounds_is_the_shift(self):
        self.assertEqual(stats.difference_interval([[n + 5] for n in range(9)], [[n] for n in range(9)]), (5, 5))
        with self.assertRaises(ValueError):
            stats.difference_interval([[1]], [[1], [2]])


class Report(unittest.TestCase):
    def test_each_part_has_its_table_or_its_reason(self):
        parts = {"start": {"times_us": {"/bin/true": {"host": ROUNDS, "base": [[1500, 1700], [1600, 1800]]}},
                           "base": {"form": "erofs", "entries": 12, "bytes": 1 << 20}},
                 "unpack": {"times_us": {"ours": [[1_000_000], [2_000_000]], "tar": [[1_000_000], [1_000_000]]}},
                 "pull": {"missing": "docker-registry is not installed"}, "build": {"times_us": {"all": [[3_000_000]]}}}
        text = image.report({"date": "2026-01-01", "rounds": 2, "unpack_rounds": 2, "remark": "", "host": {"kernel": "6.1"}, "parts": parts})
        self.assertIn("| `--image base` | 1.65 ms | 1.80 ms | +0.50 ms", text)
        self.assertIn("12 files and 1 MiB, kept as erofs", text)
        self.assertIn("| `tar` | 1.00 s | 1.00 to 1.00 s | 1.50 |", text)
        self.assertIn("Not measured: docker-registry is not installed", text)
        self.assertIn("| all | 3.00 s | 3.00 to 3.00 s |", text)

    def test_figures_go_between_the_documents_own_markers(self):
        document = (image.ROOT / "docs" / "benchmarks.md").read_text()
        self.assertEqual((document.count(image.BEGIN), document.count(image.END)), (1, 1))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "b.md"
            path.write_text(f"a\n{image.BEGIN}\nold\n{image.END}\nz\n")
            image.frame.write_document(path, "new\n", image.BEGIN, image.END)
            self.assertEqual(path.read_text(), f"a\n{image.BEGIN}\nnew\n{image.END}\nz\n")


class Whole(unittest.TestCase):
    def call(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            status = image.main(list(arguments))
        return status, errors.getvalue()

    def test_a_part_that_cannot_be_measured_does_not_stop_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "caisson").write_text(FAKE)
            (folder / "caisson").chmod(0o755)
            (folder / "base.tar.zst").write_bytes(b"")
            common = ["--build", str(folder), "--archive", str(folder / "base.tar.zst"), "--json", str(folder / "out.json"), "--no-write",
                      "--rounds", "1", "--unpack-rounds", "1"]
            with mock.patch.object(image, "find", lambda name: None if name == "zstd" else f"/usr/bin/{name}"), \
                    mock.patch.object(image, "small_image", lambda lab: "/dev/null"):
                status, errors = self.call("--parts", "start,unpack,build", *common)
            self.assertEqual(status, 0, errors)
            parts = json.loads((folder / "out.json").read_text())["parts"]
            self.assertEqual(sorted(parts["start"]["times_us"]["/bin/true"]), ["base", "host", "small"])
            self.assertEqual(parts["unpack"], {"missing": "zstd is not installed: package zstd"})
            self.assertIn("what is image", parts["build"]["missing"])
            self.assertEqual(list((image.ROOT / "build" / "bench").glob("image-*/")), [])

    def test_without_an_archive_it_says_what_builds_it(self):
        status, errors = self.call("--archive", "/nowhere.tar.zst", "--no-write")
        self.assertEqual(status, 1)
        self.assertIn("./dev image builds it", errors)

    def test_an_unknown_part_is_refused(self):
        with self.assertRaises(SystemExit):
            self.call("--parts", "start,nothing")


if __name__ == "__main__":
    unittest.main()
