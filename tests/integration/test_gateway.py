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
        data = b""
        try:
            s.sendall(b"".join(requests)); s.shutdown(socket.SHUT_WR)
            while piece := s.recv(65536): data += piece
        except OSError as error: data += type(error).__name__.encode()
        return data
"""


class Lab(unittest.TestCase):
    """Names, servers and a policy's run, for the tests of this file and of others."""

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
        records = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
        result["audit"] = [record for record in records if "decision" in record]
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


class Stage(Lab):
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

    def test_what_a_name_led_to_is_known_for_as_long_as_the_answer_holds(self):
        self.addCleanup(setattr, self.names, "ttl", 0)
        script = 'print(*[tls("good.example.com", 443, "good.example.com") for _ in range(3)], tls("also.example.com", 443, "also.example.com"))'
        for caller in self.each_caller():
            for ttl, asked in ((0, ["good.example.com"] * 3 + ["also.example.com"]), (300, ["good.example.com", "also.example.com"])):
                self.names.ttl = ttl
                self.names.asked.clear()
                result = self.python(caller, "allow:good.example.com,also.example.com", script)
                self.assertEqual((result["stdout"].count("200"), self.names.asked), (4, asked), result)

    def test_a_host_that_has_moved_is_found_again(self):
        self.addCleanup(setattr, self.names, "ttl", 0)
        # At the first address nothing listens on that port.
        ZONE["moves.example.com"] = lambda times: [EVIL] if times == 1 else [GOOD]
        self.addCleanup(ZONE.pop, "moves.example.com")
        script = '''
print(tls("moves.example.com", 443, "moves.example.com"))
import socket
with socket.create_connection(("moves.example.com", 5432), 10) as s: print(s.recv(100))
'''
        for caller in self.each_caller():
            self.names.ttl = 300
            self.names.asked.clear()
            result = self.python(caller, "allow:moves.example.com,moves.example.com:5432", script)
            self.assertEqual(result["stdout"].splitlines(), ["HTTP/1.0 200 OK", "b'welcome\\n'"], result)
            self.assertEqual(self.names.asked, ["moves.example.com"] * 2)

    def test_the_numbers_of_its_queries_cannot_be_guessed(self):
        for caller in self.each_caller():
            self.names.numbers.clear()
            script = 'for _ in range(8): tls("good.example.com", 443, "good.example.com")'
            for _ in range(2):
                self.python(caller, "allow:good.example.com", script)
            self.assertEqual(len(self.names.numbers), 16)
            # Eight of two bytes each: neither twice the same row, nor mostly the same numbers.
            self.assertGreater(len(set(self.names.numbers)), 12, self.names.numbers)

    def test_what_is_allowed_and_not_there_is_told_apart_from_what_is_denied(self):
        script = """
print(tls("nobody.example.com", 443, "nobody.example.com")); print(tls("good.example.com", 444, "good.example.com"))
print(http("nobody.example.com", 80, b"GET / HTTP/1.1\\r\\nHost: nobody.example.com\\r\\n\\r\\n").split()[1])
"""
        for caller in self.each_caller():
            policy = self.policy(caller, "rules: [{hosts: ['*.example.com'], ports: [443, 444]}, {hosts: ['*.example.com'], tls: plaintext}]")
            result = self.python(caller, policy, script)
            *alerts, status = result["stdout"].splitlines()
            for line in alerts:
                self.assertIn("ALERT_INTERNAL_ERROR", line.upper(), result)
            self.assertEqual(status, "b'502'", result)
            self.assertEqual([r["reason"] for r in result["audit"]], ["unreachable"] * 3, result)

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
            # Not what a name leads to that another rule would have to allow.
            self.assertEqual(result["stdout"].splitlines(), ["b'welcome\\n'"] + ["ConnectionResetError"] * 3, result)

    def test_a_range_serves_no_other_rule_and_no_default(self):
        ask = """
ask = lambda line, host: f"{line} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode()
"""
        for caller in self.each_caller():
            lifted = f"{{cidrs: ['{RANGE}/32'], ports: [80], tls: plaintext, http: [{{methods: [GET], paths: ['/public/**']}}]}}"
            policy = self.policy(caller, f"rules: [{lifted}, {{hosts: ['*.example.com'], tls: plaintext}}]")
            result = self.python(caller, policy, ask + f"""
for name, line in (("{RANGE}", "GET /public/a"), ("{RANGE}", "POST /admin"), ("range.example.com", "POST /admin")):
    print(http(name, 80, ask(line, name)).split()[1].decode())
""")
            self.assertEqual(result["stdout"].split(), ["502", "403", "403"], result)
            result = self.python(caller, self.policy(caller, f"default: allow-public\nrules: [{lifted}]"), ask + f"""
print(http("{RANGE}", 80, ask("POST /admin", "{RANGE}")).split()[1].decode())
""")
            self.assertEqual(result["stdout"].split(), ["403"], result)

    def test_allow_public_lets_servers_speak_first_and_clients_wait(self):
        script = f"""
import socket, time
with socket.create_connection(("{GOOD}", 5432), 10) as s:
    print(s.recv(100)); time.sleep(0.6); s.sendall(b"later"); print(s.recv(100))
print(tls("{EVIL}", 443, None), tls("good.example.com", 443, "good.example.com"))
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow-public", script)
            self.assertEqual(result["stdout"].splitlines(), ["b'welcome\\n'", "b'later'", "HTTP/1.0 200 OK HTTP/1.0 200 OK"], result)

    def test_where_a_name_is_denied_nothing_without_a_name_passes(self):
        script = f"""
import socket, time
def late(address, name):
    with socket.create_connection((address, 443), 10) as s:
        time.sleep(0.45)
        context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
        try:
            with context.wrap_socket(s, server_hostname=name) as t: t.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n"); return t.recv(100)
        except Exception as error: return type(error).__name__
print(late("{EVIL}", "evil.example.org"), late("good.example.com", "evil.example.org"), tls("{EVIL}", 443, None))
print(http("{EVIL}", 80, b"\\r\\nGET / HTTP/1.1\\r\\nHost: evil.example.org\\r\\n\\r\\n"))
print(http("{EVIL}", 80, b"GET / HTTP/1.1\\r\\nHost: evil.example.org\\r\\n\\r\\n").split()[1])
print(http("{EVIL}", 80, b"GET / HTTP/1.1\\r\\nHost: {EVIL}\\r\\n\\r\\n").split()[1])
print(http("{EVIL}", 80, b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"))
print(tls("good.example.com", 443, "good.example.com"))
"""
        for caller in self.each_caller():
            policy = self.policy(caller, "default: allow-public\nrules: [{action: deny, hosts: ['**.example.org']}]")
            result = self.python(caller, policy, script)
            lines = result["stdout"].splitlines()
            self.assertNotIn("200", "".join(lines[:-1]), result)
            self.assertEqual(lines[2:4] + lines[-1:], ["b'403'", "b'403'", "HTTP/1.0 200 OK"], result)
            self.assert_untouched(EVIL)

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

    def test_a_body_is_bounded_also_towards_a_bare_address(self):
        script = f"""
body = b"".join(b"400\\r\\n" + b"a" * 1024 + b"\\r\\n" for _ in range(8)) + b"0\\r\\n\\r\\n"
head = lambda host: f"POST /x HTTP/1.1\\r\\nHost: {{host}}\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n".encode()
print(http("{GOOD}", 80, head("{GOOD}") + body).split()[1], http("{GOOD}", 80, head("good.example.com") + body).split()[1])
"""
        for caller in self.each_caller():
            policy = self.policy(caller, f"""
rules:
  - {{hosts: [good.example.com], tls: plaintext, http: [{{max_body: 1KiB}}]}}
  - {{cidrs: [{GOOD}/32], ports: [80], tls: plaintext, http: [{{max_body: 2KiB}}]}}
""")
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].split(), ["b'413'", "b'413'"], result)
            self.assertNotIn(b"a" * 4096, self.servers[GOOD, 80].received)

    # ---- records, limits, ends, leaks ----

    def test_what_is_open_when_the_program_ends_is_recorded(self):
        script = """
import os, socket
s = socket.create_connection(("good.example.com", 5432), 10); s.recv(8); s.sendall(b"x" * 500); s.recv(500); os._exit(0)
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow:good.example.com:5432", script)
            self.assertEqual([(r["decision"], r["bytes_up"]) for r in result["audit"]], [("allow", 500)], result)
            self.assertEqual((result["network"]["complete"], result["network"]["connections"]), (True, 1))

    def test_port_80_is_http_without_tls(self):
        for caller in self.each_caller():
            result = self.run_in(caller, "allow:good.example.com:80", "curl", "-sS", "http://good.example.com/debian/dists/stable/Release")
            self.assertEqual(result["stdout"], "GET /debian/dists/stable/Release None\n", result)
            self.assertEqual([(r["kind"], r["decision"], r["path"]) for r in result["audit"]], [("http", "allow", "/debian/dists/stable/Release")])

    def test_records_do_not_fill_the_disk(self):
        script = """
import socket
with socket.create_connection(("evil.example.org", 80), 10) as s:
    for _ in range(6000):
        s.sendall(b"GET / HTTP/1.1\\r\\nHost: evil.example.org\\r\\n\\r\\n")
        got = b""
        while not got.endswith(b"}\\n"): got += s.recv(65536)
"""
        for caller in self.each_caller():
            result = self.python(caller, "allow:good.example.com", script, options=("--timeout", "120s", "--cpu-time", "120s"))
            self.assertEqual(result["network"]["refused"], 6000)
            self.assertLess(len(result["audit"]), 5990)
            lost = [int(r["detail"].split()[0]) for r in result["audit"] if r["reason"] == "records"]
            self.assertEqual(len(result["audit"]) - len(lost) + sum(lost), 6000)

    def test_without_a_network_there_is_nothing_to_record(self):
        for caller in self.each_caller():
            done = caller.caisson("run", "--audit", str(pathlib.Path(caller.home) / "a"), "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("--audit: there is nothing to record without --net", done.err)
            done = caller.caisson("run", "--net", "allow:good.example.com", "--audit", "/dev/null", "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("--audit '/dev/null': allowed is a regular file", done.err)

    def test_a_gateway_that_cannot_start_lets_no_program_start(self):
        for caller in self.each_caller():
            programs = pathlib.Path(caller.home) / "programs"
            shutil.copytree(harness.build_dir(), programs, ignore=lambda _, names: [n for n in names if n not in harness.PROGRAMS])
            programs.chmod(0o755)
            (programs / "caisson-gateway").write_text("#!/bin/sh\nexit 1\n")
            done = subprocess.run([*caller._prefix, str(programs / "caisson"), "run", "--image", "host", "--rw", f"{caller.home}:/mnt/h",
                                   "--net", "allow:good.example.com", "--", "touch", "/mnt/h/made"],
                                  env=caller.env, cwd=caller.home, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 125, done)
            self.assertIn(b"network: ", done.stderr)
            self.assertFalse((pathlib.Path(caller.home) / "made").exists())
            self.assertEqual(caller.sandboxes_left(), [])

    def test_a_policy_may_be_as_large_as_it_may_be(self):
        for caller in self.each_caller():
            hosts = ", ".join(f"h{n}.example.com" for n in range(34))
            policy = self.policy(caller, "rules:\n" + "".join(f"  - {{hosts: [{hosts}]}}\n" for _ in range(512)))
            self.run_in(caller, policy, "true")

    def test_limits_of_connections_and_bytes_hold(self):
        script = """
import socket, time
held = []
for _ in range(4):
    try:
        s = socket.create_connection(("good.example.com", 5432), 10); held.append(s)
        print(s.recv(8))
    except OSError as error: print(type(error).__name__)
total = 0
try:
    held[0].sendall(b"x" * 100_000)
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
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), b"b'welcome\\n'\n")
            gateway = [pid for pid, _, _ in process_tree.descendants(process.pid)
                       if pathlib.Path(f"/proc/{pid}/comm").read_text() == "caisson-gateway\n"]
            self.assertEqual(len(gateway), 1)
            os.kill(gateway[0], signal.SIGKILL)
            out, err = process.communicate(b"\n", timeout=60)
            self.assertIn(out.splitlines()[0], (b"ConnectionResetError", b"b''"))
            self.assertEqual(out.splitlines()[1:], [b"closed", b"closed"])
            self.assertIn(b"the network gateway ended early", err)

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


def main(file, stage):
    """Runs the tests of a file's class Stage in namespaces of their own."""
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(stage):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl", "curl"))):
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl and curl", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(file, sys.argv[1:] or ["Stage"], stage))


if __name__ == "__main__":
    main(__file__, STAGE)
