#!/usr/bin/env python3
"""The egress proxy in front of a sandbox without a network: what curl and others inside reach.

Servers listen on this host's loopback and are reached only where the list names them. Names are
looked at in a network and mount namespace of the test's own (root alone), with a hosts file and a
resolver of its own and a second namespace that is the Internet: an address of this host is refused
whatever name leads to it, and a name is resolved once.
"""
import ctypes
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import unittest

import frame

import harness

TOOL = harness.build_dir() / "tests" / "caisson_layer_tool"
STAGE = "CAISSON_EGRESS_STAGE"
INTERNET = "8.8.4.4"  # in the second namespace of the test's own
OWN, PEER = "10.77.0.1", "10.77.0.2"  # the wire between the two


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(f"{self.command} {self.path} {self.headers.get('Connection')}\n".encode())

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(f"{len(data)} {data[:1].decode()}{data[-1:].decode()}\n".encode())

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Server:
    def __init__(self, address="127.0.0.1", port=0, certificate=None):
        self.server = http.server.ThreadingHTTPServer((address, port), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Internet:
    """A network namespace that a wire leads to, with a server at INTERNET:8000."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
        self.process.stdout.readline()  # it is in its namespace by now
        inside = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--"]
        for prefix, words in (([], f"link add wire type veth peer name wire netns {self.process.pid}"),
                              ([], f"addr add {OWN}/30 dev wire"), ([], "link set wire up"),
                              (inside, f"addr add {PEER}/30 dev wire"), (inside, "link set wire up"),
                              (inside, "link set lo up"), (inside, f"addr add {INTERNET}/32 dev lo"),
                              ([], f"route add default via {PEER}")):
            subprocess.run([*prefix, "ip", *words.split()], check=True)
        # A socket belongs to the namespace of the thread that makes it.
        thread = threading.Thread(target=self.serve)
        thread.start()
        thread.join()

    def serve(self):
        with open(f"/proc/{self.process.pid}/ns/net") as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        self.server = Server(INTERNET, 8000)

    def close(self):
        self.server.close()
        self.process.kill()
        self.process.communicate()


def run_tool(caller, allowed, script, image="host"):
    """(status, what the script said, the proxy's report, stderr) of a script beside a proxy."""
    programs = caller.programs()
    tool = programs / "caisson_layer_tool"
    if programs != harness.build_dir():
        shutil.copy(TOOL, tool)
    else:
        tool = TOOL
    words = [word for entry in allowed for word in ("--allow", entry)]
    done = subprocess.run([*caller._prefix, str(tool), "--image", image, "--egress", *words, "--", script],
                          env=caller.env, cwd=caller.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    lines = [line for line in done.stderr.splitlines() if line.startswith(b"{")]
    return done.returncode, done.stdout.decode(errors="replace"), json.loads(lines[0]) if lines else None, done.stderr


class Egress(unittest.TestCase):
    maxDiff = None

    def each_caller(self):
        for kind in harness.callers():
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                yield caller

    def test_curl_reaches_what_is_named_and_nothing_else(self):
        first, second = Server(), Server()
        self.addCleanup(first.close)
        self.addCleanup(second.close)
        for caller in self.each_caller():
            status, out, report, err = run_tool(
                caller, [f"127.0.0.1:{first.port}", f"localhost:{first.port}"], f"""
                  curl -sS http://127.0.0.1:{first.port}/direct
                  curl -sS http://localhost:{first.port}/name
                  curl -sS -p http://127.0.0.1:{first.port}/tunnel
                  curl -sS -d abc http://127.0.0.1:{first.port}/
                  head -c 3000000 /dev/zero | tr '\\0' z | curl -sS -T - -X POST http://127.0.0.1:{first.port}/
                  curl -s -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{second.port}/
                  curl -s -p -o /dev/null -w '%{{http_connect}}\\n' http://127.0.0.1:{second.port}/
                  curl -s http://127.0.0.1:{second.port}/
                  curl -s --noproxy '*' -m 5 http://127.0.0.1:{first.port}/ || echo refused
                  true""")
            self.assertEqual(status, 0, err)
            self.assertEqual(out.splitlines(), [
                "GET /direct close", "GET /name close", "GET /tunnel None", "3 ac", "3000000 zz", "403", "403",
                f"caisson: 127.0.0.1:{second.port} is not among what this sandbox may reach", "refused"])
            self.assertEqual(report["connections"], 5)
            self.assertGreater(report["out"], 3_000_000)
            self.assertEqual(report["refused"], 3)
            self.assertEqual(report["refusals"], [{"target": f"127.0.0.1:{second.port}", "count": 3,
                                                   "reason": "is not among what this sandbox may reach"}])

    def test_https_goes_through_a_tunnel_that_nobody_looks_into(self):
        if not shutil.which("openssl"):
            frame.left_out("openssl is not here")
        for caller in self.each_caller():
            certificate = caller.folder / "certificate.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=DNS:localhost", "-keyout", certificate, "-out", f"{certificate}.crt"],
                           check=True, capture_output=True)
            text = pathlib.Path(f"{certificate}.crt").read_text()
            certificate.write_text(certificate.read_text() + text)
            server = Server(certificate=certificate)
            self.addCleanup(server.close)
            status, out, report, err = run_tool(caller, [f"localhost:{server.port}"], f"""
              cat > /tmp/ca <<'END'\n{text}\nEND
              curl -sS --cacert /tmp/ca https://localhost:{server.port}/secret""")
            self.assertEqual((status, out), (0, "GET /secret None\n"), err)
            self.assertEqual((report["connections"], report["refused"]), (1, 0))

    def test_python_uses_it_by_its_environment(self):
        server = Server()
        self.addCleanup(server.close)
        for caller in self.each_caller():
            status, out, _, err = run_tool(caller, [f"127.0.0.1:{server.port}"],
                                           "python3 -c 'import urllib.request as u; print(u.urlopen("
                                           f'"http://127.0.0.1:{server.port}/py").read())\'')
            self.assertEqual((status, out), (0, "b'GET /py close\\n'\n"), err + out.encode())

    def test_the_guest_and_its_commands_never_hold_the_listener(self):
        # Nothing inside but the proxy's own port listens, and no process inside has that descriptor.
        for caller in self.each_caller():
            status, out, _, err = run_tool(caller, [], """
              for fd in /proc/1/fd/* /proc/self/fd/*; do readlink $fd; done | grep -c socket: || true
              ls /proc/$$/fd
              tail -n +2 /proc/net/tcp | tr -s ' ' | cut -d' ' -f3,5""")
            self.assertEqual(status, 0, err)
            self.assertEqual(out.split(), ["0", "0", "1", "2", "0100007F:0C38", "0A"])

    def test_without_it_nothing_listens(self):
        for caller in self.each_caller():
            done = caller.caisson("run", "--image", "host", "--", "sh", "-c", "tail -n +2 /proc/net/tcp")
            self.assertEqual((done.returncode, done.out), (0, ""), done)


class Names:
    """In namespaces of its own; see main."""

    zone = {
        "good.example.com": [INTERNET], "private.example.com": ["10.1.2.3"], "loop.example.com": ["127.0.0.1"],
        "mixed.example.com": ["127.0.0.1", INTERNET], "link.example.com": ["169.254.169.254"],
    }

    def __init__(self):
        self.asked = []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            query, peer = self.socket.recvfrom(2048)
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            kind = struct.unpack(">H", query[at + 1:at + 3])[0]
            name = ".".join(labels).lower()
            found = self.zone.get(name, []) if kind == 1 else []
            if kind == 1:
                self.asked.append(name)
                # Rebinding: whoever asks again is led to this host.
                if name == "turns.example.com":
                    found = [INTERNET] if self.asked.count(name) == 1 else ["127.0.0.1"]
            known = name in self.zone or name == "turns.example.com"
            head = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, len(found), 0, 0)
            answers = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(a) for a in found)
            self.socket.sendto(head + query[12:at + 5] + answers, peer)


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = Names()
        cls.inner = Server("127.0.0.1", 8000)
        cls.outer = Internet()
        cls.addClassCleanup(cls.outer.close)

    def curl(self, *names, allowed=("*.example.com:8000",)):
        with harness.Caller("root") as caller:
            lines = "\n".join(f"curl -s -m 60 http://{name}:8000/x || echo failed" for name in names)
            return run_tool(caller, allowed, lines)

    def test_names_of_the_internet_are_reached(self):
        status, out, report, err = self.curl("good.example.com", "hosts.example.com", INTERNET)
        self.assertEqual((status, out.splitlines()[:2]), (0, ["GET /x close"] * 2), err)
        # An address that the list does not name is not reached by itself.
        self.assertEqual(report["refusals"][0]["target"], f"{INTERNET}:8000")

    def test_names_that_lead_to_this_host_or_its_networks_are_refused(self):
        names = ["private", "loop", "link", "hostsloop", "hostssix"]
        status, out, report, err = self.curl(*(f"{name}.example.com" for name in names))
        self.assertEqual(status, 0, err)
        self.assertEqual(report["connections"], 0)
        self.assertEqual([r["target"] for r in report["refusals"]], [f"{name}.example.com:8000" for name in names])
        for refusal in report["refusals"]:
            self.assertIn("an address of this host or none of the Internet's", refusal["reason"])

    def test_of_several_addresses_only_the_internets_are_tried(self):
        status, out, report, err = self.curl("mixed.example.com")
        self.assertEqual((status, out, report["connections"]), (0, "GET /x close\n", 1), err)

    def test_a_name_is_resolved_once(self):
        status, out, report, err = self.curl("turns.example.com")
        self.assertEqual((status, out, report["connections"]), (0, "GET /x close\n", 1), err)
        self.assertEqual(self.names.asked.count("turns.example.com"), 1)
        status, out, report, err = self.curl("turns.example.com")
        self.assertEqual((report["connections"], report["refused"]), (0, 1), out)

    def test_an_unknown_name_is_said_to_be_so(self):
        status, out, report, err = self.curl("nobody.example.com")
        self.assertIn("nobody.example.com cannot be resolved", out, err)
        self.assertEqual(report["refused"], 0)


def enter_stage():
    """Runs Stage in a network and a mount namespace of its own; its status."""
    with harness.Caller("root") as caller:
        hosts = caller.write("hosts", "127.0.0.1 localhost\n::1 localhost hostssix.example.com\n"
                                      f"{INTERNET} hosts.example.com\n127.0.0.1 hostsloop.example.com\n", 0o644)
        resolver = caller.write("resolver", "nameserver 127.0.0.1\n", 0o644)
        script = ('set -e; ip link set lo up; mount --bind "$1" /etc/hosts; '
                  'target=$(readlink -f /etc/resolv.conf); [ -e "$target" ] || : > /etc/resolv.conf; '
                  'mount --bind "$2" "$(readlink -f /etc/resolv.conf)"; shift 2; exec "$@"')
        return subprocess.run(["unshare", "--net", "--mount", "--propagation=private", "--", "sh", "-c", script, "sh",
                               hosts, resolver, sys.executable, __file__, "Stage"],
                              env={**os.environ, STAGE: "1"}).returncode


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], "Stage"], verbosity=2)
    names = sys.argv[1:] or ["Egress"]
    program = unittest.main(argv=[sys.argv[0], *names], verbosity=2, exit=False)
    ended = 0 if program.result.wasSuccessful() else 1
    if not sys.argv[1:]:
        if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip"))):
            print("left out: names are tested as root alone, with unshare and ip", file=sys.stderr)
            ended |= os.environ.get("CI") == "true"
        else:
            ended |= enter_stage()
    sys.exit(ended)
