#!/usr/bin/env python3
"""Proves the table of bugs.py: each test passes, and fails where the guards that it names are left out.

The programs are those of the switches preset, which alone can do without a guard. A test of one library is run twice;
one of the whole twice in each mode, in namespaces of its own (root alone). What fails otherwise than by a failed
assertion proves nothing, and neither does a guard whose absence breaks everything: lab.Control must pass without it.

    run_bugs.py [-v] [NUMBER…]
"""
import os
import re
import subprocess
import sys
import time
import traceback
import unittest

import bugs
import lab

harness = lab.harness
GUARDS = "CAISSON_GUARD_OFF"


def known_guards():
    text = (harness.ROOT / "src/base/guards.h").read_text()
    return re.findall(r'^    "(\w+)",$', text, re.MULTILINE)


def table_faults(entries):
    """What is wrong with the table itself."""
    known, used = set(known_guards()), set()
    for entry in entries:
        if bool(entry.proofs) == bool(entry.open):
            yield f"{entry.number}: an entry has either proofs or a reason why it is open"
        for proof in entry.proofs:
            used.update(proof.guards)
            if not proof.guards or not set(proof.guards) <= known:
                yield f"{entry.number}: {proof.test}: unknown guards {sorted(set(proof.guards) - known)}, or none"
    if len(entries) == len(bugs.BUGS + bugs.BESIDE):
        yield from (f"guard {name}: no entry proves it" for name in sorted(known - used))


def summary(text, mark):
    """What is told of a failed test: the line with the mark, and the end."""
    lines = text.splitlines()
    return "\n".join([next((line.strip() for line in lines if mark in line), ""), *lines[-40:]])


# ---- tests of one library

def unit_outcome(proof, without):
    program = harness.build_dir("switches") / "tests" / f"caisson_{proof.where}_test"
    done = subprocess.run([program, f"--gtest_filter={proof.test}"], env={**os.environ, GUARDS: without}, capture_output=True, text=True, errors="replace", timeout=120)
    if "[  SKIPPED ]" not in done.stdout:
        if done.returncode == 0 and "[  PASSED  ] 1 test." in done.stdout:
            return "passed", ""
        if done.returncode == 1 and "[  FAILED  ] 1 test" in done.stdout:
            return "failed", summary(done.stdout, ": Failure")
    return "broken", f"status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def prove_unit(proof):
    yield from judge("", unit_outcome(proof, ""), unit_outcome(proof, ",".join(proof.guards)))


def judge(mode, with_all, without):
    """Sentences of what is not as it must be."""
    if with_all[0] != "passed":
        yield f"{mode}with every guard: {with_all[0]}\n{with_all[1]}"
    if without[0] != "failed":
        yield f"{mode}without the guard: {without[0]}\n{without[1]}"
    elif "-v" in sys.argv:
        print(f"       {mode}{without[1].splitlines()[0][:200]}")


# ---- tests of the whole

class Wholes:
    """Runs cases of the test_*.py beside this; remembers what passed with every guard."""

    def __init__(self):
        import test_boundary
        import test_clients
        import test_requests
        self.classes = {cls.__name__: cls for module in (lab, test_boundary, test_clients, test_requests)
                        for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, lab.Lab)}
        self.passed = {}
        lab.Lab.preset = "switches"

    def outcome(self, name, kind, without=""):
        if (name, kind, without) in self.passed:
            return self.passed[name, kind, without]
        cls, method = name.split(".")
        lab.Lab.without, lab.Lab.kinds = without, (kind,)
        cls = self.classes[cls]
        cls.setUpClass()
        result = unittest.TestResult()
        cls(method).run(result)
        if result.errors or result.skipped:
            found = "broken", "".join(text for _, text in result.errors + result.skipped)[-3000:]
        elif result.failures:
            found = "failed", summary("".join(text for _, text in result.failures), "AssertionError")
        else:
            found = "passed", ""
        self.passed[name, kind, without] = found
        return found

    def prove(self, proof):
        without = ",".join(proof.guards)
        for kind in ("root", "user"):
            yield from judge(f"{kind}: ", self.outcome(proof.test, kind), self.outcome(proof.test, kind, without))
        if proof.control:
            found = self.outcome("Control.test_what_is_allowed_is_reached", "root", without)
            if found[0] != "passed":
                yield f"without the guard nothing works at all: {found[1]}"


def prove(entries, kind, how):
    """The number of proofs that fail; says which."""
    faults = 0
    for entry in entries:
        for proof in (p for p in entry.proofs if p.kind == kind):
            began = time.monotonic()
            try:
                found = list(how(proof))
            except Exception:  # noqa: BLE001
                found = [traceback.format_exc()]
            faults += bool(found)
            if found or "-v" in sys.argv:
                print(f"{entry.number:>4} {','.join(proof.guards)}: {proof.test}: {'NOT PROVED' if found else 'proved'}, {time.monotonic() - began:.1f} s", flush=True)
            for sentence in found:
                print("     " + sentence.replace("\n", "\n     "), flush=True)
    return faults


# ---- what ships

def shipped_faults():
    """No program of the release can be told to leave anything out; those of the test build can."""
    marks = (b"CAISSON_GUARD_OFF", b"CAISSON_OFF", b"CAISSON_FAULT", *(name.encode() for name in ("server_name_required", "secret_passthrough", "dns_closed")))
    for name in harness.PROGRAMS:
        data = (harness.build_dir() / name).read_bytes()
        yield from (f"{name} of the release has the words {mark.decode()}" for mark in marks if mark in data)
    data = (harness.build_dir("switches") / "caisson-gateway").read_bytes()
    yield from (f"caisson-gateway of the switches preset lacks {mark.decode()}: this test looks for nothing" for mark in marks
                if mark not in data and mark not in (b"CAISSON_OFF", b"CAISSON_FAULT"))


def main():
    harness.require_programs()
    harness.require_programs("switches")
    harness.subreaper()
    numbers = [word for word in sys.argv[1:] if not word.startswith("-")]
    entries = [entry for entry in bugs.BUGS + bugs.BESIDE if not numbers or entry.number in numbers]
    if os.environ.get(lab.STAGE):
        sys.exit(prove(entries, "whole", Wholes().prove) > 0)
    faults = [*table_faults(entries), *shipped_faults()]
    print("\n".join(faults), end="\n" if faults else "")
    units = prove(entries, "unit", prove_unit)
    if os.geteuid() != 0:
        print("left out: what needs the whole is proved as root alone", file=sys.stderr)
        sys.exit(bool(faults) or units > 0 or os.environ.get("CI") == "true")
    status = lab.internet_lab.enter(__file__, sys.argv[1:], lab.STAGE)
    count = sum(len(entry.proofs) for entry in entries)
    print(f"{count} proofs of {len(entries)} entries, {sum(entry.open is not None for entry in entries)} of which are open")
    sys.exit(bool(faults) or units > 0 or status != 0)


if __name__ == "__main__":
    main()
