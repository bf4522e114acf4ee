#!/usr/bin/env python3
"""The style that a machine can check, one function a rule.

usage: lint.py ROOT

Reads the files that git tracks (or would: untracked files that are not ignored) and prints one line
a finding, `path:line: rule: what is wrong`. Ends with status 1 if there is any finding that is not a
warning. Every rule has a bad example in lint_test.py.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Iterator, NamedTuple

# From low to high. A folder of src/ includes only folders before it; guest and db stand on base alone.
LAYERS = ["base", "io", "http", "policy", "image", "wall", "launcher", "egress", "box", "maker", "build", "db", "vault", "fleet", "api", "cli"]
ALONE = {"guest": {"base", "guest"}, "db": {"base", "db"}}
# Whose programs have the guest built in.
HOLDS_GUEST = {"launcher", "box"}

LINES_WARN, LINES_FAIL = 600, 800
# Files that may be longer, each with its reason.
LONG_FILES: dict[str, str] = {}

# Where kernel headers may be included: the one header for C++, and C programs that stand alone
# (attack programs, which are built without our headers).
KERNEL_HEADER_PLACES = ("src/base/kernel_abi.h", "tests/")

# Headers that the build makes; they belong to no folder.
GENERATED = {"seccomp_tables.h"}

# Addresses that a file may hold: names reserved for examples, and the licence's own.
URL_HOSTS = {
    "example.com", "example.org", "localhost", "127.0.0.1", "[::1]", "10.200.0.1", "[fd00:5a::1]",
    "www.apache.org",  # the licence
    "json-schema.org",  # names the dialect in a schema
    "github.com",  # where faults of others are told (docs/egress-tests.md)
}

# Put together so that this file does not hold them.
MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
# The image's user, and made-up people of tests.
HOMES = ["user", "alice", "bob", "plain"]
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home/(?!(?:" + "|".join(HOMES) + r")\b)\w|wor" + r"k/(?:main|shared|\.)|User" + r"s/\w)[\w.-]*")
URL = re.compile(r"\b(?:https?|wss?|git|ftp)://([^\s/\"'<>()`\\,;]+)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')

BINARY_ENDS = (".png", ".zst", ".tar", ".gz", ".bin")
# Fuzz seeds are input, not text that we wrote for people.
UNREAD = ("fuzz/corpus/", "LICENSE")


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    text: str
    warning: bool = False

    def __str__(self) -> str:
        kind = "warning: " if self.warning else ""
        return f"{self.path}:{self.line}: {kind}{self.rule}: {self.text}"


class Source(NamedTuple):
    path: str  # relative to the root, with /
    text: str

    def lines(self) -> Iterator[tuple[int, str]]:
        return enumerate(self.text.splitlines(), 1)

    def is_cpp(self) -> bool:
        return self.path.endswith((".cpp", ".h"))

    def folder(self) -> str:
        """The layer of a file of src/: `base` of src/base/x/y.h; empty elsewhere."""
        parts = self.path.split("/")
        return parts[1] if len(parts) > 2 and parts[0] == "src" else ""

    def is_shell(self) -> bool:
        return self.path.endswith(".sh") or bool(re.match(r"#!\S*(/env )?\S*\b(ba)?sh\b", self.text))

    def is_python(self) -> bool:
        return self.path.endswith(".py") or bool(re.match(r"#!.*\bpython3\b", self.text))


# ---- rules over one file --------------------------------------------------------------------------


def check_layers(source: Source) -> Iterator[Finding]:
    folder = source.folder()
    if not folder or not source.is_cpp():
        return
    if folder in ALONE:
        allowed = ALONE[folder]
    elif folder in LAYERS:
        allowed = set(LAYERS[: LAYERS.index(folder) + 1]) | ({"guest"} if folder in HOLDS_GUEST else set())
    else:
        yield Finding(source.path, 1, "layers", f"src/{folder} has no place in the order of layers")
        return
    for number, line in source.lines():
        match = INCLUDE.match(line)
        if not match or match[1] != '"':
            continue
        target = match[2].split("/")[0]
        if match[2] in GENERATED:
            continue
        if "/" not in match[2]:
            yield Finding(source.path, number, "layers", f'include "{match[2]}" by its folder: "{folder}/…"')
        elif (target in LAYERS or target in ALONE) and target not in allowed:
            yield Finding(source.path, number, "layers", f"{folder} includes {target}, which is not below it")


def check_kernel_headers(source: Source) -> Iterator[Finding]:
    if not source.is_cpp() or source.path.startswith(KERNEL_HEADER_PLACES):
        return
    for number, line in source.lines():
        match = INCLUDE.match(line)
        if match and match[2].startswith(("linux/", "asm/", "asm-generic/")):
            yield Finding(source.path, number, "kernel-headers",
                          f"<{match[2]}> only through base/kernel_abi.h")


def check_length(source: Source) -> Iterator[Finding]:
    if not source.path.endswith((".cpp", ".h", ".c", ".py", ".sh")):
        return
    count = source.text.count("\n")
    if count <= LINES_WARN or source.path in LONG_FILES:
        return
    if count > LINES_FAIL:
        yield Finding(source.path, count, "length", f"{count} lines, {LINES_FAIL} at most")
    else:
        yield Finding(source.path, count, "length", f"{count} lines, better {LINES_WARN} at most", True)


def check_marks(source: Source) -> Iterator[Finding]:
    for number, line in source.lines():
        if match := MARKS.search(line):
            yield Finding(source.path, number, "marks", f"'{match[0]}': finish it, or say what is so")


def check_header_comment(source: Source) -> Iterator[Finding]:
    if not source.path.endswith(".h"):
        return
    if not source.text.startswith("// "):
        yield Finding(source.path, 1, "header-comment",
                      "a header opens with a paragraph: what it is, why, who owns what")
    if "#pragma once" not in source.text:
        yield Finding(source.path, 1, "header-comment", "no #pragma once")


def check_paths(source: Source) -> Iterator[Finding]:
    for number, line in source.lines():
        if match := MACHINE_PATH.search(line):
            yield Finding(source.path, number, "paths", f"'{match[0]}' is somebody's machine")


def check_urls(source: Source) -> Iterator[Finding]:
    for number, line in source.lines():
        for match in URL.finditer(line):
            authority = match[1].rsplit("@", 1)[-1]
            host = re.sub(r":\d+$", "", authority).lower()
            if "$" in host or "{" in host or "%" in host:
                continue  # put together when the program runs
            if authority.startswith(("HOST", "…")):
                continue  # the form of one
            names = host.split(".")
            if not any(".".join(names[start:]) in URL_HOSTS for start in range(len(names))):
                yield Finding(source.path, number, "urls", f"'{host}' is not in the list of tools/lint.py")


def check_whitespace(source: Source) -> Iterator[Finding]:
    if source.text and not source.text.endswith("\n"):
        yield Finding(source.path, 1, "whitespace", "no newline at the end of the file")
    for number, line in source.lines():
        if line != line.rstrip() and not source.path.endswith(".md"):
            yield Finding(source.path, number, "whitespace", "spaces at the end of the line")


# Comments and literals, which no rule about code looks into.
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
# What may stand before a statement: labels, else, do, and the rest of a for whose body it is.
BEFORE_STATEMENT = re.compile(r"(?:else\b|do\b|case\b(?:[^:]|::)*:(?!:)|default\s*:|[^()]*\))\s*")
CONTROL = re.compile(r"(?:if|while|for|switch)\s*(?:constexpr\s*)?\(")
# Before co_await in its statement: nothing, co_return, what is initialised or assigned, our macros, a
# range.
AWAIT_PLACES = re.compile(
    r"(?:|co_return|(?:[^()?]|\([^()]*\))*[^=!<>]=|CO_TRY\(|CO_TRY_ASSIGN\((?:[^()]|\([^()]*\))*,|for\s*\([^;]*[^:]:)")


def statement_before(text: str) -> str:
    """The beginning of a statement without the control structure that it is the body of."""
    while True:
        text = text.strip()
        if match := BEFORE_STATEMENT.match(text):
            text = text[match.end():]
            continue
        match = CONTROL.match(text)
        if not match:
            return text
        depth, place = 1, match.end()
        while place < len(text) and depth > 0:
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            place += 1
        if depth > 0:
            return text
        text = text[place:]


def check_coroutines(source: Source) -> Iterator[Finding]:
    """co_await only where every compiler that we mean to support gets it right (src/io/async.h)."""
    if not source.is_cpp() or "co_await" not in source.text:
        return
    code = NOT_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source.text)
    for match in re.finditer(r"\bco_await\b", code):
        start = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        before = re.sub(r"\s+", " ", statement_before(code[start:match.start()]))
        if not AWAIT_PLACES.fullmatch(before):
            yield Finding(source.path, code.count("\n", 0, match.start()) + 1, "coroutines",
                          "co_await is a whole initialiser, the right side of an assignment, a statement, or follows co_return")


def check_python(source: Source) -> Iterator[Finding]:
    if not source.is_python():
        return
    try:
        compile(source.text, source.path, "exec")
    except SyntaxError as error:
        yield Finding(source.path, error.lineno or 1, "python", str(error.msg))


FILE_RULES = [
    check_layers, check_kernel_headers, check_length, check_marks, check_header_comment, check_paths,
    check_urls, check_whitespace, check_coroutines, check_python,
]

# ---- rules that ask another program -----------------------------------------------------------------


def run_tool(command: list[str], root: str) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"lint: {command[0]} is not installed; ./dev lint installs it")


def located(output: str, rule: str) -> Iterator[Finding]:
    for match in re.finditer(r"^(.+?):(\d+):\d+: \w+: (.*)$", output, re.MULTILINE):
        yield Finding(match[1], int(match[2]), rule, match[3])


def check_format(root: str, paths: list[str]) -> list[Finding]:
    if not paths:
        return []
    done = run_tool(["clang-format-19", "--dry-run", "--Werror", *paths], root)
    found = {}
    for finding in located(done.stderr, "format"):
        found.setdefault(finding.path, finding._replace(text="clang-format-19 -i " + finding.path))
    if done.returncode != 0 and not found:
        return [Finding(paths[0], 1, "format", done.stderr.strip() or "clang-format-19 failed")]
    return list(found.values())


def check_shell(root: str, paths: list[str]) -> list[Finding]:
    if not paths:
        return []
    done = run_tool(["shellcheck", "--format=gcc", *paths], root)
    found = list(located(done.stdout, "shell"))
    if done.returncode != 0 and not found:
        return [Finding(paths[0], 1, "shell", done.stderr.strip() or "shellcheck failed")]
    return found


# ---- the whole tree -----------------------------------------------------------------------------


def tree_files(root: str) -> list[str]:
    """What git tracks or would; without git (an unpacked archive) every file but build/'s."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        names = [name for name in done.stdout.split("\0") if name]
    else:
        names = []
        for folder, folders, files in os.walk(root):
            left_out = {".git", "__pycache__"} | ({"build"} if folder == root else set())
            folders[:] = [name for name in folders if name not in left_out]
            names += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return sorted(set(names))


def read_sources(root: str) -> tuple[list[Source], list[Finding]]:
    sources, findings = [], []
    for path in tree_files(root):
        full = os.path.join(root, path)
        if path.startswith(UNREAD) or path.endswith(BINARY_ENDS) or os.path.islink(full):
            continue
        try:
            with open(full, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue  # tracked and just removed
        try:
            sources.append(Source(path, content.decode()))
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            findings.append(Finding(path, line, "encoding", "not UTF-8"))
    return sources, findings


def lint(root: str) -> list[Finding]:
    sources, findings = read_sources(root)
    if not sources:
        return [Finding(root, 1, "tree", "no source file here")]
    with ThreadPoolExecutor() as pool:
        # Slices, so that both cores format-check.
        cpp = [source.path for source in sources if source.path.endswith((".cpp", ".h", ".c"))]
        jobs = [pool.submit(check_format, root, cpp[start::4]) for start in range(4)]
        jobs.append(pool.submit(check_shell, root, [s.path for s in sources if s.is_shell()]))
        for source in sources:
            for rule in FILE_RULES:
                findings.extend(rule(source))
        for job in jobs:
            findings.extend(job.result())
    return sorted(findings)


def main() -> int:
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        print("usage: lint.py ROOT (a folder)", file=sys.stderr)
        return 2
    findings = lint(sys.argv[1])
    for finding in findings:
        print(finding)
    errors = sum(not finding.warning for finding in findings)
    print(f"lint: {errors} findings, {len(findings) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
