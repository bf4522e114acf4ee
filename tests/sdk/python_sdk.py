#!/usr/bin/env python3
"""A smoke test of the published E2B SDK for Python against caisson-serve. By hand, not in CI.

    python_sdk.py [--version 2.51.0]… [--at URL]

Installs the SDK into an environment of its own below build/ (once for each version; without --version the
newest), starts a server with folders of its own and calls what the SDK has, in the form without TLS.
--at uses a server that runs already, with the key of E2B_API_KEY.
"""
import argparse
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "lib"))
INSIDE = "CAISSON_PYTHON_SDK_INSIDE"
TEMPLATE = "base"


def until(what, condition, seconds=15):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not after {seconds} s")
        time.sleep(0.05)
    return value


def refused(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} came")


# ---- the checks: each is given the SDK and a sandbox -------------------------------------------------


def commands(e2b, box):
    done = box.commands.run("echo out; echo err >&2")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "out\n", "err\n"), done
    seen = []
    box.commands.run("seq 3", on_stdout=seen.append)
    assert "".join(seen) == "1\n2\n3\n", seen
    assert box.commands.run("echo $A; pwd; id -un", envs={"A": "b"}, cwd="/tmp", user="root").stdout == "b\n/tmp\nroot\n"
    refused(e2b.CommandExitException, lambda: box.commands.run("exit 3"))
    refused(e2b.TimeoutException, lambda: box.commands.run("sleep 30", timeout=1))


def background(e2b, box):
    handle = box.commands.run("cat", background=True, stdin=True)
    assert handle.pid in [process.pid for process in box.commands.list()]
    joined = box.commands.connect(handle.pid)
    box.commands.send_stdin(handle.pid, "typed\n")
    box.commands.close_stdin(handle.pid)
    assert joined.wait().stdout == handle.wait().stdout == "typed\n"
    sleeping = box.commands.run("sleep 300", background=True)
    assert box.commands.kill(sleeping.pid) is True
    assert box.commands.kill(4_000_000) is False
    refused(e2b.CommandExitException, sleeping.wait)


def files(e2b, box):
    written = box.files.write("py/a.txt", "grüße")
    assert written.path == "/home/user/py/a.txt", written
    assert box.files.read("py/a.txt") == "grüße"
    data = os.urandom(1_000_000)
    box.files.write("py/b.bin", data)
    assert bytes(box.files.read("py/b.bin", format="bytes")) == data
    assert b"".join(box.files.read("py/b.bin", format="stream")) == data
    box.files.write_files([{"path": "py/c", "data": "c"}, {"path": "py/d", "data": b"d"}])
    assert [entry.name for entry in box.files.list("py")] == ["a.txt", "b.bin", "c", "d"]
    info = box.files.get_info("py/a.txt")
    assert (info.size, info.owner, info.permissions) == (len("grüße".encode()), "user", "-rw-r--r--"), info
    assert box.files.make_dir("py/new") is True and box.files.make_dir("py/new") is False
    assert box.files.rename("py/c", "py/new/c").path == "/home/user/py/new/c"
    box.files.remove("py/new")
    assert box.files.exists("py/new") is False
    refused(e2b.FileNotFoundException, lambda: box.files.read("not-here"))


def watch(e2b, box):
    box.files.make_dir("watched")
    handle = box.files.watch_dir("watched", recursive=True)
    box.files.write("watched/file", "text")
    seen = []
    until("the events", lambda: seen.extend(handle.get_new_events()) or {event.type.value for event in seen} >= {"create", "write"})
    assert {event.name for event in seen} == {"file"}, seen
    handle.stop()


def terminal(e2b, box):
    handle = box.pty.create(e2b.PtySize(rows=30, cols=100), timeout=30)
    box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    seen = []
    handle.wait(on_pty=seen.append)
    assert b"30 100" in b"".join(map(bytes, seen)), seen


def life(e2b, box):
    assert box.is_running() is True
    info = box.get_info()
    assert info.metadata == {"from": "python"} and info.state.value == "running", info
    box.set_timeout(600)
    left = (box.get_info().end_at - info.started_at).total_seconds()
    assert 590 < left < 700, left
    other = e2b.Sandbox.connect(box.sandbox_id)
    assert other.commands.run("echo here").stdout == "here\n"
    pages = e2b.Sandbox.list(query=e2b.SandboxQuery(metadata={"from": "python"}))
    assert box.sandbox_id in [item.sandbox_id for item in pages.next_items()]
    box.pause()
    assert box.get_info().state.value == "paused"
    box.connect()
    assert box.commands.run("echo again").stdout == "again\n"
    until("a sample", box.get_metrics, 30)


def end(e2b, box):
    assert box.kill() is True
    assert box.is_running() is False
    assert e2b.Sandbox.kill(box.sandbox_id) is False
    refused(e2b.NotFoundException, lambda: e2b.Sandbox.connect(box.sandbox_id))


def inside():
    """Runs in the environment that has the SDK."""
    import e2b

    failed = 0
    box = e2b.Sandbox.create(TEMPLATE, timeout=300, metadata={"from": "python"})
    for check in (commands, background, files, watch, terminal, life, end):
        try:
            check(e2b, box)
            print(f"  passed: {check.__name__}")
        except Exception as error:  # whatever the SDK raises is the finding
            failed += 1
            at = error.__traceback__
            while at.tb_next and at.tb_next.tb_frame.f_code.co_filename == __file__:
                at = at.tb_next
            print(f"  failed: {check.__name__}: {type(error).__name__}: {error} (line {at.tb_lineno})")
    if failed:
        box.kill()
    print(f"e2b {importlib.metadata.version('e2b')} for Python: {7 - failed} passed, {failed} failed")
    return 1 if failed else 0


# ---- outside ------------------------------------------------------------------------------------------


def environment_of(version):
    folder = ROOT / "build" / "python-sdk" / (version or "newest")
    program = folder / "bin" / "python3"
    if not (folder / "done").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"e2b=={version}" if version else "e2b"], check=True)
        (folder / "done").touch()
    return program


def run(version, variables):
    done = subprocess.run([environment_of(version), __file__], env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", INSIDE: "1", **variables}, timeout=600)
    return done.returncode == 0


def main():
    import serve_lab

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="append", help="of the SDK; may be given several times")
    parser.add_argument("--at", metavar="URL")
    options = parser.parse_args()
    versions = options.version or [None]
    if options.at:
        variables = serve_lab.client_environment("plain", os.environ.get("E2B_API_KEY", "e2b_" + "0" * 40), url=options.at)
        return 0 if all([run(version, variables) for version in versions]) else 1
    try:
        with serve_lab.fresh() as server:
            good = all([run(version, server.environment()) for version in versions])
            if not good:
                print(f"---- the end of the server's log ----\n{server.said()}")
    except serve_lab.ServerError as error:
        print(error)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(inside() if INSIDE in os.environ else main())
