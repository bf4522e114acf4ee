"""The Internet around a gateway, for the cases of this folder: who is there, what each was sent, and a policy's run.

`Lab` is the base of every class of cases. Its world is made once a process, in namespaces of its own
(tests/lib/internet_lab.py): an allowed host and one that is not, servers that keep every byte, a resolver that keeps
every query, and listeners of the host itself. A case runs in each mode (`kinds`), against the build and without the
guards that `preset` and `without` name: run_bugs.py sets them, to see a case fail where its guard is left out.
"""
import atexit
import contextlib
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]
import harness  # noqa: E402
import internet_lab  # noqa: E402

STAGE = "CAISSON_EGRESS_STAGE"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
GOOD, EVIL, OWN, METADATA = "93.184.10.1", "93.184.10.2", "93.184.10.9", "169.254.169.254"
SEEN_INSIDE = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/usr/local/go/bin"
VALUE = "ghp_canaryCANARYcanaryCANARY0123456789"
ZONE = {
    "good.example.com": [GOOD], "also.example.com": [GOOD], "api.example.com": [GOOD], "evil.example.org": [EVIL], "own.example.net": [OWN],
    "private.example.com": [internet_lab.OWN], "metadata.example.com": [METADATA], "metadata.goog": [METADATA],
    "metadata.google.internal": [METADATA],
    "turns.example.com": lambda times: [GOOD] if times == 1 else [internet_lab.OWN], "self.example.com": [EVIL],
    "half.example.com": [EVIL],
    "_db._tcp.example.com": [(10, 5, 8080, "good.example.com"), (20, 5, 8080, "evil.example.org")],
}


class Names(internet_lab.Names):
    """Keeps every query as it came, of whatever kind."""

    def __init__(self, zone):
        self.queries = []
        super().__init__(zone)

    def receive(self):
        query, peer = super().receive()
        self.queries.append(query)
        return query, peer

    def forget(self):
        self.queries.clear()
        self.asked.clear()


class Raw:
    """TCP that keeps every byte of each connection and answers the first ones with `answer`."""

    def __init__(self, address, port, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"):
        self.answer, self.seen = answer, []
        self.socket = socket.create_server((address, port))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.socket.accept()[0],), daemon=True).start()

    def serve(self, connection):
        kept = bytearray()
        self.seen.append(kept)
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                first = not kept
                kept += data
                if first:
                    connection.sendall(self.answer)

    @property
    def received(self):
        return b"".join(map(bytes, self.seen))

    @property
    def connections(self):
        return len(self.seen)

    def forget(self):
        self.seen.clear()

    def close(self):
        self.socket.close()


class Echo(internet_lab.Handler):
    """Says what it was sent in the form that the path asks for, and where to go next. `files`: what else is there."""

    protocol_version = "HTTP/1.1"
    files = {}

    def do_GET(self):
        sent = (self.headers.get("Authorization") or self.headers.get("X-Api-Key") or "").rpartition(" ")[2]
        path = self.path.split("?")[0]
        if path in self.files:
            self.answer(self.files[path])
            return
        if path in ("/204", "/304"):
            self.send_response(int(path[1:]))
            self.end_headers()
            return
        if path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: z\r\n\r\n")
            return
        if path == "/elsewhere":
            self.send_response(200)
            self.send_header("Alt-Svc", 'h3="evil.example.org:443"; ma=86400')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path == "/redirect":
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2] or "https://evil.example.org/after")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path == "/error":
            self.answer(f"the token {sent} is not valid\n".encode())
        elif path == "/hex":
            self.answer(sent.encode().hex().encode())
        else:
            self.answer(f"{self.command} {self.path}\n".encode())

    do_DELETE = do_PATCH = do_GET

    def do_HEAD(self):
        self.answer(b"")

    def end_headers(self):
        self.send_header("Content-Type", "text/html")
        super().end_headers()


class World:
    """Made once; closed at the process's end."""

    def __init__(self):
        self.stack = contextlib.ExitStack()
        atexit.register(self.stack.close)
        subprocess.run(["ip", "addr", "add", f"{OWN}/32", "dev", "lo"], check=True)
        self.names = Names(ZONE)
        self.internet = internet_lab.Internet(GOOD, EVIL, METADATA)
        self.stack.callback(self.internet.close)
        self.callers = {}
        self.folder = self.caller("root")
        authority, self.authority = internet_lab.certificate(self.folder.folder, "lab authority")
        # Whom the gateway and the host's own image trust.
        bundle = self.folder.write("bundle.pem", pathlib.Path(BUNDLE).read_text() + self.authority, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        self.stack.callback(subprocess.run, ["umount", BUNDLE], check=True)
        make = lambda *names, **more: internet_lab.certificate(self.folder.folder, *names, **more)[0]  # noqa: E731
        good = make("good.example.com", "also.example.com", "api.example.com", GOOD, signer=authority)
        evil = make("evil.example.org", EVIL, signer=authority)
        serve = self.internet.serve
        self.servers = {
            "good": serve(internet_lab.Server, GOOD, 443, good, handler=Echo), "plain": serve(internet_lab.Server, GOOD, 80, handler=Echo),
            "evil": serve(internet_lab.Server, EVIL, 443, evil, handler=Echo), "evil plain": serve(internet_lab.Server, EVIL, 80, handler=Echo),
            "self": serve(internet_lab.Server, EVIL, 444, make("self.example.com"), handler=Echo),
            # No name of a certificate is a part of a label.
            "half": serve(internet_lab.Server, EVIL, 445, make("h*.example.com", signer=authority), handler=Echo),
            "raw": serve(Raw, GOOD, 8080), "raw tls": serve(Raw, GOOD, 8443),
            "switch": serve(Raw, GOOD, 8081, b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nsecret-stream"),
            "metadata": serve(Raw, METADATA, 80), "dns": serve(Raw, GOOD, 53), "dot": serve(Raw, GOOD, 853),
            # Of the host itself: what stands here for a control plane.
            "host": Raw("0.0.0.0", 8000),
        }

    def caller(self, kind):
        if kind not in self.callers:
            self.callers[kind] = self.stack.enter_context(harness.Caller(kind))
        return self.callers[kind]


_world = []


def world():
    if not _world:
        _world.append(World())
    return _world[0]


def hello(name=None, *, extensions=b"", names=None, padding=0, records=None):
    """The bytes of a ClientHello. `names`: the body of its server_name extension's list, in place of one host name.
    `padding`: bytes of an extension in front of the name. `records`: the sizes of the records that it is cut into."""
    entry = lambda kind, data: struct.pack(">HH", kind, len(data)) + data  # noqa: E731
    listed = names if names is not None else b"" if name is None else b"\0" + struct.pack(">H", len(name)) + name
    body = entry(21, b"\0" * padding) if padding else b""
    body += entry(43, b"\2\3\4") + extensions  # TLS 1.3
    if listed:
        body += entry(0, struct.pack(">H", len(listed)) + listed)
    message = b"\3\3" + bytes(range(32)) + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack(">H", len(body)) + body
    message = b"\1" + struct.pack(">I", len(message))[1:] + message
    out, sizes = b"", list(records or [])
    while message:
        size = sizes.pop(0) if sizes else 16384
        out += b"\x16\3\1" + struct.pack(">H", len(message[:size])) + message[:size]
        message = message[size:]
    return out


# What scripts inside begin with.
INSIDE = """
import base64, concurrent.futures, http.client, json, os, socket, ssl, struct, subprocess, sys, time
def raw(address, port, *pieces, wait=10, pause=0, end=True):
    "What comes back for these bytes, and how it ended."
    data = b""
    try:
        with socket.create_connection((address, port), wait) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                s.sendall(piece)
                if pause: time.sleep(pause)
            if end: s.shutdown(socket.SHUT_WR)
            while got := s.recv(65536): data += got
    except OSError as error: data += type(error).__name__.encode()
    return data
def tls(name, *requests, address=None, port=443):
    context = ssl.create_default_context()
    try:
        with socket.create_connection((address or name, port), 10) as s, context.wrap_socket(s, server_hostname=name) as t:
            data = b""
            try:
                t.sendall(b"".join(requests)); t.settimeout(10)
                while got := t.recv(65536): data += got
            except OSError as error: data += type(error).__name__.encode()
            return data
    except Exception as error: return type(error).__name__.encode()
def together(what, *lists):
    "What it gives for each, at the same time."
    with concurrent.futures.ThreadPoolExecutor(32) as pool: return list(pool.map(what, *lists))
ask = lambda line, host, more="": f"{line} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}\\r\\n".encode("latin-1")
last = "Connection: close\\r\\n"
states = lambda answer: [int(line.split()[1]) for line in answer.splitlines() if line.startswith(b"HTTP/1.")]
def request(host, path="/x", method="GET", body=None, headers={}, kind=http.client.HTTPSConnection):
    c = kind(host, timeout=20)
    try:
        c.request(method, path, body, headers); answer = c.getresponse()
        return answer.status, answer.read().decode(errors="replace"), answer.headers.get("X-Sandbox-Egress", "").rpartition("reason=")[2]
    except Exception as error: return 0, type(error).__name__, ""
def query(name, kind=1, labels=None, more=b"", counts=(1, 0, 0, 0)):
    labels = labels or [label.encode() for label in name.split(".")]
    return b"\\x12\\x34\\1\\0" + struct.pack(">4H", *counts) + b"".join(bytes([len(l)]) + l for l in labels) + struct.pack(">BHH", 0, kind, 1) + more
def ask_dns(message, server="9.9.9.9", tcp=False, wait=5):
    "The answer's code and how many records it has; None: there was none."
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        if tcp:
            with socket.create_connection((server, 53), wait) as s:
                s.sendall(struct.pack(">H", len(message)) + message); answer = s.recv(4096)[2:]
        else:
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.settimeout(wait); s.connect((server, 53)); s.send(message); answer = s.recv(4096)
        return answer[3] & 15, struct.unpack(">H", answer[6:8])[0]
    except (OSError, IndexError): return None
token = os.environ.get("TOKEN", "")
"""


class Told(dict):
    """A run's result, which as text is what somebody wants to read whose case failed."""

    def __str__(self):
        reasons = [f"{r['kind']} {r['decision']} {r['reason']} {r.get('detail', '')}" for r in self["audit"] if "decision" in r]
        said = "\n".join(str(self.get(key, ""))[-3000:] for key in ("error", "verdict", "stdout", "stderr"))
        return f"as {self['caller']}:\n{said}\n" + "\n".join(reasons[-40:])


class Lab(unittest.TestCase):
    maxDiff = None
    # What run_bugs.py sets.
    preset, without, kinds = "release", "", ("root", "user")

    def run(self, result=None):
        began = time.monotonic()
        done = super().run(result)
        if "-v" in sys.argv:
            print(f"  {time.monotonic() - began:.1f} s", file=sys.stderr)
        return done

    @classmethod
    def setUpClass(cls):
        cls.world = world()
        cls.servers, cls.names = cls.world.servers, cls.world.names

    def each_caller(self):
        for kind in self.kinds:
            self.forget()
            yield self.world.caller(kind)

    def need(self, *tools):
        """Leaves a case out where the host image would not show a program: a failure in CI."""
        for tool in tools:
            if not shutil.which(tool, path=SEEN_INSIDE):
                if os.environ.get("CI") == "true":
                    self.fail(f"{tool} is not below /usr; the group test of tools/packages.txt has it")
                self.skipTest(f"{tool} is not below /usr")

    def forget(self):
        self.names.forget()
        for server in self.servers.values():
            server.forget()

    def run_in(self, caller, policy, *command, options=(), expect=0, env=None):
        """The result of a command under a policy, with its audit's records."""
        audit = pathlib.Path(caller.home) / "audit.jsonl"
        audit.unlink(missing_ok=True)
        net = str(caller.write("net.yaml", policy, 0o644))
        done = caller.caisson("run", "--json", "--image", "host", "--audit", str(audit), "--net", net, *options, "--", *command,
                              preset=self.preset, env={"CANARY": VALUE, **({"CAISSON_GUARD_OFF": self.without} if self.without else {}), **(env or {})})
        self.assertTrue(done.out.startswith("{"), done)
        result = Told(json.loads(done.out), caller=caller.kind)
        text = audit.read_text() if audit.exists() else ""
        result["records"] = text
        result["audit"] = [r for r in map(json.loads, text.splitlines()) if r["kind"] not in ("begin", "end", "seal")]
        self.assertEqual(done.returncode, expect, result)
        return result

    def inside(self, caller, policy, script, **named):
        """What a script printed, line by line, each as JSON."""
        result = self.run_in(caller, policy, "python3", "-c", INSIDE + "tell = lambda *what: print(json.dumps(what if len(what) != 1 else what[0]))\n" + script, **named)
        self.told = result
        return [json.loads(line) for line in result["stdout"].splitlines()]

    def received(self, name):
        return self.servers[name].received

    def assert_untouched(self, *names):
        for name in names or self.servers:
            self.assertEqual((self.servers[name].connections, self.servers[name].received), (0, b""), name)

    def assert_no_query(self):
        self.assertEqual(self.names.queries, [])


class Control(Lab):
    """What works in any case: a guard that is left out must not have broken everything else."""

    def test_what_is_allowed_is_reached(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com]}, {hosts: [good.example.com], tls: plaintext}]", """
tell(states(tls("good.example.com", ask("GET /x", "good.example.com", last))), states(raw("good.example.com", 80, ask("GET /x", "good.example.com", last))))
""")
            self.assertEqual(told, [[[200], [200]]], self.told)


def main(file):
    """Runs the tests of a file in namespaces of their own."""
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[1:]], verbosity=2 if "-v" in sys.argv else 1)
    missing = [tool for tool in ("unshare", "ip", "openssl", "curl") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl and curl", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(file, sys.argv[1:], STAGE))
