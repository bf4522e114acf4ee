#!/usr/bin/env python3
"""The network of sandboxes that outlive whoever made them: their gateway is started when they first send something,
again when it has died, and goes by a policy that can be changed while they run. In the Internet of test_gateway.py.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

import frame  # noqa: F401  (its paths)

import harness
import process_tree
import test_gateway
from test_gateway import EVIL, GOOD, HTTP, TLS

STAGE = "CAISSON_GATEWAY_DETACHED_STAGE"


def gateways():
    """Those of this file's sandboxes: its processes adopt them all."""
    found = []
    for pid, _, _ in process_tree.descendants(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if pathlib.Path(f"/proc/{pid}/comm").read_text() == "caisson-gateway\n":
                found.append(pid)
    return found


class Stage(test_gateway.Lab):
    @contextlib.contextmanager
    def detached(self, caller, net, *options):
        made = caller.caisson("run", "-d", "--image", "host", "--net", net, *options, "--", "sleep", "300")
        self.assertEqual(made.returncode, 0, made)
        try:
            yield made.out.strip()
        finally:
            caller.caisson("kill", made.out.strip())

    def inside(self, caller, sandbox, expression):
        done = caller.caisson("exec", sandbox, "--", "python3", "-c", TLS + HTTP + f"print({expression})")
        self.assertEqual(done.returncode, 0, done)
        return done.out.strip()

    def apply(self, caller, sandbox, *policies):
        return caller.caisson("policy", "apply", sandbox, *policies)

    def test_a_detached_sandbox_reaches_what_its_policy_allows(self):
        for caller in self.each_caller():
            audit = pathlib.Path(caller.home) / "audit.jsonl"
            with self.detached(caller, "allow:good.example.com,good.example.com:80", "--audit", str(audit)) as sandbox:
                self.assertEqual(gateways(), [], "nothing has been sent yet")
                self.assertEqual(self.inside(caller, sandbox, 'tls("good.example.com", 443, "good.example.com")'), "HTTP/1.0 200 OK")
                self.assertIn("200 OK", self.inside(caller, sandbox, 'http("good.example.com", 80, b"GET / HTTP/1.0\\r\\nHost: good.example.com\\r\\n\\r\\n")'))
                self.assertIn("SSL", self.inside(caller, sandbox, 'tls("evil.example.org", 443, "evil.example.org")'))
                self.assert_untouched(EVIL)
                self.assertEqual(len(gateways()), 1)
            self.assertTrue(harness.wait_until(lambda: not gateways(), 10), gateways())
            done = caller.caisson("audit", "verify", str(audit))
            self.assertEqual(done.returncode, 0, done)
            records = [json.loads(line) for line in audit.read_text().splitlines()]
            self.assertEqual([r["kind"] for r in (records[0], records[-1])], ["begin", "end"])
            self.assertEqual([(r["sandbox"], r["decision"], r["host"]) for r in records if "decision" in r],
                             [(sandbox, "allow", "good.example.com")] * 2 + [(sandbox, "deny", "evil.example.org")])

    def test_names_alone_start_it(self):
        for caller in self.each_caller():
            with self.detached(caller, "allow:good.example.com") as sandbox:
                found = self.inside(caller, sandbox, 'socket.gethostbyname("good.example.com")')
                self.assertTrue(found.startswith("198.1"), found)
                self.assertEqual(self.names.asked, [])

    def test_a_policy_is_changed_while_it_runs(self):
        for caller in self.each_caller():
            with self.detached(caller, "allow:evil.example.org") as sandbox:
                ask = 'tls("good.example.com", 443, "good.example.com")'
                # Before its gateway runs, and while it does.
                done = self.apply(caller, sandbox, "deny")
                self.assertEqual((done.returncode, done.out, done.err), (0, "", ""))
                self.assertNotIn("200", self.inside(caller, sandbox, ask))
                self.assertEqual(self.apply(caller, sandbox, "allow:also.example.com", "allow:good.example.com").returncode, 0)
                self.assertEqual(self.inside(caller, sandbox, ask), "HTTP/1.0 200 OK")
                self.assertEqual(self.apply(caller, sandbox, "deny").returncode, 0)
                self.assertNotIn("200", self.inside(caller, sandbox, ask))
                self.assert_untouched(EVIL)

    def test_a_connection_that_is_denied_from_now_on_is_reset(self):
        script = ('import socket, sys\ns = socket.create_connection(("good.example.com", 5432)); print(s.recv(9), flush=True)\nsys.stdin.readline()\n'
                  'try: s.sendall(b"x"); print(s.recv(9))\nexcept OSError as error: print(type(error).__name__)\n')
        for caller in self.each_caller():
            with self.detached(caller, "allow:good.example.com:5432") as sandbox:
                with caller.popen("exec", "-i", sandbox, "--", "python3", "-c", script, stdin=-1, stdout=-1) as process:
                    self.assertEqual(process.stdout.readline(), b"b'welcome\\n'\n")
                    self.assertEqual(self.apply(caller, sandbox, "allow:also.example.com").returncode, 0)
                    self.assertEqual(process.communicate(b"\n", timeout=30)[0], b"ConnectionResetError\n")

    def test_a_dead_gateway_is_started_again_with_what_holds_now(self):
        ask = 'tls("good.example.com", 443, "good.example.com")'
        for caller in self.each_caller():
            audit = str(pathlib.Path(caller.home) / "audit.jsonl")
            with self.detached(caller, "allow:evil.example.org", "--audit", audit) as sandbox:
                self.assertEqual(self.apply(caller, sandbox, "allow:good.example.com").returncode, 0)
                self.assertEqual(self.inside(caller, sandbox, ask), "HTTP/1.0 200 OK")
                for _ in range(2):
                    before = gateways()
                    os.kill(before[0], signal.SIGKILL)
                    self.assertTrue(harness.wait_until(lambda: gateways() == [], 5))
                    self.assertTrue(harness.wait_until(lambda: self.inside(caller, sandbox, ask) == "HTTP/1.0 200 OK", 20))
                    self.assertNotEqual(gateways(), before)
                self.assert_untouched(EVIL)
                # The file has one writer, also between two gateways.
                done = caller.caisson("run", "--image", "host", "--net", "allow:good.example.com", "--audit", audit, "--", "true")
                self.assertEqual(done.returncode, 125)
                self.assertIn("another sandbox writes its records to this file", done.err)
            self.assertTrue(harness.wait_until(lambda: not gateways(), 10), gateways())
            # Each went on where the one before had got to; what the dead ones did last is not known.
            done = caller.caisson("audit", "verify", audit)
            self.assertEqual((done.returncode, "broken" in done.out, done.out.count("has no closing record")), (1, False, 2), done)

    def test_what_was_sealed_cannot_be_cut_off_between_two_gateways(self):
        ask = 'tls("good.example.com", 443, "good.example.com")'
        for caller in self.each_caller():
            audit = pathlib.Path(caller.home) / "audit.jsonl"
            with self.detached(caller, "allow:good.example.com", "--audit", str(audit)) as sandbox:
                self.assertEqual(self.inside(caller, sandbox, ask), "HTTP/1.0 200 OK")
                chain = json.loads(audit.read_text().splitlines()[0])["chain"]
                head = pathlib.Path(caller.env["CAISSON_STATE_DIR"], "audit", "heads", chain)
                # It comes by itself, once the records are on the disk.
                known = lambda: int.from_bytes(head.read_bytes()[:8], "big")  # noqa: E731
                self.assertTrue(harness.wait_until(lambda: known() >= 2, 10), head.read_bytes())
                self.assertEqual(json.loads(audit.read_text().splitlines()[known() - 1])["kind"], "seal")
                done = caller.caisson("audit", "verify", str(audit))
                self.assertEqual(done.returncode, 0, done)
                self.assertIn("a gateway is writing to the file", done.out)
                sealed = known()
                os.kill(gateways()[0], signal.SIGKILL)
                self.assertTrue(harness.wait_until(lambda: gateways() == [], 5))
                first = audit.read_bytes().splitlines(keepends=True)[0]
                os.truncate(audit, len(first))
                self.assertTrue(harness.wait_until(lambda: self.inside(caller, sandbox, ask) == "HTTP/1.0 200 OK", 20))
                self.assertTrue(harness.wait_until(lambda: known() > sealed + 1, 10), head.read_bytes())
            self.assertTrue(harness.wait_until(lambda: not gateways(), 10), gateways())
            done = caller.caisson("audit", "verify", str(audit))
            self.assertEqual((done.returncode, f"line 2: before this line records 2 to {sealed} are missing" in done.out), (3, True), done)

    def test_a_gateway_that_stands_still_holds_up_no_change(self):
        for caller in self.each_caller():
            with self.detached(caller, "allow:good.example.com") as sandbox:
                self.assertEqual(self.inside(caller, sandbox, 'tls("good.example.com", 443, "good.example.com")'), "HTTP/1.0 200 OK")
                os.kill(gateways()[0], signal.SIGSTOP)
                self.assertEqual(self.apply(caller, sandbox, "allow:evil.example.org").returncode, 0)
                ask = 'tls("evil.example.org", 443, "evil.example.org")'
                self.assertTrue(harness.wait_until(lambda: self.inside(caller, sandbox, ask) == "HTTP/1.0 200 OK", 20))
                self.assertNotIn("200", self.inside(caller, sandbox, 'tls("good.example.com", 443, "good.example.com")'))

    def test_a_connection_that_is_still_judged_is_judged_by_what_holds_then(self):
        script = ('import socket, sys\ns = socket.create_connection(("good.example.com", 5432)); s.sendall(b"G"); print("begun", flush=True)\n'
                  'sys.stdin.readline()\ntry: s.sendall(b"\\x01\\x02\\x03"); print(s.recv(8))\nexcept OSError as error: print(type(error).__name__)\n')
        for caller in self.each_caller():
            for then, end in (("deny", b"ConnectionResetError\n"), ("allow-public", b"b'welcome\\n'\n")):
                with self.detached(caller, "allow-public") as sandbox:
                    with caller.popen("exec", "-i", sandbox, "--", "python3", "-c", script, stdin=-1, stdout=-1) as process:
                        self.assertEqual(process.stdout.readline(), b"begun\n")
                        self.assertEqual(self.apply(caller, sandbox, then).returncode, 0)
                        self.assertEqual(process.communicate(b"\n", timeout=30)[0], end)

    def test_what_cannot_be_applied_is_said(self):
        for caller in self.each_caller():
            with self.detached(caller, "allow:good.example.com") as sandbox:
                for policies, words in ((("example",), "allow:HOST"), ((), "one POLICY or more"), (("./none.yaml",), "none.yaml"),
                                        (("deny", "allow:good.example.com"), "deny beside another")):
                    done = self.apply(caller, sandbox, *policies)
                    self.assertEqual(done.returncode, 125, done)
                    self.assertIn(words, done.err)
                long = "x" * 60
                document = self.policy(caller, "rules:\n" + "".join(
                    f"  - hosts: [{', '.join(f'h{host}.{rule}.{long}.example.com' for host in range(256))}]\n" for rule in range(8)))
                done = self.apply(caller, sandbox, document)
                self.assertEqual(done.returncode, 125, done)
                self.assertIn("at most 61440", done.err)
                self.assertEqual(self.inside(caller, sandbox, 'tls("good.example.com", 443, "good.example.com")'), "HTTP/1.0 200 OK")
            self.assertEqual(self.apply(caller, sandbox, "deny").returncode, 125)
            made = caller.caisson("run", "-d", "--image", "host", "--", "sleep", "100")
            done = self.apply(caller, made.out.strip(), "deny")
            self.assertEqual(done.returncode, 125, done)
            self.assertIn("made without a network", done.err)
            caller.caisson("kill", made.out.strip())

    def test_without_its_program_there_is_no_sandbox(self):
        for caller in self.each_caller():
            programs = pathlib.Path(caller.home) / "programs"
            shutil.copytree(harness.build_dir(), programs, ignore=lambda _, names: [n for n in names if n not in harness.PROGRAMS])
            programs.chmod(0o755)
            (programs / "caisson-gateway").unlink()
            done = subprocess.run([*caller._prefix, str(programs / "caisson"), "run", "-d", "--image", "host", "--net", "allow:good.example.com", "--", "true"],
                                  env=caller.env, cwd=caller.home, capture_output=True, timeout=60)
            if b"caisson-gateway" not in done.stderr:
                self.skipTest("a gateway is installed on this host")
            self.assertEqual(done.returncode, 125, done)
            self.assertEqual(caller.sandboxes_left(), [])


if __name__ == "__main__":
    test_gateway.main(__file__, STAGE)
