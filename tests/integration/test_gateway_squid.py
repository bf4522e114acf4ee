#!/usr/bin/env python3
"""The gateway beside squid: the same odd connections through both, under policies that say the same.

Squid (Debian's squid-openssl) intercepts as the gateway does, looks at the hello of TLS and splices what has an allowed
name, and refuses whatever Host is not of the address that was connected to. What is compared is what reached the
servers, by the marks in the requests (tests/lib/odd_requests.py). Where ours lets something through that squid keeps
back, EXPLAINED says why that is right; anything else fails, and so does an explanation of what is no more.

Runs in namespaces of its own (root alone, tests/lib/internet_lab.py).
"""
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
import sys
import threading
import unittest

import frame  # noqa: F401  (its paths)

import harness
import internet_lab
import odd_requests
from odd_requests import EVIL, GOOD, HTTP, TLS

STAGE = "CAISSON_GATEWAY_SQUID_STAGE"
POLICY = """
limits: {connections: unlimited, connections_per_second: unlimited, dns_per_second: unlimited}
rules:
  - {action: deny, hosts: [no.wild.example.com]}
  - {action: deny, hosts: [paths.example.com], http: [{paths: [/private, "/private/**"]}]}
  - {hosts: [good.example.com, also.example.com, paths.example.com, "**.wild.example.com"], tls: plaintext}
  - {hosts: [good.example.com, also.example.com, "**.wild.example.com"]}
"""
SQUID = """
http_port 127.0.0.1:3127
http_port 127.0.0.1:3128 name=http intercept
https_port 127.0.0.1:3129 name=tls intercept ssl-bump tls-cert={folder}/proxy.pem generate-host-certificates=off
acl hello at_step SslBump1
acl denied_names ssl::server_name no.wild.example.com
acl allowed_names ssl::server_name good.example.com also.example.com .wild.example.com
ssl_bump peek hello
ssl_bump terminate denied_names
ssl_bump splice allowed_names
ssl_bump terminate all
acl from_tls myportname tls
acl from_http myportname http
acl denied_hosts dstdomain -n no.wild.example.com
acl paths dstdomain -n paths.example.com
acl private urlpath_regex ^/private([/?]|$)
acl allowed_hosts dstdomain -n good.example.com also.example.com paths.example.com .wild.example.com
acl usual port 80
http_access allow CONNECT from_tls
http_access deny denied_hosts
http_access deny paths private
http_access allow from_http allowed_hosts usual !CONNECT
http_access deny all
host_verify_strict on
cache deny all
access_log none
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
netdb_filename none
pinger_enable off
visible_hostname lab.example.com
dns_nameservers 127.0.0.1
hosts_file none
connect_timeout 2 seconds
shutdown_lifetime 0 seconds
"""
# Sends what the file says, many at a time: what comes back is nobody's matter here.
CLIENT = """
import concurrent.futures, json, socket, sys
known = {}
def address(name):
    return name if name[0].isdigit() else socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
def send(case):
    try:
        with socket.create_connection((known[case["to"]], case["port"]), 5) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in case["pieces"]:
                s.sendall(bytes.fromhex(piece))
            # An answer, an end, or nothing, which a client that ends its side does not wait for.
            for patience in (3, 1.5):
                s.settimeout(patience)
                try:
                    while s.recv(65536): pass
                    return
                except TimeoutError:
                    s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
cases = json.load(open(sys.argv[1]))
for case in cases: known.setdefault(case["to"], None)
for name in known: known[name] = address(name)
with concurrent.futures.ThreadPoolExecutor(64) as pool: list(pool.map(send, cases))
print("sent", len(cases))
"""
DIALED = "the address is not believed: what the name leads to is dialed, and that is where it went"
PATH = "the path is made canonical, judged as that, and sent as that: /public/…"
EXPLAINED = {
    "Host 'good.example.com '": "spaces around a header's value are none of it (RFC 9110, section 5.5), and it is sent without them",
    "to evil's address, Host good.example.com": DIALED,
    "to evil's address, SNI good.example.com": DIALED,
    "path '/private/../public/case-NNN.0'": PATH,
    "path '/private/%2e%2e/public/case-NNN.0'": PATH,
    "SNI 'good.example.com.'": "one dot at the end of a name is the root's, and the name is the same",
    "443: bytes behind the hello": "what follows a hello with an allowed name is between the client and that host",
}
# What may be so or not, as bytes happen to come.
SOMETIMES = {name: "the head of an allowed request has gone on before the body shows to be broken, which is where it ends; nothing "
             "of what is inside the body goes anywhere" for name in ("chunk size overflows", "chunk size signed", "chunk size 0x0", "chunks end with bare line "
                                                                   "breaks", "chunk extension with a line break")}


class Kept:
    """A server that keeps what comes and answers whatever it is: HTTP on port 80, elsewhere with an alert."""

    def __init__(self, address, port):
        self.address, self.lock, self.came = address, threading.Lock(), []
        answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" if port == HTTP else b"\x15\x03\x03\x00\x02\x02\x28"
        self.listener = socket.create_server((address, port), backlog=512)

        def serve(client):
            came = bytearray()
            with self.lock:
                self.came.append(came)
            with client:
                client.settimeout(1.5)
                try:
                    data = client.recv(65536)
                    client.sendall(answer)
                    client.shutdown(socket.SHUT_WR)
                    while data:
                        came += data
                        data = client.recv(65536)
                except OSError:
                    pass  # who broke off has sent what it has sent

        def accept():
            while True:
                try:
                    client = self.listener.accept()[0]
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def take(self):
        """What came on each connection since the last call."""
        with self.lock:
            came, self.came = self.came, []
        return [bytes(data) for data in came if data]


def is_up(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(odd_requests.ZONE)
        cls.internet = internet_lab.Internet(GOOD, EVIL)
        cls.addClassCleanup(cls.internet.close)
        cls.caller = harness.Caller("root")
        cls.addClassCleanup(cls.caller.close)
        cls.servers = [cls.internet.serve(Kept, address, port) for address in (GOOD, EVIL) for port in (HTTP, TLS)]
        cls.cases = odd_requests.cases()
        cls.client = cls.caller.write("client.py", CLIENT, 0o644)
        cls.start_squid()

    def reached(self):
        """{number of a case: marks of it that reached a server}; and what came without a mark, or to where nothing may."""
        found, strange = {}, []
        for server in self.servers:
            for data in server.take():
                marks = re.findall(rb"case-(\d{3})(\.\d)", data)
                strange += [data] if not marks or server.address == EVIL else []
                for number, mark in marks:
                    found.setdefault(int(number), set()).add(mark.decode())
        return found, strange

    @classmethod
    def start_squid(cls):
        folder = cls.caller.mkdir("squid")
        certificate, _ = internet_lab.certificate(cls.caller.folder, "proxy authority")
        shutil.copy(certificate, folder / "proxy.pem")
        (folder / "squid.conf").write_text(SQUID.format(folder=folder))
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, "proxy", "proxy")
        # The client alone is intercepted: squid's own connections and the gateway's are others'.
        cls.uid = harness.ordinary_uids()["user"]
        assert cls.uid != pwd.getpwnam("proxy").pw_uid
        rule = ["OUTPUT", "-m", "owner", "--uid-owner", str(cls.uid), "-p", "tcp", "--dport"]
        for port, to in ((HTTP, 3128), (TLS, 3129)):
            subprocess.run(["iptables", "-t", "nat", "-A", *rule, str(port), "-j", "REDIRECT", "--to-ports", str(to)], check=True)
        with open(folder / "said", "wb") as said:
            squid = subprocess.Popen(["squid", "-N", "-f", folder / "squid.conf"], stdout=said, stderr=said)
        cls.addClassCleanup(squid.wait)
        cls.addClassCleanup(squid.kill)
        harness.wait_until(lambda: is_up(3129) or squid.poll() is not None, 20)
        assert squid.poll() is None and is_up(3129), (folder / "said").read_text()

    def corpus(self, cases):
        text = json.dumps([{"to": case.to, "port": case.port, "pieces": [piece.hex() for piece in case.pieces]} for case in cases])
        return self.caller.write("cases.json", text, 0o644)

    def by_squid(self, cases):
        done = subprocess.run(["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", "/usr/bin/python3", self.client,
                               self.corpus(cases)], capture_output=True, text=True, timeout=120, env=self.caller.env)
        self.assertEqual(done.stdout, f"sent {len(cases)}\n", done.stderr)
        return self.reached()

    def by_ours(self, cases):
        net = str(self.caller.write("net.yaml", POLICY, 0o644))
        done = self.caller.caisson("run", "--image", "host", "--net", net, "--timeout", "2m", "--cpu-time", "1m", "--ro", f"{self.client}:/mnt/client.py", "--ro",
                                   f"{self.corpus(cases)}:/mnt/cases.json", "--", "/usr/bin/python3", "/mnt/client.py", "/mnt/cases.json", timeout=150)
        self.assertEqual(done.out, f"sent {len(cases)}\n", done)
        return self.reached()

    def test_nothing_passes_that_squid_keeps_back_without_a_reason(self):
        ours, strange = self.by_ours(self.cases)
        self.assertEqual(strange, [], "came to where no policy leads")
        squids, strange = self.by_squid(self.cases)
        self.assertEqual(strange, [], "came to where no policy leads, through squid")
        # What has no explanation may be a machine that was too busy for squid's patience: once more.
        doubtful = [case for number, case in enumerate(self.cases) if ours.get(number, set()) - squids.get(number, set()) and case.name not in EXPLAINED]
        again, _ = self.by_squid(doubtful)
        more = {case.name: sorted(ours.get(number, set()) - squids.get(number, set()) - again.get(number, set())) for number, case in enumerate(self.cases)}
        more = {name: marks for name, marks in more.items() if marks}
        less = [case.name for number, case in enumerate(self.cases) if squids.get(number, set()) - ours.get(number, set())]
        print(f"{len(self.cases)} cases: {len(ours)} reach a server through ours, {len(squids)} through squid; ours keeps back {len(less)} that squid lets "
              f"through, and squid {len(more)}", file=sys.stderr)
        # What every filter must do with them, so that nothing passes by not being there at all.
        numbers = {case.name: number for number, case in enumerate(self.cases)}
        for found in (ours, squids):
            self.assertEqual([found.get(numbers[name]) for name in ("Host 'good.example.com'", "SNI 'good.example.com'", "Host 'evil.example.org'",
                                                                    "SNI 'evil.example.org'", "path '/public/case-NNN.0'", "path '/private/case-NNN.0'")],
                             [{".0"}, {".0"}, None, None, {".0"}, None])
        self.assertEqual({name: marks for name, marks in more.items() if name not in {**EXPLAINED, **SOMETIMES} or marks != [".0"]}, {},
                         "ours lets through what squid keeps back")
        self.assertEqual(sorted(set(EXPLAINED) - set(more)), [], "explained, and no difference any more")
        self.assertLessEqual(set(SOMETIMES), set(numbers))


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl", "squid", "iptables", "setpriv"))):
        print("left out: the gateway is compared with squid as root alone, with unshare, ip, openssl, squid and iptables", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(__file__, sys.argv[1:] or ["Stage"], STAGE))
