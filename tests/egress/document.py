#!/usr/bin/env python3
"""Writes docs/egress-tests.md of bugs.py and catalogue.py, or says where it is not what they say.

    document.py --check | --write

The result that stands there is what run_bugs.py demands, which fails where any test gives another one. That a test is
named which does not exist is an error here.
"""
import functools
import re
import sys

import bugs
import catalogue
import lab

ROOT = lab.harness.ROOT
DOCUMENT = ROOT / "docs" / "egress-tests.md"
HEAD = """# What the gateway is tested for

What programs have got past gateways and sandboxes of others, and which tests show that it is stopped here. A test
proves that a guard works only if it fails without it. So the test build can do without each guard of
`src/base/guards.h`, and `tests/egress/run_bugs.py`, which is part of `./dev test`, runs every test of the first table
twice: with all guards it passes, without the named ones it fails (several are left out together). Tests of the whole
run as root and as an ordinary user. The release build has no guard that can be left out.

`tests/egress/document.py --write` makes this page of `tests/egress/bugs.py` and `catalogue.py`; a test compares them.

## Bypasses and faults of others

"""
RESULT = "stopped; not without the guard"


@functools.cache
def unit_tests():
    """Suite.Name of every unit test, and where it is."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*_test.cpp")):
        for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.MULTILINE):
            found[f"{suite}.{name}"] = path.relative_to(ROOT)
    return found


@functools.cache
def python_tests(folder):
    """The tests of the test_*.py of a folder: (file, class, test)."""
    found = []
    for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
        owner = ""
        for line in path.read_text().splitlines():
            if match := re.match(r"class (\w+)", line):
                owner = match[1]
            elif match := re.match(r"    def (test_\w+)\(", line):
                found.append((path.name, owner, match[1]))
    return found


def place(test):
    """How a test is called on the page. ValueError: there is none of this name."""
    if test.startswith("fuzz:"):
        if not (ROOT / "fuzz" / f"{test[5:]}_fuzz.cpp").exists():
            raise ValueError(test)
        return f"fuzz target `{test[5:]}`"
    if ":" in test:
        file, name = test.split(":")
        if not any(entry[0] == f"test_{file}.py" and entry[2] == name for entry in python_tests("integration")):
            raise ValueError(test)
        return f"`{name}` (tests/integration/test_{file}.py)"
    owner, name = test.split(".")
    if name.startswith("test_"):
        file = next((entry[0] for entry in python_tests("egress") if entry[1:] == (owner, name)), None)
        if file is None:
            raise ValueError(test)
        return f"`{name}` (tests/egress/{file})"
    if test not in unit_tests():
        raise ValueError(test)
    return f"`{test}` ({unit_tests()[test]})"


def unit_name(test):
    """Without what names one of several parameters: Framings/Heads.AreAccepted/X is Heads.AreAccepted."""
    words = test.split("/")
    return words[1] if len(words) > 1 else test


def source(text):
    if text == bugs.READ:
        return "seen in a program's source"
    words = text.split("/")
    if words[0] == "advisories":
        return f"[{words[1]}](https://github.com/{text})"
    owner, name, _, number = words
    return f"[{owner}/{name}#{number}](https://github.com/{text})"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def bug_rows(entries):
    for entry in entries:
        sources = "<br>".join(map(source, entry.sources))
        if entry.open:
            yield [entry.number, entry.what, sources, "", "", f"open: {entry.open}"]
        for n, proof in enumerate(entry.proofs):
            named = place(unit_name(proof.test))
            guards = " ".join(f"`{guard}`" for guard in proof.guards)
            yield [entry.number if n == 0 else "", entry.what if n == 0 else "", sources if n == 0 else "", guards, named, RESULT]


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in rows)]) + "\n"


def rendered():
    proofs = sum(len(entry.proofs) for entry in bugs.BUGS)
    opened = sum(entry.open is not None for entry in bugs.BUGS)
    text = HEAD + f"Of {len(bugs.BUGS)} entries {len(bugs.BUGS) - opened} are stopped, by {proofs} proofs; {opened} are open.\n\n"
    text += table(["", "what went wrong elsewhere", "source", "guards left out", "test", "result"], bug_rows(bugs.BUGS))
    text += "\nGuards beside them:\n\n"
    text += table(["", "what would go wrong", "guards left out", "test", "result"], ([row[0], row[1], *row[3:]] for row in bug_rows(bugs.BESIDE)))
    text += "\n## The catalogue\n\nEvery case, the tests that cover it, and what of it is open.\n"
    for group, name in catalogue.GROUPS.items():
        rows = ([str(case.number), case.what, "<br>".join(map(place, case.tests)), case.open or ""] for case in catalogue.CASES if case.group == group)
        text += f"\n### {group}. {name}\n\n" + table(["", "case", "tests", "open"], rows)
    return text


def faults():
    numbers = [case.number for case in catalogue.CASES]
    if numbers != list(range(1, 74)):
        yield "catalogue.py: the cases are not 1 to 73"
    if [entry.number for entry in bugs.BUGS] != [str(n) for n in range(1, 53)] + ["52b", "52c"] + [str(n) for n in range(53, 67)]:
        yield "bugs.py: the entries are not 1 to 66 with 52b and 52c"
    yield from (f"catalogue.py: {case.number} has neither a test nor a reason" for case in catalogue.CASES if not case.tests and not case.open)


def main():
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit(__doc__)
    wrong = list(faults())
    try:
        text = rendered()
    except ValueError as error:
        sys.exit(f"there is no test {error}")
    if sys.argv[1] == "--write":
        DOCUMENT.write_text(text)
    elif not DOCUMENT.exists() or DOCUMENT.read_text() != text:
        wrong.append("docs/egress-tests.md is not what bugs.py and catalogue.py say: tests/egress/document.py --write")
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
