#!/usr/bin/env python3
"""What fuzz_coverage.py reads, counts and refuses, with LLVM's programs and a target faked; and that
the repository's own targets and corpora are as it wants them."""

import contextlib
import io
import os
import re
import stat
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fuzz_coverage  # noqa: E402
from fuzz_coverage import Problem, Row, Target  # noqa: E402

MOST_CORPUS_BYTES = 100 * 1024

# Writes a profile, as a target that counts its lines does; fails or writes none where it is told to.
TARGET = """#!/bin/sh
echo "$@" >"$FAKE/arguments"
if [ -e "$FAKE/target-fails" ]; then echo "it crashed" >&2; exit 77; fi
if [ ! -e "$FAKE/no-profile" ]; then echo profile >"$LLVM_PROFILE_FILE"; fi
"""
PROFDATA = """#!/bin/sh
for last; do :; done
cp "$last" "$4"
"""
COV = """#!/bin/sh
for last; do :; done
cat "$FAKE/trace-$(basename "$last")"
"""


def trace(path, lines):
    return f"SF:{path}\n" + "".join(f"DA:{number},{int(count)}\n" for number, count in lines.items()) + \
        f"LF:{len(lines)}\nend_of_record\n"


class ParserFiles(unittest.TestCase):
    def test_all_lines_are_taken(self):
        text = "// libraries: base\n// parser: src/a.cpp  src/b.h\n// parser: src/c.cpp\n//\n#include <x>\n"
        self.assertEqual(fuzz_coverage.parser_files(text, "x"), ("src/a.cpp", "src/b.h", "src/c.cpp"))

    def test_a_line_that_was_joined_to_another_is_none(self):
        with self.assertRaisesRegex(Problem, "^fuzz/x.cpp: no line `// parser:"):
            fuzz_coverage.parser_files("// About it. parser: src/a.cpp\n", "fuzz/x.cpp")

    def test_an_empty_line_is_none(self):
        with self.assertRaises(Problem):
            fuzz_coverage.parser_files("// parser:\n", "x")

    def test_a_file_twice(self):
        with self.assertRaisesRegex(Problem, "names src/a.cpp twice"):
            fuzz_coverage.parser_files("// parser: src/a.cpp\n// parser: src/a.cpp\n", "x")


class Lcov(unittest.TestCase):
    def test_lines_of_each_file(self):
        text = trace("a", {1: 5, 2: 0}) + trace("b", {7: 1})
        self.assertEqual(fuzz_coverage.parse_lcov(text), {"a": {1: True, 2: False}, "b": {7: True}})

    def test_a_line_that_ran_once_was_reached(self):
        self.assertEqual(fuzz_coverage.parse_lcov("SF:a\nDA:1,0\nDA:1,3\nDA:1,0\n"), {"a": {1: True}})

    def test_other_records_mean_nothing_here(self):
        text = "SF:a\nFN:3,f\nFNDA:1,f\nBRDA:3,0,0,1\nDA:3,1\nLH:1\nend_of_record\n"
        self.assertEqual(fuzz_coverage.parse_lcov(text), {"a": {3: True}})

    def test_what_is_not_understood_is_refused(self):
        for text in ("DA:1,1\n", "SF:a\nDA:x,1\n", "SF:a\nend_of_record\nDA:1,1\n"):
            with self.assertRaisesRegex(Problem, "not understood", msg=text):
                fuzz_coverage.parse_lcov(text)


class Together(unittest.TestCase):
    def test_what_any_target_reached_is_reached(self):
        rows = fuzz_coverage.together([
            (Target("one", ("b", "a")), {"b": {1: True, 2: False}, "a": {1: True}}),
            (Target("two", ("b",)), {"b": {2: True, 3: False}}),
        ])
        self.assertEqual(rows, [Row("a", ("one",), {1: True}),
                                Row("b", ("one", "two"), {1: True, 2: True, 3: False})])

    def test_the_bound_is_enough_and_less_is_not(self):
        lines = {number: number > 15 for number in range(1, 101)}
        self.assertTrue(Row("a", ("t",), lines).enough())
        lines[16] = False
        self.assertFalse(Row("a", ("t",), lines).enough())


class Telling(unittest.TestCase):
    def test_a_percentage_is_never_rounded_up(self):
        self.assertEqual(fuzz_coverage.percent(8499, 10000), "84.9")
        self.assertEqual(fuzz_coverage.percent(85, 100), "85.0")
        self.assertEqual(fuzz_coverage.percent(0, 3), "0.0")

    def test_tables(self):
        rows = [Row("src/a.cpp", ("one", "two"), {1: True, 2: False}), Row("src/long/b.cpp", ("one",), {1: True})]
        self.assertEqual(fuzz_coverage.plain_table(rows),
                         "parser          lines  reached  percent  fuzz targets\n"
                         "src/a.cpp           2        1     50.0  one, two\n"
                         "src/long/b.cpp      1        1    100.0  one\n"
                         "all                 3        2     66.6\n")
        markdown = fuzz_coverage.markdown(rows)
        self.assertIn("\n| src/a.cpp | one, two | 2 | 1 | 50.0 |\n", markdown)
        self.assertIn("\n| all |  | 3 | 2 | 66.6 |\n", markdown)

    def test_lines_that_follow_each_other_are_one_range(self):
        lines = dict.fromkeys([1, 2, 4, 5, 9, 12], False)
        # 3 is no line of code, 5 was reached.
        self.assertEqual(fuzz_coverage.ranges([1, 2, 4, 9, 12], lines), [(1, 4), (9, 12)])
        self.assertEqual(fuzz_coverage.ranges([], lines), [])


class Tree(unittest.TestCase):
    """A tree with one target, `t`, whose parser is src/p.cpp."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = os.path.join(os.path.realpath(folder.name), "tree")
        self.build = os.path.join(self.root, "build/fuzz")
        self.fake = os.path.join(os.path.realpath(folder.name), "fake")
        os.makedirs(self.fake)
        self.write("fuzz/t_fuzz.cpp", "// parser: src/p.cpp\n")
        self.write("fuzz/corpus/t/seed", "x")
        self.write("src/p.cpp", "".join(f"line {number}\n" for number in range(1, 21)))
        self.program(os.path.join(self.build, "fuzz/t"), TARGET)
        self.program(os.path.join(self.fake, "llvm-profdata-19"), PROFDATA)
        self.program(os.path.join(self.fake, "llvm-cov-19"), COV)
        self.reaches("t", {number: 1 for number in range(1, 21)})
        environment = mock.patch.dict(os.environ, FAKE=self.fake, PATH=self.fake + ":" + os.environ["PATH"])
        environment.start()
        self.addCleanup(environment.stop)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def program(self, path, text):
        self.write(path, text)
        os.chmod(path, stat.S_IRWXU)

    def put(self, name, text=""):
        with open(os.path.join(self.fake, name), "w", encoding="utf-8") as file:
            file.write(text)

    def reaches(self, target, lines, path="../../src/p.cpp"):
        self.put(f"trace-{target}", trace(path, lines))

    def run_it(self, *arguments):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = fuzz_coverage.main([self.root, self.build, *arguments])
        return status, out.getvalue(), errors.getvalue()

    def problem(self, *arguments):
        with self.assertRaises(Problem) as caught:
            self.run_it(*arguments)
        return str(caught.exception)


class Whole(Tree):
    def test_enough(self):
        status, out, errors = self.run_it()
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("src/p.cpp     20       20    100.0  t\n", out)

    def test_the_seeds_are_run_and_nothing_else(self):
        self.run_it()
        with open(os.path.join(self.fake, "arguments"), encoding="utf-8") as file:
            self.assertEqual(file.read(), f"-runs=0 {self.root}/fuzz/corpus/t\n")

    def test_too_few_lines_fail_and_the_file_is_named(self):
        self.reaches("t", {number: number <= 16 for number in range(1, 21)})
        status, out, errors = self.run_it()
        self.assertEqual(status, 1)
        self.assertIn("80.0", out)
        self.assertIn("coverage: src/p.cpp: the seeds of t reach 80.0 % of its lines, at least 85 %", errors)

    def test_two_targets_of_one_file_count_together(self):
        self.write("fuzz/u_fuzz.cpp", "// parser: src/p.cpp\n")
        self.write("fuzz/corpus/u/seed", "x")
        self.program(os.path.join(self.build, "fuzz/u"), TARGET)
        self.reaches("t", {number: number <= 10 for number in range(1, 21)})
        self.reaches("u", {number: number > 10 for number in range(1, 21)}, f"{self.root}/src/p.cpp")
        status, out, _ = self.run_it()
        self.assertEqual(status, 0)
        self.assertIn("src/p.cpp     20       20    100.0  t, u\n", out)

    def test_only_the_parser_is_judged(self):
        self.put("trace-t", trace("../../src/p.cpp", {1: 1}) + trace("../../src/other.cpp", {1: 0}))
        status, out, _ = self.run_it()
        self.assertEqual(status, 0)
        self.assertNotIn("other", out)

    def test_the_missed_lines_are_shown(self):
        self.reaches("t", {number: number not in (3, 4, 20) for number in range(1, 21)})
        _, out, _ = self.run_it("--missed", "src/p.cpp")
        self.assertTrue(out.startswith("src/p.cpp:3\n  line 3\n  line 4\nsrc/p.cpp:20\n  line 20\nparser "), out)
        self.assertEqual(self.run_it("--missed")[1], out)

    def test_missed_of_what_is_no_parser(self):
        self.assertIn("src/x.cpp is no parser", self.problem("--missed", "src/x.cpp"))

    def test_the_table_is_written(self):
        path = os.path.join(self.fake, "table.md")
        self.assertEqual(self.run_it("--write", path)[0], 0)
        with open(path, encoding="utf-8") as file:
            self.assertIn("| src/p.cpp | t | 20 | 20 | 100.0 |\n", file.read())


class Refusals(Tree):
    def test_a_target_without_a_parser(self):
        self.write("fuzz/u_fuzz.cpp", "#include <x>\n")
        self.assertIn("fuzz/u_fuzz.cpp: no line", self.problem())

    def test_a_parser_that_does_not_exist(self):
        self.write("fuzz/t_fuzz.cpp", "// parser: src/gone.cpp\n")
        self.assertIn("fuzz/t_fuzz.cpp: its parser src/gone.cpp does not exist", self.problem())

    def test_a_parser_elsewhere(self):
        for path in ("../p.cpp", "src/../x.cpp", "fuzz/t_fuzz.cpp", "/src/p.cpp"):
            self.write("fuzz/t_fuzz.cpp", f"// parser: {path}\n")
            self.assertIn("is no path such as", self.problem(), path)

    def test_no_target(self):
        os.remove(os.path.join(self.root, "fuzz/t_fuzz.cpp"))
        self.assertIn("no fuzz target", self.problem())

    def test_no_seed(self):
        os.remove(os.path.join(self.root, "fuzz/corpus/t/seed"))
        self.assertIn("no seed in fuzz/corpus/t", self.problem())

    def test_a_target_that_fails(self):
        self.put("target-fails")
        self.assertRegex(self.problem(), "^fuzz target t: ended with status 77\nit crashed")

    def test_a_target_that_is_not_built(self):
        os.remove(os.path.join(self.build, "fuzz/t"))
        self.assertIn("is missing", self.problem())

    def test_a_target_that_counts_nothing(self):
        self.put("no-profile")
        self.assertIn("it is not of the preset fuzz", self.problem())

    def test_a_parser_that_the_target_has_no_code_of(self):
        self.reaches("t", {1: 1}, "../../src/other.cpp")
        self.assertIn("names src/p.cpp as its parser, but has none of its code", self.problem())


class Repository(unittest.TestCase):
    root = os.path.dirname(HERE)

    def test_every_target_names_its_parser(self):
        self.assertGreater(len(fuzz_coverage.read_targets(self.root)), 0)

    def test_every_corpus_belongs_to_a_target_and_is_small(self):
        corpora = os.path.join(self.root, "fuzz/corpus")
        names = {target.name for target in fuzz_coverage.read_targets(self.root)}
        self.assertEqual(set(os.listdir(corpora)), names)
        for name in sorted(names):
            folder = os.path.join(corpora, name)
            size = sum(os.path.getsize(os.path.join(folder, seed)) for seed in os.listdir(folder))
            self.assertLessEqual(size, MOST_CORPUS_BYTES, f"fuzz/corpus/{name}")

    def test_every_seed_has_a_name(self):
        # libFuzzer names by a hash what it finds, and puts it into the first folder that it is given.
        corpora = os.path.join(self.root, "fuzz/corpus")
        found = [path for path, _, seeds in os.walk(corpora) for seed in seeds if re.fullmatch("[0-9a-f]{40}", seed)]
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
