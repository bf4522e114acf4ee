#!/usr/bin/env python3
"""The egress gateway: what leaves a sandbox whose spec has a network, seen by who is there to receive it.

Runs in namespaces of its own (root alone, tests/lib/internet_lab.py) with an Internet of two hosts that
matter: one that policies allow, one that they do not. What is asserted are bytes: what the servers got,
what the resolver was asked, what the program inside was told. As root and as an ordinary user.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

import frame  # noqa: F401  (its paths)

import harness
import internet_lab
import process_tree
from internet_lab import Echo, Server

STAGE = "CAISSON_GATEWAY_STAGE"
GOOD, EVIL, RANGE = "93.184.10.1", "93.184.10.2", "10.9.9.9"
ZONE = {
    "good.example.com": [GOOD], "also.example.com": [GOOD], "evil.example.org": [EVIL], "private.example.com": ["10.1.2.3"],
    "loop.example.com": ["127.0.0.1"], "link.example.com": ["169.254.169.254"], "mixed.example.com": ["127.0.0.1", GOOD],
    "turns.example.com": lambda times: [GOOD] if times == 1 else ["127.0.0.1"], "own.example.com": [internet_lab.OWN],
    "range.example.com": [RANGE],
}
# TLS without a library in between: what a server that is named in the hello says, or how it ends.
TLS = """
import socket, ssl, sys
def tls(address, port, name, ask=b"GET /x HTTP/1.0\\r\\n\\r\\n"):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((address, port), 10) as raw, context.wrap_socket(raw, server_hostname=name) as s:
            s.sendall(ask)
            return s.recv(4096).split(b"\\r\\n")[0].decode()
    except Exception as error:
        return type(error).__name__ + " " + str(error)
"""
HTTP = """
import socket
def http(address, port, *requests):
    with socket.create_connection((address, port), 10) as s:
        s.sendall(b"".join(requests)); s.shutdown(socket.SHUT_WR)
        data = b""
        try:
            while piece := s.recv(65536): data += piece
        except OSError as error: data += type(error).__name__.encode()
        return data
"""


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(ZONE)
        cls.internet = internet_lab.Internet(GOOD, EVIL, RANGE)
        cls.addClassCleanup(cls.internet.close)
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        authority, cls.authority = internet_lab.certificate(cls.folder.folder, "lab authority")
        cls.servers = {}
        for address, names in ((GOOD, ["good.example.com", "also.example.com", GOOD]), (EVIL, ["evil.example.org", EVIL])):
            certificate, _ = internet_lab.certificate(cls.folder.folder, *names, signer=authority)
            cls.servers[address, 443] = cls.internet.serve(Server, address, 443, certificate)
            cls.servers[address, 80] = cls.internet.serve(Server, address, 80)
        cls.internet.serve(Echo, GOOD, 5432)
        cls.internet.serve(Echo, RANGE, 5432)

    def setUp(self):
        for server in self.servers.values():
            server.forget()
        self.names.asked.clear()

    def each_caller(self):
        for kind in ("root", "user"):
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                yield caller

    def run_in(self, caller, net, *command, options=(), expect=0):
        """The result of a command under a policy, with its audit's records."""
        audit = pathlib.Path(caller.home) / "audit.jsonl"
        audit.unlink(missing_ok=True)
        words = [word for policy in ([net] if isinstance(net, str) else net) for word in ("--net", policy)]
        done = caller.caisson("run", "--json", "--image", "host", "--audit", str(audit), *words, *options, "--", *command)
        result = json.loads(done.out)
        self.assertEqual(done.returncode, expect, done)
        result["audit"] = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
        return result

    def python(self, caller, net, script, **named):
        return self.run_in(caller, net, "python3", "-c", TLS + HTTP + script, **named)

    def received(self, address):
        return self.servers[address, 443].received + self.servers[address, 80].received

    def assert_untouched(self, address=EVIL):
        for port in (443, 80):
            self.assertEqual(self.servers[address, port].connections, 0)

    def policy(self, caller, text):
        return str(caller.write("net.yaml", text, 0o644))

    # ---- names and addresses ----

    def test_what_is_allowed_is_reached_by_its_certificate(self):
        for caller in self.each_caller():
            ca = caller.write("ca.pem", self.authority, 0o644)
            result = self.run_in(caller, "allow:good.example.com", "curl", "-sS", "--cacert", "/mnt/ca.pem",
                                 "https://good.example.com/path?q=secret", options=("--ro", f"{ca}:/mnt/ca.pem"))
            self.assertEqual(result["stdout"], "GET /path?q=secret None\n", result)
            self.assertEqual([(r["kind"], r["decision"], r["rule"], r["host"], r["port"], r["upstream"]) for r in result["audit"]],
                             [("tls", "allow", "rule-1", "good.example.com", 443, f"{GOOD}:443")])
            self.assertEqual(result["network"]["connections"], 1)
            self.assertEqual(result["network"]["refused"], 0)
            self.assertGreater(result["network"]["bytes_down"], 100)

    def test_what_is_not_allowed_is_refused_with_an_alert_and_nothing_leaves(self):
        for caller in self.each_caller():
            result = self.run_in(caller, "allow:good.example.com", "sh", "-c",
                                 "curl -sS https://evil.example.org/; echo $?; curl -sS https://also.example.com/; echo $?")
            self.assertEqual(result["stdout"].split(), ["35", "35"], result)
            self.assertIn("alert", result["stderr"])
            self.assertEqual([(r["target"], r["reason"]) for r in result["network"]["refusals"]],
                             [("evil.example.org:443", "no_rule"), ("also.example.com:443", "no_rule")])
            self.assert_untouched(EVIL)
            self.assert_untouched(GOOD)
            self.assertEqual(self.names.asked, [])

    def test_no_query_leaves_the_host(self):
        script = """
import socket, struct
def ask(name, kind, server="9.9.9.9", tcp=False):
    q = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0" + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + struct.pack(">BHH", 0, kind, 1)
    if tcp:
        with socket.create_connection((server, 53), 5) as s:
            s.sendall(struct.pack(">H", len(q)) + q)
            return s.recv(4096)[2:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5); s.connect((server, 53)); s.send(q)
        return s.recv(4096)
counts = lambda a: (a[3] & 15, struct.unpack(">H", a[6:8])[0])
for i in range(40): ask(f"label{i}.evil.example.org", 1)
print(*[counts(ask("evil.example.org", kind)) for kind in (1, 28, 16, 15, 65, 255)])
print(counts(ask("evil.example.org", 1, "8.8.8.8", tcp=True)), counts(ask("printer.local", 1)), counts(ask("plain", 1)))
print(*sorted(info[4][0].split(".")[0].rsplit(":", 1)[0] for info in socket.getaddrinfo("good.example.com", 443, type=socket.SOCK_STREAM)))
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow:good.example.com", script)
            self.assertEqual(result["stdout"].splitlines(), [
                "(0, 1) (0, 1) (0, 0) (0, 0) (0, 0) (0, 0)", "(0, 1) (3, 0) (3, 0)", "198 fd00:5a:d:"], result)
            self.assertEqual(self.names.asked, [])

    def test_a_server_name_must_be_the_one_that_was_asked_for(self):
        script = f"""
print(tls("good.example.com", 443, "evil.example.org"))
print(tls("good.example.com", 443, "also.example.com"))
print(tls("good.example.com", 443, None))
print(tls("{EVIL}", 443, "good.example.com"))
print(tls("{GOOD}", 443, None))
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow:good.example.com,also.example.com", script)
            lines = result["stdout"].splitlines()
            for line in (lines[0], lines[1], lines[2], lines[4]):
                self.assertIn("ALERT_ACCESS_DENIED", line.upper(), result)
            # To another address under an allowed name: what is dialed is what the name leads to here.
            self.assertEqual(lines[3], "HTTP/1.0 200 OK", result)
            self.assertEqual([r["reason"] for r in result["audit"] if r["decision"] == "deny"],
                             ["name_mismatch", "name_mismatch", "no_server_name", "no_rule"])
            self.assert_untouched(EVIL)

    def test_names_that_lead_to_the_host_or_its_networks_are_refused(self):
        names = ["private", "loop", "link", "own", "range"]
        for caller in self.each_caller():
            result = self.python(caller, "allow:*.example.com",
                                 "\n".join(f'print(tls("{name}.example.com", 443, "{name}.example.com"))' for name in names))
            for line in result["stdout"].splitlines():
                self.assertIn("ALERT_ACCESS_DENIED", line.upper(), result)
            self.assertEqual([(r["host"], r["reason"]) for r in result["audit"]],
                             [(f"{name}.example.com", "floor") for name in names])

    def test_of_several_addresses_only_the_internets_are_dialed_and_a_name_is_resolved_once(self):
        for caller in self.each_caller():
            result = self.python(caller, "allow:*.example.com", 'print(tls("mixed.example.com", 443, "mixed.example.com"))')
            self.assertEqual(result["stdout"], "HTTP/1.0 200 OK\n", result)
            self.names.asked.clear()
            result = self.python(caller, "allow:*.example.com", 'print(tls("turns.example.com", 443, "turns.example.com"))')
            self.assertEqual((result["stdout"], self.names.asked), ("HTTP/1.0 200 OK\n", ["turns.example.com"]), result)

    def test_a_range_lifts_the_floor_for_its_ports(self):
        script = f"""
import socket
for address, port in (("{RANGE}", 5432), ("{RANGE}", 5433), ("range.example.com", 5432), ("10.9.9.8", 5432)):
    try:
        with socket.create_connection((address, port), 10) as s: print(s.recv(100))
    except OSError as error: print(type(error).__name__)
"""
        for caller in self.each_caller():
            policy = self.policy(caller, f"rules: [{{cidrs: ['{RANGE}/32'], ports: [5432], proto: tcp}}]")
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines()[:2] + result["stdout"].splitlines()[3:],
                             ["b'welcome\\n'", "ConnectionResetError", "ConnectionResetError"], result)

    def test_a_tcp_rule_lets_bytes_of_any_kind_through(self):
        script = """
import socket
with socket.create_connection(("good.example.com", 5432), 10) as s:
    s.sendall(b"hello"); got = b""
    while len(got) < 13: got += s.recv(100)
    print(got)
try:
    with socket.create_connection(("good.example.com", 5433), 10) as s: print(s.recv(100))
except OSError as error: print(type(error).__name__)
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow:good.example.com:5432", script)
            self.assertEqual(result["stdout"].splitlines(), ["b'welcome\\nhello'", "ConnectionResetError"], result)

    def test_everything_else_is_refused_at_once(self):
        script = """
import errno, socket, time
began = time.monotonic()
for address in ("9.9.9.9", "2620:fe::fe", "10.200.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5); s.connect((address, 443)); s.send(b"quic")
        try: print(s.recv(10))
        except OSError as error: print(errno.errorcode[error.errno])
print(time.monotonic() - began < 2)
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow-public", script)
            *refused, fast = result["stdout"].split()
            self.assertTrue(set(refused) <= {"EHOSTUNREACH", "ECONNREFUSED", "EACCES", "ENETUNREACH"} and len(refused) == 3, result)
            self.assertEqual(fast, "True")

    # ---- HTTP ----

    def test_requests_without_tls_are_judged_one_by_one(self):
        script = """
ask = lambda line, host: f"{line} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode()
for requests in ([ask("GET /public/a", "good.example.com"), ask("GET /secret", "good.example.com"), ask("GET /public/b", "evil.example.org")],
                 [ask("DELETE /public/a", "good.example.com")],
                 [ask("GET /public/../secret", "good.example.com")],
                 [ask("GET /public/%2e%2e/secret", "good.example.com")],
                 [ask("GET /public/..;x/secret", "good.example.com")],
                 [ask("GET /%70ublic/c", "good.example.com")],
                 [ask("GET http://evil.example.org/public/a", "good.example.com")],
                 [ask("CONNECT evil.example.org:443", "good.example.com")],
                 [ask("TRACE /public/a", "good.example.com")],
                 [b"GET /public/d HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n"],
                 [b"GET /public/e HTTP/1.1\\r\\nHost: good.example.com\\r\\nHost: evil.example.org\\r\\n\\r\\n"]):
    answer = http("good.example.com", 80, *requests)
    print([line.split()[1].decode() for line in answer.splitlines() if line.startswith(b"HTTP/1.1")])
"""
        for caller in self.each_caller():
            policy = self.policy(caller, """
rules:
  - {id: site, hosts: [good.example.com], tls: plaintext, http: [{methods: [GET], paths: ["/public/**"]}]}
""")
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(), [
                "['200', '403', '421']", "['403']", "['403']", "['403']", "['400']", "['200']", "['400']", "['405']", "['405']",
                "['400']", "['400']"], result)
            self.assert_untouched(EVIL)
            asked = [line for line in self.servers[GOOD, 80].received.splitlines() if b"HTTP/1" in line]
            self.assertEqual(asked, [b"GET /public/a HTTP/1.1", b"GET /public/c HTTP/1.1"])
            self.servers[GOOD, 80].forget()

    def test_a_refusal_says_what_and_why(self):
        for caller in self.each_caller():
            result = self.run_in(caller, "allow:good.example.com:80", "curl", "-sSi", "http://evil.example.org/x?y=z")
            head, body = result["stdout"].replace("\r", "").split("\n\n", 1)
            self.assertIn("X-Sandbox-Egress: denied; reason=no_rule", head)
            told = json.loads(body)
            self.assertEqual({k: told[k] for k in ("error", "host", "port", "method", "path", "rule", "reason")},
                             {"error": "egress_denied", "host": "evil.example.org", "port": 80, "method": "GET", "path": "/x",
                              "rule": None, "reason": "no_rule"})
            self.assertNotIn("y=z", json.dumps(result["audit"]))

    def test_bodies_go_through_whole_up_to_their_bound(self):
        script = """
import subprocess
def post(size, *more):
    done = subprocess.run(["curl", "-s", "-w", " %{http_code}", "-H", "Expect:", *more, "--data-binary", "@-", "http://good.example.com/"],
                          input=b"a" * size + b"z", capture_output=True)
    return done.stdout.decode().split()[-1]
print(post(99), post(2_000_000), post(99, "-H", "Transfer-Encoding: chunked"), post(2_000_000, "-H", "Transfer-Encoding: chunked"))
"""
        for caller in self.each_caller():
            policy = self.policy(caller, """
rules: [{hosts: [good.example.com], tls: plaintext, http: [{methods: [POST], max_body: 1MiB}]}]
""")
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].split(), ["200", "413", "200", "413"], result)
            # What was too long never was a whole request.
            self.assertNotIn(b"a" * 1_500_000, self.servers[GOOD, 80].received)

    # ---- limits, ends, leaks ----

    def test_limits_of_connections_and_bytes_hold(self):
        script = """
import socket, time
held = []
for _ in range(4):
    try:
        s = socket.create_connection(("good.example.com", 5432), 10); held.append(s)
        print(s.recv(8))
    except OSError as error: print(type(error).__name__)
held[0].sendall(b"x" * 100_000); total = 0
try:
    while total < 100_000 and (piece := held[0].recv(65536)): total += len(piece)
except OSError: pass
print(total < 100_000)
"""
        for caller in self.each_caller():
            policy = self.policy(caller, """
limits: {connections: 3, bytes_up: 50KiB}
rules: [{hosts: [good.example.com], ports: [5432], proto: tcp}]
""")
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(), ["b'welcome\\n'"] * 3 + ["ConnectionResetError", "True"], result)

    def test_the_gateways_death_is_a_reset_and_never_open(self):
        script = """
import socket, sys, time
s = socket.create_connection(("good.example.com", 5432), 10); print(s.recv(8), flush=True)
sys.stdin.readline()
try: print(s.recv(8))
except OSError as error: print(type(error).__name__)
for address in ("good.example.com", "93.184.10.1"):
    try: socket.create_connection((address, 5432), 5); print("open")
    except OSError as error: print("closed")
"""
        for caller in self.each_caller():
            process = caller.popen("run", "--image", "host", "--interactive", "--net", "allow:good.example.com:5432", "--", "python3", "-c", script,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"b'welcome\\n'\n")
            gateway = [pid for pid, _, _ in process_tree.descendants(process.pid)
                       if pathlib.Path(f"/proc/{pid}/comm").read_text() == "caisson-gateway\n"]
            self.assertEqual(len(gateway), 1)
            os.kill(gateway[0], signal.SIGKILL)
            out, _ = process.communicate(b"\n", timeout=60)
            self.assertIn(out.splitlines()[0], (b"ConnectionResetError", b"b''"))
            self.assertEqual(out.splitlines()[1:], [b"closed", b"closed"])

    def test_nothing_is_left_of_many(self):
        def left():
            links = subprocess.run(["ip", "-o", "link"], capture_output=True, check=True).stdout.count(b"\n")
            return links, len(harness.living_children(0))

        for caller in self.each_caller():
            before = left()
            for _ in range(10):
                self.run_in(caller, "allow:good.example.com", "true")
            self.assertTrue(harness.wait_until(lambda: left() == before, 5), (before, left()))
            self.assertEqual(caller.sandboxes_left(), [])


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl", "curl"))):
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl and curl", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(__file__, sys.argv[1:] or ["Stage"], STAGE))
