#!/usr/bin/env python3
"""INDEX is the list of what the escape suite tries; this checks that the list and the suite agree.

Fails on: a missing row of 1 to 118, a row of fewer or more columns, an id twice, a vector twice for
one mechanism, an unknown mechanism, run, scope or expectation, a file that is not there, an id that
its file does not have, a file or an id of a file that has no row, a control that names an unknown
switch or another mechanism first, and fewer than 90 positive controls.

    check_index.py               check
    check_index.py --table       how many rows, attempts and controls by mechanism
    check_index.py --format      align the columns of INDEX
    check_index.py --self-test   every kind of fault is found in a spoilt copy
"""
import collections
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COLUMNS = ("id", "name", "vector", "mechanism", "file", "run", "expect", "control", "scope")
ROWS = 118
CONTROLS = 90
RUNS = ("plain", "plain2", "asroot", "disk", "memory", "pids", "cpu", "io", "tty", "fuzz", "host", "slow")
SCOPES = ("both", "root", "rootless")
# What stops an attempt and has no switch: it is not one step of the building of a sandbox.
UNSWITCHED = {
    "kernel": "the kernel's own rule for unprivileged programs",
    "spec": "the spec's validation",
    "deadline": "the supervisor's clock",
    "watcher": "the supervisor's look at memory where there is no control group",
    "output_limit": "the supervisor's count of output",
    "guest_reaper": "the guest's reaping",
    "teardown": "the end of a sandbox",
    "no_sysfs": "no sysfs is mounted",
    "no_cgroupfs": "no control group file system is mounted",
    "sealed_memfd": "the guest's image is a sealed memfd",
    "extractor": "the reader of archives and copier of files",
    "copy_grants": "a copy is another file",
    "grant_sockets": "grants with listening sockets are refused",
    "terminal_filter": "the command line's filter of what reaches a terminal",
    "user_namespace": "a user namespace of its own",
    "raised_files": "descriptors are sent with the host's hard limit of open files",
    "documented": "declared out of reach in SECURITY.md",
}
DEFINES = r"^(?:ATTEMPT|ATTEMPT_WITHIN|CALL|NETLINK|FAMILY|PERSONALITY)\((\d+[a-z])\b"
FILE_IDS = {".c": re.compile(DEFINES, re.M), ".py": re.compile(r'^@attempt\("(\d+[a-z])"', re.M)}

Row = collections.namedtuple("Row", COLUMNS)


def switches(text):
    """The mechanisms of src/base/switches.h."""
    table = re.search(r"kMechanismNames = \{(.*?)\};", text, re.S)
    return re.findall(r'"([a-z_]+)"', table.group(1)) if table else []


def parse(text):
    """(rows, faults) of INDEX's text."""
    rows, faults = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) != len(COLUMNS):
            faults.append(f"INDEX line {number}: {len(cells)} columns, {len(COLUMNS)} are needed: {line.strip()}")
            continue
        row = Row(*cells)
        if row == Row(*COLUMNS):
            continue
        rows.append(row)
    return rows, faults


def control_of(row):
    """What a control switches off, the mechanism first: a list, or None where there is no control."""
    if row.control.startswith("-") or row.control.startswith("with "):
        return None
    return row.control.removeprefix("vm: ").partition(" as uid ")[0].split(" + ")


def control_user(row):
    """The id that the command of a control runs as, or None for the usual one."""
    return row.control.partition(" as uid ")[2] or None


def has_control(row):
    return not row.control.startswith("-")


def check(text, files, known_switches):
    """The faults of INDEX's text. files: name to contents of every attack program and script."""
    rows, faults = parse(text)
    mechanisms = set(known_switches) | set(UNSWITCHED)
    seen, vectors, named = set(), set(), collections.defaultdict(set)
    for row in rows:
        if not re.fullmatch(r"\d+[a-z]", row.id):
            faults.append(f"{row.id}: an id is a number and a letter")
        if row.id in seen:
            faults.append(f"{row.id}: twice")
        seen.add(row.id)
        if (row.name, row.vector, row.mechanism) in vectors:
            faults.append(f"{row.id}: '{row.vector}' is there for {row.mechanism} already")
        vectors.add((row.name, row.vector, row.mechanism))
        if row.mechanism not in mechanisms:
            faults.append(f"{row.id}: unknown mechanism '{row.mechanism}'")
        if row.run not in RUNS:
            faults.append(f"{row.id}: unknown run '{row.run}'; known are {', '.join(RUNS)}")
        if row.scope not in SCOPES:
            faults.append(f"{row.id}: unknown scope '{row.scope}'; known are {', '.join(SCOPES)}")
        if not re.fullmatch(r"[\w]+(/[\w]+)*", row.expect):
            faults.append(f"{row.id}: the expectation '{row.expect}' is not a list of words with / between")
        if row.file not in files:
            faults.append(f"{row.id}: there is no file {row.file}")
        named[row.file].add(row.id)
        if row.control.startswith("-"):
            if len(row.control) < 10:
                faults.append(f"{row.id}: no control and no reason for that")
        elif row.control.startswith("with "):
            if not row.control.startswith("with --"):
                faults.append(f"{row.id}: 'with' names flags of caisson run")
        else:
            names = control_of(row)
            if names[0] != row.mechanism:
                faults.append(f"{row.id}: its control switches {names[0]} off first, its mechanism is {row.mechanism}")
            faults += [f"{row.id}: no switch is called '{name}'" for name in names if name not in known_switches]
    for number in range(1, ROWS + 1):
        if not any(re.fullmatch(rf"{number}[a-z]", name) for name in seen):
            faults.append(f"row {number} is missing")
    for name, contents in files.items():
        pattern = FILE_IDS[pathlib.Path(name).suffix]
        ids = set(pattern.findall(contents))
        if not ids:
            continue
        faults += [f"{name}: its attempt {number} has no row" for number in sorted(ids - named[name])]
        faults += [f"{number}: {name} has no such attempt" for number in sorted(named[name] - ids)]
    faults += [f"{name}: no row names it" for name in files if name not in named and name.startswith("attack_")]
    controls = sum(has_control(row) for row in rows)
    if controls < CONTROLS:
        faults.append(f"{controls} positive controls, {CONTROLS} are needed")
    return faults


def load_files():
    found = {path.name: path.read_text() for path in (HERE / "attacks").glob("attack_*.c")}
    found.update({path.name: path.read_text() for path in HERE.glob("host_*.py")})
    return found


def load():
    """The rows of INDEX, for the runners."""
    rows, faults = parse((HERE / "INDEX").read_text())
    if faults:
        sys.exit("\n".join(faults))
    return rows


def align(text):
    lines = text.splitlines()
    tables = [line.split(" | ") for line in lines if line.strip() and not line.startswith("#")]
    widths = [max(len(cells[i].strip()) for cells in tables) for i in range(len(COLUMNS))]
    out = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            out.append(line)
            continue
        cells = [cell.strip() for cell in line.split(" | ")]
        out.append(" | ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
    return "\n".join(out) + "\n"


def self_test(text, files, known):
    rows = [line for line in text.splitlines() if line and line[0].isdigit()]
    first = rows[0]
    cells = [cell.strip() for cell in first.split(" | ")]
    attack = next(name for name in files if name.endswith(".c"))

    def with_cell(index, value):
        changed = list(cells)
        changed[index] = value
        return text.replace(first, " | ".join(changed))

    some_row = next(line for line in rows if re.match(r"118", line))
    spoilt = {
        "a missing row": ("\n".join(line for line in text.splitlines() if not re.match(r"57[a-z]", line)), files,
                          "row 57 is missing"),
        "a column too few": (text.replace(first, " | ".join(cells[:-1])), files, "columns"),
        "an id twice": (text + first + "\n", files, "twice"),
        "a bad id": (with_cell(0, "one"), files, "a number and a letter"),
        "the same vector again": (text + first.replace(cells[0], "999z", 1) + "\n", files, "already"),
        "an unknown mechanism": (with_cell(3, "luck"), files, "unknown mechanism 'luck'"),
        "a missing file": (with_cell(4, "attack_nothing.c"), files, "there is no file attack_nothing.c"),
        "an unknown run": (with_cell(5, "sometimes"), files, "unknown run 'sometimes'"),
        "an unknown scope": (with_cell(8, "nobody"), files, "unknown scope 'nobody'"),
        "an expectation in prose": (with_cell(6, "it fails!"), files, "is not a list of words"),
        "no reason": (with_cell(7, "-"), files, "no control and no reason"),
        "an unknown switch": (with_cell(7, cells[3] + " + luck"), files, "no switch is called 'luck'"),
        "another mechanism first": (with_cell(7, "seccomp" if cells[3] != "seccomp" else "landlock"), files,
                                    "its mechanism is"),
        "no flags": (with_cell(7, "with luck"), files, "names flags"),
        "a file without a row": (text, {**files, "attack_new.c": ""}, "attack_new.c: no row names it"),
        "an attempt without a row": (text, {**files, attack: files[attack] + "\nATTEMPT(998a) {}\n"},
                                     "its attempt 998a has no row"),
        "a row without an attempt": (text.replace(some_row, some_row + "\n" + some_row.replace(some_row.split()[0], "118z", 1)
                                                  .replace("file-nr", "other")), files, "has no such attempt"),
        "too few controls": ("\n".join(re.sub(r"\| (?!-)[a-z:_ +]+(\s*\| (?:both|root|rootless)$)", r"| - none is known \1", line)
                                       for line in text.splitlines()), files, "are needed"),
    }
    failed = 0
    for what, (changed, changed_files, expected) in spoilt.items():
        faults = check(changed, changed_files, known)
        if not any(expected in fault for fault in faults):
            print(f"NOT FOUND: {what}: {faults[:3]}")
            failed += 1
    print(f"{len(spoilt) - failed} of {len(spoilt)} kinds of faults are found")
    return failed


def main():
    known = switches((ROOT / "src" / "base" / "switches.h").read_text())
    text, files = (HERE / "INDEX").read_text(), load_files()
    if "--format" in sys.argv:
        (HERE / "INDEX").write_text(align(text))
        return 0
    if "--self-test" in sys.argv:
        return 1 if self_test(text, files, known) else 0
    faults = check(text, files, known)
    rows, _ = parse(text)
    if "--table" in sys.argv:
        for mechanism, count in collections.Counter(row.mechanism for row in rows).most_common():
            controls = sum(has_control(row) for row in rows if row.mechanism == mechanism)
            print(f"{mechanism:20} {count:4} attempts {controls:4} controls")
    for fault in faults:
        print(fault)
    numbers = {re.match(r"\d+", row.id).group() for row in rows}
    print(f"{len(numbers)} rows, {len(rows)} attempts, {sum(map(has_control, rows))} with a positive control: "
          + ("in order" if not faults else f"{len(faults)} faults"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
