#!/usr/bin/env python3
"""Run by mistake on a host, an attack program does nothing: each one is started here, outside of any
sandbox, without arguments and with, with a token in the environment and without; each must end with
status 99 and a sentence before it does anything.
"""
import re
import subprocess
import sys

import suite
from suite import check_index, harness

IDS = re.compile(check_index.DEFINES, re.M)


def main():
    folder, faults, count = harness.build_dir() / "escape", [], 0
    names = sorted(path.stem for path in (suite.HERE / "attacks").glob("attack_*.c")) + ["doors"]
    token = "0123456789abcdef0123456789abcdef"
    for name in names:
        source = suite.HERE / "attacks" / f"{name}.c"
        ids = IDS.findall(source.read_text()) if source.exists() else []
        for arguments in ([], ids[:1], ids):
            for environment in ({}, {"CAISSON_ATTACK_TOKEN": token}, {"CAISSON_ATTACK_TOKEN": ""}):
                done = subprocess.run([folder / name, *arguments], env=environment, capture_output=True, timeout=20)
                count += 1
                if done.returncode != 99 or done.stdout or b"starts nowhere else" not in done.stderr:
                    faults.append(f"{name} {' '.join(arguments)[:40]}: {done.returncode} {done.stdout!r} {done.stderr!r}")
    for fault in faults:
        print(fault)
    print(f"{len(names)} programs, {count} starts, {len(faults)} faults")
    return 1 if faults or not names else 0


if __name__ == "__main__":
    sys.exit(main())
