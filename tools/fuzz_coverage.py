#!/usr/bin/env python3
"""How much of each hand-written parser the checked-in seeds of its fuzz targets reach.

usage: fuzz_coverage.py ROOT BUILD [--write FILE] [--missed [SOURCE…]]

ROOT is the source tree, BUILD the folder of its preset `fuzz`, with every target built. Which source
files are the parser of a target stands in the target's own lines `// parser: src/a.cpp src/b.cpp`
and nowhere else. Each target runs its seeds and nothing more; a line counts as reached when any
target that names its file ran it. Prints a line for each file, and ends with status 1 if one has
fewer than 85 of 100 lines reached. Lines are what llvm-cov takes for lines of code.

--write writes the table to FILE as Markdown. --missed prints the lines that are not reached, of the
named files or of all.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Iterable, NamedTuple

LEAST_PERCENT = 85
RUN, PROFILE, EXPORT = "-runs=0", "llvm-profdata-19", "llvm-cov-19"
# A target that hangs on a seed ends here.
MOST_SECONDS = 300

Lines = dict[int, bool]  # of one file: whether each line of code was reached


class Problem(Exception):
    """Something that keeps the figures from being right; its text is for the user."""


class Target(NamedTuple):
    name: str
    parser: tuple[str, ...]  # source files, relative to the root


class Row(NamedTuple):
    path: str
    targets: tuple[str, ...]
    lines: Lines

    def reached(self) -> int:
        return sum(self.lines.values())

    def enough(self) -> bool:
        return self.reached() * 100 >= len(self.lines) * LEAST_PERCENT


# ---- what is to be measured -----------------------------------------------------------------------


def parser_files(text: str, where: str) -> tuple[str, ...]:
    """The source files that a target's text names. Problem where it names none, or one twice."""
    files = [name for line in re.findall(r"^// parser:(.*)$", text, re.MULTILINE) for name in line.split()]
    if not files:
        raise Problem(f"{where}: no line `// parser: src/…`, which says whose lines it must reach")
    for name in files:
        if files.count(name) > 1:
            raise Problem(f"{where}: names {name} twice as its parser")
    return tuple(files)


def read_targets(root: str) -> list[Target]:
    folder = os.path.join(root, "fuzz")
    targets = []
    for entry in sorted(os.listdir(folder)):
        if not entry.endswith("_fuzz.cpp"):
            continue
        where = f"fuzz/{entry}"
        with open(os.path.join(folder, entry), encoding="utf-8") as file:
            files = parser_files(file.read(), where)
        for name in files:
            if name != os.path.normpath(name) or not name.startswith(("src/", "include/")):
                raise Problem(f"{where}: its parser {name} is no path such as src/policy/units.cpp")
            if not os.path.isfile(os.path.join(root, name)):
                raise Problem(f"{where}: its parser {name} does not exist")
        targets.append(Target(entry.removesuffix("_fuzz.cpp"), files))
    if not targets:
        raise Problem("no fuzz target: fuzz/*_fuzz.cpp")
    return targets


# ---- measuring ------------------------------------------------------------------------------------


def run(command: list[str], what: str, folder: str, **environment: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=MOST_SECONDS)
    except FileNotFoundError as error:
        raise Problem(f"{what}: {command[0]} is missing; ./dev coverage installs and builds what it needs") from error
    except subprocess.TimeoutExpired as error:
        raise Problem(f"{what}: not at its end after {MOST_SECONDS} s") from error
    if done.returncode != 0:
        raise Problem(f"{what}: ended with status {done.returncode}\n{done.stderr.decode(errors='replace')[-4000:]}")
    return done.stdout.decode(errors="replace")


def parse_lcov(text: str) -> dict[str, Lines]:
    """Of each file that a trace of lcov's format speaks of, as it names the file."""
    files: dict[str, Lines] = {}
    current: Lines | None = None
    for line in text.splitlines():
        if line.startswith("SF:"):
            current = files.setdefault(line[3:], {})
        elif line.startswith("DA:"):
            match = re.fullmatch(r"DA:(\d+),(\d+)", line)
            if current is None or match is None:
                raise Problem(f"{EXPORT}: a line that is not understood: {line[:200]}")
            number = int(match[1])
            current[number] = current.get(number, False) or int(match[2]) > 0
        elif line == "end_of_record":
            current = None
    return files


def measure(root: str, build: str, target: Target, scratch: str) -> dict[str, Lines]:
    """Runs the target's seeds; the lines of its parser's files."""
    program = os.path.join(build, "fuzz", target.name)
    corpus = os.path.join(root, "fuzz/corpus", target.name)
    if not os.path.isdir(corpus) or not os.listdir(corpus):
        raise Problem(f"fuzz target {target.name}: no seed in fuzz/corpus/{target.name}")
    raw, merged = (os.path.join(scratch, target.name + end) for end in (".profraw", ".profdata"))
    what = f"fuzz target {target.name}"
    run([program, RUN, corpus], what, scratch, LLVM_PROFILE_FILE=raw)
    if not os.path.exists(raw):
        raise Problem(f"{what}: {program} counts no lines; it is not of the preset fuzz")
    run([PROFILE, "merge", "-sparse", "-o", merged, raw], what, scratch)
    trace = run([EXPORT, "export", "-format=lcov", f"-instr-profile={merged}", program], what, scratch)
    # Paths are as the compiler had them: relative to its working folder, the build's, or absolute.
    found = {os.path.relpath(os.path.join(build, path), root): lines for path, lines in parse_lcov(trace).items()}
    for path in target.parser:
        if not found.get(path):
            raise Problem(f"fuzz/{target.name}_fuzz.cpp: names {path} as its parser, but has none of its code")
    return {path: found[path] for path in target.parser}


def together(measured: Iterable[tuple[Target, dict[str, Lines]]]) -> list[Row]:
    """One row a file, in the order of their paths: what any of its targets reached is reached."""
    rows: dict[str, Row] = {}
    for target, files in measured:
        for path, lines in files.items():
            row = rows.get(path, Row(path, (), {}))
            union = {number: row.lines.get(number, False) or lines.get(number, False)
                     for number in sorted(row.lines | lines)}
            rows[path] = Row(path, (*row.targets, target.name), union)
    return [rows[path] for path in sorted(rows)]


# ---- telling --------------------------------------------------------------------------------------


def percent(reached: int, lines: int) -> str:
    """Rounded down, so that what is below the bound never looks as if it were not."""
    tenths = reached * 1000 // lines
    return f"{tenths // 10}.{tenths % 10}"


def cells(rows: list[Row]) -> list[tuple[str, ...]]:
    lines, reached = sum(len(row.lines) for row in rows), sum(row.reached() for row in rows)
    table = [(row.path, ", ".join(row.targets), str(len(row.lines)), str(row.reached()),
              percent(row.reached(), len(row.lines))) for row in rows]
    return [("parser", "fuzz targets", "lines", "reached", "percent"), *table,
            ("all", "", str(lines), str(reached), percent(reached, lines))]


def plain_table(rows: list[Row]) -> str:
    table = cells(rows)
    width = [max(len(line[column]) for line in table) for column in range(5)]
    return "".join(
        f"{a:<{width[0]}}  {c:>{width[2]}}  {d:>{width[3]}}  {e:>{width[4]}}  {b}".rstrip() + "\n"
        for a, b, c, d, e in table)


def markdown(rows: list[Row]) -> str:
    head, *table = cells(rows)
    return (
        "# What the seeds of the fuzz targets reach\n\n"
        "Written by `./dev coverage --write docs/fuzz-coverage.md`. For each source file that a fuzz target\n"
        "names as its parser: its lines of code, and how many of them run when the targets are given their\n"
        f"checked-in seeds and nothing else. The command fails where that is fewer than {LEAST_PERCENT} of 100.\n\n"
        f"| {' | '.join(head)} |\n|---|---|---:|---:|---:|\n"
        + "".join(f"| {' | '.join(line)} |\n" for line in table))


def ranges(numbers: Iterable[int], lines: Lines) -> list[tuple[int, int]]:
    """Runs of numbers between which no other line of code lies."""
    order = sorted(lines)
    place = {number: at for at, number in enumerate(order)}
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and place[number] == place[found[-1][1]] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def missed(root: str, row: Row) -> str:
    with open(os.path.join(root, row.path), encoding="utf-8") as file:
        text = file.read().splitlines()
    out = ""
    for first, last in ranges((number for number, reached in row.lines.items() if not reached), row.lines):
        out += f"{row.path}:{first}\n"
        out += "".join(f"  {text[number - 1]}".rstrip() + "\n" for number in range(first, last + 1))
    return out


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="coverage", usage="./dev coverage [--write FILE] [--missed [SOURCE…]]")
    parser.add_argument("root", help=argparse.SUPPRESS)
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("--write", metavar="FILE", help="write the table to FILE as Markdown too")
    parser.add_argument("--missed", metavar="SOURCE", nargs="*",
                        help="print the lines that are not reached, of the named files or of all")
    options = parser.parse_args(arguments)
    root, build = os.path.realpath(options.root), os.path.realpath(options.build)
    targets = read_targets(root)
    for path in options.missed or []:
        if not any(path in target.parser for target in targets):
            raise Problem(f"{path} is no parser of a fuzz target; those are in the lines `// parser:` of fuzz/")
    with tempfile.TemporaryDirectory(prefix="fuzz-coverage-") as scratch, \
            ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = together(zip(targets, pool.map(lambda target: measure(root, build, target, scratch), targets)))
    if options.missed is not None:
        for row in rows:
            if not options.missed or row.path in options.missed:
                print(missed(root, row), end="")
    print(plain_table(rows), end="")
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            file.write(markdown(rows))
    below = [row for row in rows if not row.enough()]
    for row in below:
        print(f"coverage: {row.path}: the seeds of {', '.join(row.targets)} reach "
              f"{percent(row.reached(), len(row.lines))} % of its lines, at least {LEAST_PERCENT} % are needed; "
              f"which not: ./dev coverage --missed {row.path}", file=sys.stderr)
    return 1 if below else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Problem as problem:
        sys.exit(f"coverage: {problem}")
