"""What an attempt of host_files.py or host_life.py is made of: a Case with a planted host around it, the
words for its outcome, and the table that the decorator fills.

Each function makes one attempt and returns the word that INDEX declares, or raises Escaped. `case.off`
and `case.flags` are what a positive control changes.
"""
import os
import pathlib
import threading
import time

import suite
from suite import check_index, harness

ATTEMPTS = {}


class Escaped(Exception):
    """The attempt succeeded."""


class Untried(Exception):
    """This host lacks what the attempt is made of."""


def attempt(number):
    def register(function):
        ATTEMPTS[number] = function
        return function
    return register


class Case:
    """One attempt's surroundings: a planted host, its caller, a folder of its own."""

    def __init__(self, host, number, preset="release", off=(), flags=()):
        self.host, self.caller = host, host.caller
        self.preset, self.off, self.flags = preset, list(off), list(flags)
        self.folder = self.caller.mkdir(f"case-{number}-{preset}-{time.monotonic_ns()}")
        self.secret = self.host.canary / "secret"
        self.children = []

    def options(self):
        return {"preset": self.preset, "off": self.off}

    def caisson(self, *words, **options):
        return self.caller.caisson(*words, **{**self.options(), **options})

    def run(self, *words, **options):
        """caisson run --image host, without the suite's grants."""
        return self.caisson("run", "--image", "host", *words, **options)

    def shell(self, script, *words, **options):
        return self.run(*words, "--", "/bin/sh", "-c", script, **options)

    def detached(self, *words, script="sleep 60"):
        """The id of a sandbox that is left running."""
        done = self.run("-d", "--timeout", "60s", *words, "--", "/bin/sh", "-c", script)
        if done.returncode != 0:
            raise AssertionError(f"no sandbox to attack: {done}")
        return done.out.strip()

    def inside(self, name, script):
        return self.caisson("exec", name, "--", "/bin/sh", "-c", script)

    def end(self, name):
        """Ends it, and waits until it is gone, which caisson kill does not."""
        self.caisson("kill", name)
        folder = pathlib.Path(self.caller.env["CAISSON_RUN_DIR"]) / "sandboxes" / name
        if not harness.wait_until(lambda: not folder.exists(), 10):
            raise AssertionError(f"sandbox {name} is not gone 10 s after its kill")

    def leaks(self, *places):
        """Raises Escaped where the secret is below one of the places, or a link there leads out of it."""
        for place in map(pathlib.Path, places):
            for path in [place, *(sorted(place.rglob("*")) if place.is_dir() and not place.is_symlink() else [])]:
                if path.is_symlink():
                    target = pathlib.Path(os.path.realpath(path))
                    if place.is_dir() and not place.is_symlink() and not target.is_relative_to(place.resolve()):
                        raise Escaped(f"{path} leads to {target}")
                    if place == path and target == self.secret:
                        raise Escaped(f"{path} leads to the canary")
                elif path.is_file() and self.host.mark.encode() in path.read_bytes():
                    raise Escaped(f"the secret is in {path}")
        if self.secret.read_text() != self.host.secret:
            raise Escaped("the canary was overwritten")
        return "canary"

    def attack_image(self, archive, *ids):
        """Imports an archive and runs attempts of attack programs in it; each must be contained."""
        done = self.caisson("image", "import", "crafted", archive)
        if done.returncode != 0:
            return "canary"  # refused, which is as good
        programs, self.lines = {}, 0
        for row in check_index.load():
            if row.id in ids:
                programs.setdefault(row.file.removesuffix(".c"), []).append(row)
        for name, rows in programs.items():
            words = [*self.host.flags(), "--timeout", "60s"]
            words[1] = "crafted"
            done = self.caisson("run", *words, "--", f"/attacks/{name}", *(row.id for row in rows))
            if done.returncode == 125:
                continue  # no sandbox is made of such an image
            found = {number: suite.Outcome(word, rest) for word, number, rest in suite.LINE.findall(done.out)}
            self.lines += len(found)
            for row in rows:
                outcome = found.get(row.id, suite.Outcome("missing", str(done)))
                if outcome.word != "contained":
                    raise Escaped(f"{row.id}: {outcome.word} {outcome.detail}")
        return "canary"


class swapping:
    """Calls action(number) again and again, in a thread, until the end of the with block."""

    def __init__(self, action):
        self._action, self._on = action, True
        self._thread = threading.Thread(target=self._work)

    def _work(self):
        number = 0
        while self._on:
            self._action(number)
            number += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._on = False
        self._thread.join()
