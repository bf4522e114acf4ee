#!/usr/bin/env python3
"""TLS that the gateway opens (`tls: inspect`): who is believed, which requests pass, and what is said of the rest.

Runs in namespaces of its own (root alone, tests/lib/internet_lab.py). This host's bundle of certificates has there
the lab's authority besides its own, as whom the gateway trusts. Programs inside verify: a client that passes has
found the sandbox's authority where it looks by itself. As root and as an ordinary user.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import unittest

import frame  # noqa: F401  (its paths)

import harness
import images
import internet_lab
from internet_lab import Server

STAGE = "CAISSON_GATEWAY_INSPECT_STAGE"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
GOOD, BAD, EVIL = "93.184.10.1", "93.184.10.2", "93.184.10.3"
ZONE = {"good.example.com": [GOOD], "also.example.com": [GOOD], "evil.example.org": [EVIL], "old.example.com": [GOOD],
        "expired.example.com": [BAD], "self.example.com": [BAD], "other.example.com": [BAD], "socket.example.com": [GOOD],
        "silent.example.com": [GOOD]}
READ_ONLY = """
rules:
  - {id: site, hosts: [good.example.com], http: [{methods: [GET], paths: ["/public/**"]}]}
"""
# A connection that verifies as a program does that was told nothing; what is asked is bytes.
PYTHON = """
import socket, ssl, sys
def tls(name, *requests, server=None, port=443, protocols=None, context=None):
    context = context or ssl.create_default_context()
    if protocols: context.set_alpn_protocols(protocols)
    try:
        with socket.create_connection((server or name, port), 10) as raw, context.wrap_socket(raw, server_hostname=name) as s:
            data = b""
            try:
                s.sendall(b"".join(requests)); s.settimeout(15)
                while piece := s.recv(65536): data += piece
            except OSError as error: data += type(error).__name__.encode()
            return data
    except Exception as error:
        return (type(error).__name__ + " " + str(error)).encode()
ask = lambda line, host, more="": f"{line} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}\\r\\n".encode()
last = "Connection: close\\r\\n"
states = lambda answer: [line.split()[1].decode() for line in answer.splitlines() if line.startswith(b"HTTP/1.1")]
"""


# Whether a program has its connection stay or not.
ONE_EACH = ("GET /public/x close\n", "GET /public/x None\n")


class WebSocketServer:
    """TLS; shakes hands for any request and says again, as bytes, what it hears."""

    def __init__(self, address, port, certificate):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.socket = socket.create_server((address, port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.socket.accept()[0],), daemon=True).start()

    def serve(self, raw):
        with contextlib.suppress(OSError), self.context.wrap_socket(raw, server_side=True) as stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += stream.recv(4096)
            stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            while data := stream.recv(65536):
                stream.sendall(data)

    def close(self):
        self.socket.close()


class Keeping:
    """Keeps connections and says in which one it was asked; after /extra it sends more than was asked for, and after /last
    it reads one request more and ends without an answer."""

    def __init__(self, address, port, certificate):
        self.asked, self.opened = [], 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.listener = context.wrap_socket(socket.create_server((address, port)), server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.opened += 1
                threading.Thread(target=self.serve, args=(connection, self.opened), daemon=True).start()

    def serve(self, connection, number):
        with contextlib.suppress(OSError), connection:
            connection.do_handshake()
            file, last = connection.makefile("rb"), False
            while line := file.readline():
                method, path, _ = line.split()
                length = 0
                while (header := file.readline().strip()):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                file.read(length)
                self.asked.append((number, path))
                if last:
                    return
                last = path == b"/last"
                body = str(number).encode()
                answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(answer + (b"" if method == b"HEAD" else body) + (b"HTTP/1.1 200 OK\r\n" if path == b"/extra" else b""))

    def forget(self):
        self.asked.clear()
        self.opened = 0

    def close(self):
        self.listener.close()


class Silent:
    """Takes connections and says nothing."""

    def __init__(self, address, port):
        self.socket = socket.create_server((address, port))

    def close(self):
        self.socket.close()


class Large(internet_lab.Handler):
    """8 MiB for a GET; the digest of what came for a POST."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(b"0123456789abcdef" * (1 << 19))

    def do_POST(self):
        digest = hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest()
        self.answer(digest.encode() + b"\n")


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(ZONE)
        cls.internet = internet_lab.Internet(GOOD, BAD, EVIL)
        cls.addClassCleanup(cls.internet.close)
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        folder = cls.folder.folder
        authority, cls.authority = internet_lab.certificate(folder, "lab authority")
        bundle = cls.folder.write("bundle.pem", pathlib.Path(BUNDLE).read_text() + cls.authority, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", BUNDLE], check=True)
        good, _ = internet_lab.certificate(folder, "good.example.com", "also.example.com", GOOD, signer=authority)
        evil, _ = internet_lab.certificate(folder, "evil.example.org", signer=authority)
        cls.servers = {
            "good": cls.internet.serve(Server, GOOD, 443, good),
            "plain": cls.internet.serve(Server, GOOD, 80),
            "evil": cls.internet.serve(Server, EVIL, 443, evil),
            "large": cls.internet.serve(Server, GOOD, 8443, good, handler=Large),
            "self": cls.internet.serve(Server, BAD, 443, internet_lab.certificate(folder, "self.example.com")[0]),
            "other": cls.internet.serve(Server, BAD, 444, good),
            "expired": cls.internet.serve(Server, BAD, 445, internet_lab.expired_certificate(folder, "expired.example.com", authority)),
        }
        named, _ = internet_lab.certificate(folder, "socket.example.com", signer=authority)
        cls.internet.serve(WebSocketServer, GOOD, 9443, named)
        cls.internet.serve(Silent, GOOD, 7443)
        cls.servers["keeping"] = cls.internet.serve(Keeping, GOOD, 8444, good)
        old, _ = internet_lab.certificate(folder, "old.example.com", signer=authority)
        cls.servers["old"] = cls.internet.serve(Server, GOOD, 6443, old, newest=ssl.TLSVersion.TLSv1_1)

    def each_caller(self):
        for kind in ("root", "user"):
            for server in self.servers.values():
                server.forget()
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                yield caller

    def run_in(self, caller, policy, *command, options=(), expect=0):
        """The result of a command under a policy, with its audit's records."""
        audit = pathlib.Path(caller.home) / "audit.jsonl"
        audit.unlink(missing_ok=True)
        net = str(caller.write("net.yaml", policy, 0o644))
        image = () if "--image" in options else ("--image", "host")
        done = caller.caisson("run", "--json", *image, "--audit", str(audit), "--net", net, *options, "--", *command)
        result = json.loads(done.out)
        self.assertEqual(done.returncode, expect, done)
        records = [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []
        result["audit"] = [r for r in records if r["kind"] not in ("begin", "end", "seal")]
        return result

    def python(self, caller, policy, script, **named):
        return self.run_in(caller, policy, "python3", "-c", PYTHON + script, **named)

    def asked(self, server):
        return [line.decode() for line in self.servers[server].received.splitlines() if line.endswith((b"HTTP/1.1", b"HTTP/1.0"))]

    def assert_untouched(self, *servers):
        for server in servers:
            self.assertEqual(self.servers[server].received, b"", server)

    # ---- requests ----

    def test_what_is_allowed_passes_and_the_rest_is_told_why(self):
        for caller in self.each_caller():
            result = self.run_in(caller, READ_ONLY, "sh", "-c", """
curl -sS https://good.example.com/public/a?q=secret
curl -sS -i --http1.1 https://good.example.com/secret
curl -sS -o /dev/null -w '%{http_code}\n' -X DELETE https://good.example.com/public/a
""")
            answer, refusal = result["stdout"].replace("\r", "").split("\n", 1)
            self.assertEqual(answer, "GET /public/a?q=secret close", result)
            self.assertIn("HTTP/1.1 403 Forbidden", refusal)
            self.assertIn("X-Sandbox-Egress: denied; reason=path", refusal)
            told = json.loads(refusal.split("\n\n")[1].splitlines()[0])
            self.assertEqual((told["host"], told["port"], told["path"], told["rule"]), ("good.example.com", 443, "/secret", "site"))
            self.assertTrue(refusal.endswith("403\n"), refusal)
            self.assertEqual(self.asked("good"), ["GET /public/a?q=secret HTTP/1.1"])
            self.assertEqual([(r["kind"], r["tls"], r["decision"], r["reason"], r["method"], r["path"], r["host"], r["port"]) for r in result["audit"]],
                             [("http", "inspect", "allow", "match", "GET", "/public/a", "good.example.com", 443),
                              ("http", "inspect", "deny", "path", "GET", "/secret", "good.example.com", 443),
                              ("http", "inspect", "deny", "method", "DELETE", "/public/a", "good.example.com", 443)])
            self.assertEqual(result["audit"][0]["upstream"], f"{GOOD}:443")
            self.assertNotIn("q=secret", json.dumps(result["audit"]))

    def test_a_request_for_another_host_is_none_of_this_connection(self):
        script = """
print(states(tls("good.example.com", ask("GET /public/a", "evil.example.org", last))))
print(states(tls("good.example.com", ask("GET /public/a", "good.example.com"), ask("GET /public/b", "also.example.com"),
                 ask("GET /public/c", "good.example.com", last))))
print(states(tls("good.example.com", ask("GET https://evil.example.org/public/a", "good.example.com", last))))
print(states(tls("good.example.com", ask("GET https://good.example.com/public/d", "good.example.com", last))))
print(states(tls("good.example.com", ask("GET http://good.example.com/public/e", "good.example.com", last))))
print(states(tls("good.example.com", ask("GET /public/f", "good.example.com:444", last))))
print(states(tls("good.example.com", ask("CONNECT evil.example.org:443", "good.example.com", last))))
print(tls("also.example.com", ask("GET /public/a", "also.example.com", last), server="good.example.com").split()[0])
"""
        for caller in self.each_caller():
            result = self.python(caller, """
rules:
  - {hosts: [good.example.com, also.example.com], http: [{methods: [GET], paths: ["/public/**"]}]}
""", script)
            self.assertEqual(result["stdout"].splitlines(),
                             ["['421']", "['200', '421', '200']", "['400']", "['200']", "['400']", "['421']", "['405']", "b'SSLError'"], result)
            self.assert_untouched("evil")
            self.assertEqual(self.asked("good"), [f"GET /public/{name} HTTP/1.1" for name in "acd"])
            self.assertEqual(result["audit"][-1]["reason"], "name_mismatch")

    def test_a_name_that_is_denied_and_bytes_that_are_no_http_go_nowhere(self):
        script = """
print(tls("evil.example.org", ask("GET /", "evil.example.org", last)).split()[0])
print(states(tls("good.example.com", b"\\x00\\x01garbage\\r\\n\\r\\n")))
print(states(tls("good.example.com", b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")))
print(states(tls("good.example.com", b"GET /public/a HTTP/1.1\\r\\nHost: good.example.com\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n")))
"""
        for caller in self.each_caller():
            result = self.python(caller, READ_ONLY, script)
            self.assertEqual(result["stdout"].splitlines()[0], "b'SSLError'", result)
            for line in result["stdout"].splitlines()[1:]:
                self.assertIn(line, ("['400']", "['505']"), result)
            self.assert_untouched("good", "evil")

    def test_connections_are_kept_and_judged_request_by_request(self):
        script = """
import http.client
c = http.client.HTTPSConnection("good.example.com", timeout=10)
socks = set()
for path in ("/public/1", "/secret", "/public/2"):
    c.request("GET", path); answer = c.getresponse(); answer.read(); socks.add(c.sock.getsockname()); print(answer.status)
print(len(socks))
"""
        for caller in self.each_caller():
            result = self.python(caller, READ_ONLY, script)
            self.assertEqual(result["stdout"].split(), ["200", "403", "200", "1"], result)

    def test_a_servers_connection_is_kept_for_the_next_request_of_the_same_one(self):
        script = """
import http.client, time
c = http.client.HTTPSConnection("good.example.com", 8444, timeout=10)
def ask(method, path, body=None):
    c.request(method, path, body); answer = c.getresponse(); return answer.status, answer.read().decode()
for method, path, body in (("GET", "/1", None), ("GET", "/2", None), ("POST", "/3", "x"), ("HEAD", "/4", None), ("GET", "/extra", None), ("GET", "/5", None),
                           ("GET", "/last", None), ("GET", "/6", None)):
    print(*ask(method, path, body))
other = http.client.HTTPSConnection("good.example.com", 8444, timeout=10)
other.request("GET", "/7"); print(other.getresponse().read().decode())
"""
        for caller in self.each_caller():
            result = self.python(caller, "rules: [{hosts: [good.example.com], ports: [8444], http: [{methods: [GET, HEAD, POST]}]}]", script)
            # One for what may be sent again, one for each body, a new one after what came unasked, and each connection of the
            # sandbox's has its own. What a server ends without an answer is asked again.
            self.assertEqual(result["stdout"].splitlines(), ["200 1", "200 1", "200 2", "200 ", "200 1", "200 3", "200 3", "200 4", "5"],
                             (result, self.servers["keeping"].asked))

    def test_large_bodies_go_both_ways_whole_and_up_to_their_bound(self):
        script = """
import hashlib, http.client
def request(method, body=None):
    c = http.client.HTTPSConnection("good.example.com", 8443, timeout=50)
    c.request(method, "/x", body); answer = c.getresponse()
    return answer.status, answer.read()
body = b"fedcba9876543210" * (1 << 19)
print(request("POST", body)[1].decode().strip() == hashlib.sha256(body).hexdigest())
print(hashlib.sha256(request("GET")[1]).hexdigest() == hashlib.sha256(b"0123456789abcdef" * (1 << 19)).hexdigest())
print(request("PUT", body)[0])
"""
        for caller in self.each_caller():
            result = self.python(caller, """
rules:
  - {hosts: [good.example.com], ports: [8443], http: [{methods: [GET, POST]}, {methods: [PUT], max_body: 1MiB}]}
""", script)
            self.assertEqual(result["stdout"].split(), ["True", "True", "413"], result)

    def test_a_websocket_passes_where_a_rule_says_so(self):
        script = """
def websocket():
    context = ssl.create_default_context()
    with socket.create_connection(("socket.example.com", 9443), 10) as raw, context.wrap_socket(raw, server_hostname="socket.example.com") as s:
        s.sendall(ask("GET /chat", "socket.example.com:9443", "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: x\\r\\n"))
        head = s.recv(4096)
        if b"101" not in head: return head.split()[1].decode()
        s.sendall(b"a" * 70000); got = b""
        while len(got) < 70000: got += s.recv(65536)
        return "echo" if got == b"a" * 70000 else "other"
print(websocket())
"""
        for caller in self.each_caller():
            for more, told in (("", "403"), (", websocket: allow", "echo")):
                result = self.python(caller, "rules: [{hosts: [socket.example.com], ports: [9443], tls: inspect%s}]" % more, script)
                self.assertEqual(result["stdout"].strip(), told, result)

    def test_an_address_is_inspected_under_its_own_name(self):
        script = f"""
print(states(tls("{GOOD}", ask("GET /public/a", "{GOOD}", last))), states(tls("{GOOD}", ask("GET /public/b", "good.example.com", last))))
context = ssl.create_default_context()
with socket.create_connection(("{GOOD}", 443), 10) as raw:
    try: context.wrap_socket(raw, server_hostname="good.example.com"); print("believed")
    except ssl.SSLError as error: print(error.reason)
"""
        for caller in self.each_caller():
            result = self.python(caller, f"rules: [{{hosts: [{GOOD}], http: [{{methods: [GET]}}]}}]", script)
            self.assertEqual(result["stdout"].splitlines(), ["['200'] ['421']", "CERTIFICATE_VERIFY_FAILED"], result)
            self.assertEqual(self.asked("good"), ["GET /public/a HTTP/1.1"])

    # ---- who answers ----

    def test_a_server_that_cannot_be_believed_is_sent_nothing(self):
        script = """
for name, port in (("self.example.com", 443), ("other.example.com", 444), ("expired.example.com", 445)):
    answer = tls(name, ask("GET /secret-path", f"{name}:{port}" if port != 443 else name, last), port=port)
    print(answer.split()[1].decode(), "upstream_certificate" in answer.decode())
"""
        for caller in self.each_caller():
            result = self.python(caller, """
rules: [{hosts: ["*.example.com"], ports: [443, 444, 445], tls: inspect}]
""", script)
            self.assertEqual(result["stdout"].splitlines(), ["502 True"] * 3, result)
            self.assert_untouched("self", "other", "expired")
            self.assertEqual([r["reason"] for r in result["audit"]], ["upstream_certificate"] * 3)
            for record, word in zip(result["audit"], ("self-signed", "ostname mismatch", "expired")):
                self.assertIn(word, record["detail"])
                self.assertEqual((record["decision"], record["tls"], record["status"]), ("deny", "inspect", 502))

    def test_a_server_that_speaks_no_tls_of_today_is_told_apart(self):
        script = """
for name, port in (("old.example.com", 6443), ("good.example.com", 80), ("good.example.com", 81)):
    print(*tls(name, ask("GET /x", f"{name}:{port}", last), port=port).split(b'"reason":')[1].split(b'"')[1:2])
"""
        for caller in self.each_caller():
            result = self.python(caller, """
rules: [{hosts: ["*.example.com"], ports: [6443, 80, 81], tls: inspect}]
""", script)
            self.assertEqual(result["stdout"].splitlines(), ["b'upstream_tls'", "b'upstream_tls'", "b'unreachable'"], result)
            self.assert_untouched("old")

    def test_a_name_that_leads_into_the_host_is_refused_inside_tls(self):
        script = 'print(states(tls("loop.example.com", ask("GET /", "loop.example.com", last))))'
        ZONE["loop.example.com"] = ["127.0.0.1"]
        for caller in self.each_caller():
            result = self.python(caller, "rules: [{hosts: [loop.example.com], tls: inspect}]", script)
            self.assertEqual(result["stdout"].strip(), "['403']", result)
            self.assertEqual(result["audit"][0]["reason"], "floor")

    # ---- the client ----

    def test_a_client_that_does_not_believe_it_leaves_a_clear_record(self):
        script = """
context = ssl.create_default_context(cafile="/mnt/other.pem")
print(tls("good.example.com", ask("GET /public/a", "good.example.com", last), context=context).decode())
"""
        for caller in self.each_caller():
            _, other = internet_lab.certificate(caller.folder, "another authority")
            path = caller.write("other.pem", other, 0o644)
            result = self.python(caller, READ_ONLY, script, options=("--ro", f"{path}:/mnt/other.pem"))
            self.assertIn("CERTIFICATE_VERIFY_FAILED", result["stdout"])
            self.assertEqual([(r["kind"], r["decision"], r["reason"], r["tls"], r["host"]) for r in result["audit"]],
                             [("tls", "deny", "authority_not_trusted", "inspect", "good.example.com")])
            self.assertIn("does not trust", result["audit"][0]["detail"])
            self.assert_untouched("good")

    def test_a_client_of_another_protocol_alone_is_refused_at_once(self):
        script = """
print(tls("good.example.com", protocols=["xyz/1"]).decode())
print(states(tls("good.example.com", ask("GET /public/a", "good.example.com", last), protocols=["xyz/1", "http/1.1"])))
"""
        for caller in self.each_caller():
            result = self.python(caller, READ_ONLY, script)
            self.assertIn("NO_APPLICATION_PROTOCOL", result["stdout"].upper().replace(" ", "_"), result)
            self.assertEqual(result["stdout"].splitlines()[-1], "['200']", result)
            self.assertEqual((result["audit"][0]["reason"], "xyz/1" in result["audit"][0]["detail"]), ("alpn", True))

    def test_old_versions_of_tls_are_refused(self):
        script = """
context = ssl.create_default_context(); context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
context.set_ciphers("DEFAULT:@SECLEVEL=0")
print(tls("good.example.com", context=context).split()[0].decode())
context = ssl.create_default_context(); context.maximum_version = ssl.TLSVersion.TLSv1_2
print(states(tls("good.example.com", ask("GET /public/a", "good.example.com", last), context=context)))
"""
        for caller in self.each_caller():
            result = self.python(caller, READ_ONLY, script)
            self.assertEqual(result["stdout"].splitlines(), ["SSLError", "['200']"], result)
            self.assertEqual(result["audit"][0]["reason"], "handshake", result)

    def test_programs_find_whom_to_trust_by_themselves(self):
        programs = {
            "curl": "curl -sS https://good.example.com/public/x",
            "curl without variables": "env -i /usr/bin/curl -sS https://good.example.com/public/x",
            "wget": "wget -qO- https://good.example.com/public/x",
            "python": "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://good.example.com/public/x\").read().decode(), end=\"\")'",
            "node": "node -e 'fetch(\"https://good.example.com/public/x\").then(a => a.text()).then(t => process.stdout.write(t))'",
        }
        for caller in self.each_caller():
            for name, program in programs.items():
                if not shutil.which(program.split()[0]) or os.path.realpath(shutil.which(program.split()[0])).startswith("/root"):
                    continue
                with self.subTest(program=name):
                    result = self.run_in(caller, READ_ONLY, "sh", "-c", program)
                    self.assertIn(result["stdout"], ONE_EACH, result)
            if shutil.which("java"):
                source = caller.write("Get.java", '''
class Get {
  public static void main(String[] a) throws Exception {
    System.out.print(new String(new java.net.URL(a[0]).openStream().readAllBytes()));
  }
}''', 0o644)
                for store in ("", "-Djavax.net.ssl.trustStore=/run/caisson/cacerts -Djavax.net.ssl.trustStorePassword=changeit"):
                    with self.subTest(program="java", store=store):
                        result = self.run_in(caller, READ_ONLY, "sh", "-c", f"java {store} /mnt/Get.java https://good.example.com/public/x",
                                             options=("--ro", f"{source}:/mnt/Get.java", "--memory", "1GiB"))
                        self.assertIn(result["stdout"], ONE_EACH, result)
            # Trust was added, and verifying not switched off.
            result = self.run_in(caller, "rules: [{hosts: [good.example.com], tls: inspect}, {hosts: [self.example.com]}]",
                                 "sh", "-c", "curl -sS https://self.example.com/; echo $?")
            self.assertEqual(result["stdout"], "60\n", result)

    def test_hosts_that_are_not_inspected_keep_their_own_certificate(self):
        for caller in self.each_caller():
            result = self.run_in(caller, """
rules:
  - {hosts: [good.example.com], http: [{methods: [GET]}]}
  - {hosts: ["**.example.com", evil.example.org]}
""", "sh", "-c", """
for name in good.example.com evil.example.org; do
  echo | openssl s_client -connect $name:443 -servername $name 2>/dev/null | grep -m1 issuer
done""")
            inspected, spliced = result["stdout"].splitlines()
            self.assertIn("Caisson sandbox", inspected)
            self.assertIn("lab authority", spliced)
            self.assertEqual({r["host"]: r.get("tls") for r in result["audit"]}.get("evil.example.org"), "splice")

    # ---- the authority ----

    def test_each_sandbox_has_an_authority_of_its_own_and_its_key_nowhere(self):
        for caller in self.each_caller():
            seen = set()
            for _ in range(2):
                result = self.run_in(caller, READ_ONLY, "sh", "-c", """
cmp /run/caisson/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt && tail -n 30 $SSL_CERT_FILE
grep -rl 'PRIVATE KEY' /run /etc 2>/dev/null; echo x > $SSL_CERT_FILE""", expect=2)
                self.assertIn("END CERTIFICATE", result["stdout"])
                self.assertNotIn("PRIVATE KEY", result["stdout"])
                seen.add(result["stdout"])
            self.assertEqual(len(seen), 2)
            left = subprocess.run(["grep", "-rl", "PRIVATE KEY", caller.home, caller.run, caller.folder / "state"], capture_output=True)
            self.assertEqual(left.stdout, b"")

    def test_an_images_own_authorities_stay_beside_the_sandboxs(self):
        deb, fedora, alpine = "etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/cert.pem"
        show = 'for f in /run/caisson/ca-certificates.crt %s; do echo "$f $(cat $f | cut -c1-27 | tr "\\n" "|" | cut -c1-44)"; done'
        cases = {
            "debian": ({deb: images.file("the image's roots\n"), alpine: images.link("certs/ca-certificates.crt")}, [deb, alpine], "the image's roots|"),
            "fedora": ({"etc/pki/extracted.pem": images.file("roots without an end"), fedora: images.link("/etc/pki/extracted.pem")}, [fedora],
                       "roots without an end|"),
            # Nothing that is a bundle: the host's stand in, and nothing of the image is touched.
            "none": ({}, [], "-----BEGIN CERTIFICATE-----|"),
            "odd": ({deb: images.directory(), alpine: images.link("/nowhere"), fedora: images.link("ca-bundle.crt"), "run": images.link("/var/run"),
                     "var/run": images.directory()}, [], "-----BEGIN CERTIFICATE-----|"),
        }
        for caller in self.each_caller():
            for name, (entries, paths, first) in cases.items():
                with self.subTest(image=name):
                    images.import_rootfs(caller, name, images.rootfs(caller.folder / f"{name}.tar", entries, (*images.TOOLS, "cut", "tr", "tail", "wc")))
                    result = self.run_in(caller, READ_ONLY, "sh", "-c", show % " ".join("/" + p for p in paths), options=("--image", name))
                    for path, line in zip(["run/caisson/ca-certificates.crt", *paths], result["stdout"].splitlines(), strict=True):
                        self.assertTrue(line.startswith(f"/{path} {first}"), (line, result))
                    result = self.run_in(caller, READ_ONLY, "sh", "-c", "tail -n 1 $SSL_CERT_FILE; echo x > $SSL_CERT_FILE", options=("--image", name), expect=1)
                    self.assertEqual(result["stdout"], "-----END CERTIFICATE-----\n", result)
                    # The image is what it was.
                    plain = self.run_in(caller, "rules: [{hosts: [good.example.com]}]", "sh", "-c", "ls /run; cat /etc/*/*.pem /etc/*/*/*.crt 2>&1; true",
                                        options=("--image", name))
                    self.assertNotIn("CERTIFICATE", plain["stdout"])
                    self.assertNotIn("caisson", plain["stdout"])

    def test_without_rules_that_inspect_nothing_is_delivered(self):
        for caller in self.each_caller():
            result = self.run_in(caller, "rules: [{hosts: [good.example.com]}]", "sh", "-c", "ls /run; env | grep -c CERT; cmp " + BUNDLE + " /mnt/b && echo same",
                                 options=("--ro", f"{BUNDLE}:/mnt/b"))
            self.assertEqual(result["stdout"].split(), ["0", "same"], result)

    def test_variables_of_the_users_own_stay(self):
        for caller in self.each_caller():
            result = self.run_in(caller, READ_ONLY, "sh", "-c", "echo $SSL_CERT_FILE $PIP_CERT", options=("-e", "SSL_CERT_FILE=/mine"))
            self.assertEqual(result["stdout"], "/mine /run/caisson/ca-certificates.crt\n", result)

    def test_a_host_that_trusts_nobody_lets_no_sandbox_start(self):
        subprocess.run(["mount", "--bind", "/dev/null", BUNDLE], check=True)
        try:
            for caller in self.each_caller():
                net = str(caller.write("net.yaml", READ_ONLY, 0o644))
                done = caller.caisson("run", "--image", "host", "--net", net, "--", "true")
                self.assertEqual(done.returncode, 125, done)
                self.assertIn("the certificates of " + BUNDLE, done.err)
                self.assertEqual(caller.sandboxes_left(), [])
        finally:
            subprocess.run(["umount", BUNDLE], check=True)


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl", "curl"))) or not os.path.exists(BUNDLE):
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl, curl and ca-certificates", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(__file__, sys.argv[1:] or ["Stage"], STAGE))
