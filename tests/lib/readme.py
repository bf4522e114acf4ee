"""The README's own commands, taken from it and run as they stand there.

`block` finds a code block by its heading; `run` has a shell run one, with `caisson` being the program under test.
What a reader has to fill in ("…", an address) is replaced by the test, and every replacement must have a place.
"""
import shlex
import subprocess

import harness


def blocks(heading, language="sh", document="README.md"):
    """The texts of the code blocks of that language between a heading ("## Limits") and the next one that is as high."""
    lines = iter((harness.ROOT / document).read_text().splitlines())
    if not any(line == heading for line in lines):
        raise AssertionError(f"{document} has no heading {heading!r}")
    found, inside = [], None
    level = heading.split(" ", 1)[0]
    for line in lines:
        if inside is None and line.startswith("#") and len(line.split(" ", 1)[0]) <= len(level):
            break
        if inside is None and line.startswith("```"):
            inside, kept = line[3:], []
        elif inside is not None and line == "```":
            if inside == language:
                found.append("\n".join(kept) + "\n")
            inside = None
        elif inside is not None:
            kept.append(line)
    return found


def block(heading, language="sh", document="README.md"):
    """The first of them."""
    found = blocks(heading, language, document)
    if not found:
        raise AssertionError(f"{document} has no {language} block below {heading!r}")
    return found[0]


def filled(script, replacements):
    """The script with each text replaced that a reader would; each must stand in it exactly once."""
    for text, value in replacements.items():
        if script.count(text) != 1:
            raise AssertionError(f"{text!r} stands {script.count(text)} times in {script!r}")
        script = script.replace(text, value)
    return script


def run(caller, script, folder, env=None, timeout=300, first=""):
    """Has bash run the script in a folder, up to the first command that fails. `first`: more of the shell's own before."""
    program = " ".join(map(shlex.quote, caller.command()))
    text = f'set -eu\ncaisson() {{ {program} "$@"; }}\n{first}\n{script}'
    return subprocess.run(["bash", "-c", text], cwd=folder, env={**caller.env, **(env or {})}, capture_output=True, text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL)
