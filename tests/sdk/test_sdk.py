#!/usr/bin/env python3
"""The published E2B SDK, in several versions, against caisson-serve: every call that it has for us.

    test_sdk.py [--sdk ALIAS]… [--file NAME]… [--only PATTERN] [--form plain|domain] [--at URL]

Starts a server with folders of its own, imports the base image as the template `base`, installs the SDKs
(package.json; fetched once) and runs the Node.js tests of this folder once for each version. --at uses a
server that runs already, with the key of E2B_API_KEY.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import node  # noqa: E402
import serve_lab  # noqa: E402

ONE_TEST_MS = 300_000  # a file counts as one too, and each build of a template unpacks its image
ALL_SECONDS = 900
SKIPPED = 77  # what CTest takes for "not run here"


def aliases():
    return list(json.loads((HERE / "package.json").read_text())["dependencies"])


def environment(form, server):
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **server.environment(form)}


class Elsewhere:
    """A server that somebody else started."""

    def __init__(self, url):
        self.url, self.key = url, os.environ.get("E2B_API_KEY", "e2b_" + "0" * 40)

    def environment(self, form):
        return serve_lab.client_environment(form, self.key, url=self.url)

    def said(self):
        return ""


def run_version(folder, program, alias, options, server):
    """The results of one version: [{file, name, result, ms, reason}]."""
    files = [f"{name}.test.mjs" for name in options.file] or sorted(path.name for path in HERE.glob("*.test.mjs"))
    words = [program, "--test", f"--test-reporter={folder / 'reporter.mjs'}", f"--test-timeout={ONE_TEST_MS}", "--test-concurrency=2"]
    if options.only:
        words.append(f"--test-name-pattern={options.only}")
    done = subprocess.run([*words, *files], cwd=folder, env={**environment(options.form, server), "CAISSON_SDK": alias},
                          capture_output=True, text=True, timeout=ALL_SECONDS)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not results:
        results = [{"file": "", "name": "node --test", "result": "failed", "ms": 0, "reason": f"no test ran:\n{done.stdout}{done.stderr}"[-2000:]}]
    return results


def report(alias, results, seconds):
    """Prints the failures of one version and its counts; True where there is no failure."""
    counts = {kind: sum(result["result"] == kind for result in results) for kind in ("passed", "failed", "skipped")}
    for result in results:
        if result["result"] != "passed":
            print(f"  {result['result']}: {result['file']}: {result['name']} ({result['ms']} ms)")
            for line in str(result.get("reason", "")).splitlines()[:12]:
                print(f"      {line}")
    print(f"{alias}: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped, {seconds:.0f} s", flush=True)
    return counts["failed"] == 0


def run_all(options, server):
    program = node.node()
    folder = node.packages(HERE)
    good = True
    for alias in options.sdk or aliases():
        began = time.monotonic()
        results = run_version(folder, program, alias, options, server)
        good = report(alias, results, time.monotonic() - began) and good
    if not good and server.said():
        print(f"---- the end of the server's log ----\n{server.said()}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sdk", action="append", choices=aliases(), help="only this version (may be given several times)")
    parser.add_argument("--file", action="append", default=[], help="only this file, such as commands")
    parser.add_argument("--only", help="only tests whose name matches this pattern")
    parser.add_argument("--form", choices=("plain", "domain"), default="plain")
    parser.add_argument("--at", metavar="URL")
    options = parser.parse_args()
    if options.at:
        return 0 if run_all(options, Elsewhere(options.at)) else 1
    if os.geteuid() != 0:
        print("not run: the base image's users need root, or a range of ids")
        return SKIPPED
    with serve_lab.fresh(tls=options.form == "domain") as server:
        return 0 if run_all(options, server) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (node.NodeError, serve_lab.ServerError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
