#!/usr/bin/env python3
"""Runs in the machine, under systemd: the units of the package, and what happens to sandboxes when they are
restarted, reloaded, killed and stopped. The first thing that is not as it should be ends it, with its name."""
import base64
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time
import urllib.request

URL = "http://127.0.0.1:3000"
GROUPS = pathlib.Path("/sys/fs/cgroup/system.slice")
SANDBOXES = pathlib.Path("/run/caisson/serve/sandboxes")


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def wait_until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: did not come about within {seconds} s\n{run('systemctl', 'status', 'caisson*', check=False)}")
        time.sleep(0.1)


def expect(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: found {found!r}, wanted {wanted!r}")
    print(f"ok: {what}", flush=True)


def main_pid(unit="caisson.service"):
    return int(run("systemctl", "show", "--value", "-p", "MainPID", unit))


def state(unit):
    return run("systemctl", "is-active", unit, check=False)


def group_of(pid):
    return pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().removeprefix("0::")


def named(name):
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == name:
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def supervisors():
    """The children of launchers; a guest has their name too."""
    launchers = named("caisson-launche")
    parents = {pid: int(re.search(r"^PPid:\t(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
               for pid in named("caisson-superv")}
    return [pid for pid, parent in parents.items() if parent in launchers]


class Client:
    def __init__(self, key):
        self.key = key

    def ask(self, method, path, body=None, headers=()):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(URL + path, data, {"X-API-KEY": self.key, "Content-Type": "application/json", **dict(headers)},
                                         method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
            return json.loads(text) if text.startswith((b"{", b"[")) else text

    def listed(self):
        return [found["sandboxID"] for found in self.ask("GET", "/v2/sandboxes")]

    def output_of(self, sandbox, command, tag=None, until_end=True):
        message = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", command]}, **({"tag": tag} if tag else {})}).encode()
        headers = {"X-API-KEY": self.key, "E2b-Sandbox-Id": sandbox["sandboxID"], "X-Access-Token": sandbox["envdAccessToken"],
                   "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        request = urllib.request.Request(URL + "/process.Process/Start", b"\0" + struct.pack(">I", len(message)) + message, headers)
        output = b""
        with urllib.request.urlopen(request, timeout=120) as answer:
            while head := answer.read(5):
                flags, length = struct.unpack(">BI", head)
                event = json.loads(answer.read(length)).get("event", {})
                output += base64.b64decode(event.get("data", {}).get("stdout", ""))
                if flags & 2 or not until_end:
                    break
        return output.decode()


def main():
    wait_until(lambda: state("basic.target") == "active", "systemd is up")
    run("caisson", "image", "import", "base", "/opt/caisson/base.tar")
    run("systemctl", "start", "caisson.service")
    expect((state("caisson.service"), state("caisson-sandboxes.service")), ("active", "active"), "both units run")
    # From the program that was started as root to what it has become.
    server = main_pid()
    status = pathlib.Path(f"/proc/{server}/status").read_text()
    expect(re.search(r"^Uid:\t(.*)$", status, re.M)[1].split(), ["990"] * 4, "the server is the user caisson")
    expect(re.search(r"^CapBnd:\t(.*)$", status, re.M)[1], "0" * 16, "the server has no capability")
    expect(group_of(server), "/system.slice/caisson.service", "the server is in its own group")
    (maker,) = (pid for pid in named("caisson-maker") if pid != main_pid("caisson-sandboxes.service"))
    expect(group_of(maker), "/system.slice/caisson-sandboxes.service/main", "the maker is in the sandboxes' group")

    key = re.search(r"e2b_[0-9a-f]{40}", run("caisson", "key", "create"))[0]
    client = Client(key)
    sandbox = client.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 3600})
    name = sandbox["sandboxID"]
    expect(client.output_of(sandbox, "echo 42"), "42\n", "a sandbox runs a command")
    client.output_of(sandbox, "while sleep 0.2; do echo x >>/tmp/ticks; done", tag="ticks", until_end=False)
    (supervisor,) = supervisors()
    expect(group_of(supervisor), "/system.slice/caisson-sandboxes.service/main", "the supervisor is in the sandboxes' group")
    group = GROUPS / "caisson-sandboxes.service" / f"caisson-{name}"
    limit = (group / "memory.max").read_text()
    expect(limit.strip().isdigit(), True, "the sandbox's memory is limited below the delegated group")

    def ticks():
        return int(client.output_of(sandbox, "wc -c </tmp/ticks"))

    def goes_on(what):
        expect(client.listed(), [name], f"the sandbox is there after {what}")
        before = ticks()
        wait_until(lambda: ticks() > before, f"its command goes on after {what}")
        expect(supervisors(), [supervisor], f"with the same supervisor after {what}")

    run("systemctl", "restart", "caisson.service")
    expect(main_pid() != server, True, "another server after a restart")
    goes_on("a restart")
    run("systemctl", "reload", "caisson.service")
    goes_on("a reload")
    run("systemctl", "daemon-reload")
    expect((group / "memory.max").read_text(), limit, "the limit is as it was after daemon-reload")
    goes_on("daemon-reload")
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: main_pid() not in (0, before) and state("caisson.service") == "active", "systemd starts a killed server again")
    goes_on("a server's death")
    (maker,) = (pid for pid in named("caisson-maker") if pid != main_pid("caisson-sandboxes.service"))
    before = main_pid()
    os.kill(maker, signal.SIGKILL)
    wait_until(lambda: main_pid() not in (0, before) and state("caisson.service") == "active", "a server without a maker is started again")
    goes_on("a maker's death")
    run("systemctl", "stop", "caisson.service")
    expect((state("caisson.service"), state("caisson-sandboxes.service")), ("inactive", "active"), "the server stops alone")
    expect(supervisors(), [supervisor], "the sandbox goes on without a server")
    run("systemctl", "start", "caisson.service")
    goes_on("a stop and a start")
    another = client.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 3600})
    expect(client.output_of(another, "echo 43"), "43\n", "a sandbox is made after all that")

    began = time.monotonic()
    run("systemctl", "stop", "caisson-sandboxes.service")
    expect((state("caisson.service"), state("caisson-sandboxes.service")), ("inactive", "inactive"), "both units stop")
    expect((named("caisson-superv"), named("caisson-launche"), named("caisson-maker")), ([], [], []), "nothing runs any more")
    expect(os.listdir(SANDBOXES), [], "no sandbox is left")
    expect((GROUPS / "caisson-sandboxes.service").exists(), False, "no control group is left")
    print(f"stopped after {time.monotonic() - began:.1f} s")
    run("systemctl", "start", "caisson.service")
    expect(client.listed(), [], "a server starts again, without sandboxes")
    print(run("systemd-analyze", "security", "--no-pager", "caisson.service", check=False).splitlines()[-1:])
    print("all is well")


if __name__ == "__main__":
    main()
