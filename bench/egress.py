#!/usr/bin/env python3
"""What the gateway costs: a connection with one request, a big download, and a sandbox with a network.

    ./dev bench egress [--parts requests,download,create] [--rounds N] [--quick] [--no-write]

All of it in namespaces of its own, with an Internet of one host (tests/lib/internet_lab.py; root alone). The
same program of Python asks the same server twice in turn: by itself beside the server's wire (direct), and in a
sandbox, through its gateway. requests: one connection after another, or 16 at a time, each with one request,
from connect to the server's end; HTTP without TLS, which the gateway reads and writes anew, and TLS, which it
splices. The gateway looks the name up for each connection, the direct program once. download: a body of many
MiB; also by a tcp rule, whose bytes are not looked at. create: `caisson run -- true` without a network and with
one. Figures go to docs/benchmarks.md, between the egress markers, and to build/bench/egress.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import harness  # noqa: E402
import internet_lab  # noqa: E402
import run as frame  # noqa: E402
from lib import host, stats  # noqa: E402

BEGIN, END = "<!-- egress figures: begin -->", "<!-- egress figures: end -->"
STAGE = "CAISSON_EGRESS_BENCH_STAGE"
PARTS = ("requests", "download", "create")
NAME, ADDRESS = "good.example.com", "93.184.10.1"
PORTS = {"http": 80, "tls": 443, "tcp": 8080}
PYTHON = "/usr/bin/python3"
POLICY = """
limits: {connections: unlimited, connections_per_second: unlimited, dns_per_second: unlimited}
rules:
  - {hosts: [good.example.com], tls: plaintext}
  - {hosts: [good.example.com]}
  - {hosts: [good.example.com], ports: [8080], proto: tcp}
"""

# HTTP enough for one request a connection, as quick as Python is: /SIZE is answered with as many bytes.
SERVER = r"""
import os, socket, ssl, sys, threading
port, certificate = int(sys.argv[1]), sys.argv[2]
context = None
if certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(certificate)
listener = socket.create_server(("", port), backlog=1024)
print("up", flush=True)
block = bytes(1 << 18)
def serve(client):
    try:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context: client = context.wrap_socket(client, server_side=True)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = client.recv(65536)
            if not piece: return
            head += piece
        size = int(head.split(b" ", 2)[1][1:])
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
        while size > 0:
            client.sendall(block[:size]); size -= len(block)
    except OSError: pass
    finally: client.close()
while True:
    client = listener.accept()[0]
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"""
# Says the microseconds of each request, as JSON.
CLIENT = r"""
import json, socket, ssl, sys, threading, time
name, port, tls, size, count, at_once = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "tls", int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
address = socket.getaddrinfo(name, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
ask = b"GET /%d HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (size, name.encode())
room, taken, faults = bytearray(1 << 18), [], []
def once(room):
    began = time.monotonic_ns()
    with socket.create_connection(address, 30) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = context.wrap_socket(plain, server_hostname=name) if tls else plain
        stream.sendall(ask)
        got, head = 0, b""
        while b"\r\n\r\n" not in head:
            piece = stream.recv(65536)
            if not piece: raise OSError("no answer")
            head += piece
        if not head.startswith(b"HTTP/1.1 200"): raise OSError(head[:200])
        got = len(head) - head.index(b"\r\n\r\n") - 4
        while got < size:
            piece = stream.recv_into(room)
            if not piece: raise OSError("cut off")
            got += piece
    return (time.monotonic_ns() - began) // 1000
def many():
    try:
        room = bytearray(1 << 18)
        for _ in range(count): taken.append(once(room))
    except OSError as error: faults.append(str(error))
threads = [threading.Thread(target=many) for _ in range(at_once)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if faults: sys.exit(faults[0])
print(json.dumps(taken))
"""


class Lab:
    """The one host of the Internet, and a caller with a policy."""

    def __init__(self, caller):
        self.caller = caller
        self.names = internet_lab.Names({NAME: [ADDRESS]})
        self.internet = internet_lab.Internet(ADDRESS)
        self.servers = []
        self.policy = str(caller.write("net.yaml", POLICY, 0o644))
        certificate, _ = internet_lab.certificate(caller.folder, NAME)
        for kind, port in PORTS.items():
            self.serve(port, str(certificate) if kind == "tls" else "")

    def serve(self, port, certificate):
        server = subprocess.Popen(["nsenter", f"--net=/proc/{self.internet.process.pid}/ns/net", "--", sys.executable, "-c", SERVER, str(port), certificate],
                                  stdout=subprocess.PIPE)
        self.servers.append(server)
        if server.stdout.readline() != b"up\n":
            raise frame.BenchError(f"the server on port {port} did not start")

    def close(self):
        for server in self.servers:
            server.kill()
            server.communicate()
        self.internet.close()

    def times(self, way, kind, size, count, at_once=1):
        """Microseconds of each request of one process."""
        words = [PYTHON, "-c", CLIENT, NAME, str(PORTS[kind]), kind, str(size), str(count), str(at_once)]
        if way == "gateway":
            words = [*self.caller.command(), "run", "--image", "host", "--cpus", "2", "--timeout", "5m", "--cpu-time", "5m", "--net", self.policy, "--", *words]
        done = subprocess.run(words, env=self.caller.env, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise frame.BenchError(f"{kind}, {way}: {done.stderr[-500:]}")
        return json.loads(done.stdout)

    def create(self, *options):
        began = time.monotonic_ns()
        done = subprocess.run([*self.caller.command(), "run", "--image", "host", *options, "--", "/bin/true"], env=self.caller.env, capture_output=True, text=True)
        if done.returncode != 0:
            raise frame.BenchError(f"run: {done.stderr[-500:]}")
        return (time.monotonic_ns() - began) // 1000


# ---- the parts: each returns {what: {way: rounds}}, in microseconds or bytes a second ------------------------


def alternate(rounds, ways):
    """{way: rounds}, each round with every way, in turn first."""
    found = {way: [] for way in ways}
    for index in range(rounds):
        order = list(ways)
        for way in order if index % 2 == 0 else reversed(order):
            found[way].append(ways[way]())
    return found


def requests(lab, options):
    found = {}
    for kind in ("http", "tls"):
        for at_once in (1, 16):
            frame.show(f"requests: {kind}, {at_once} at a time")
            count = max(options.requests // at_once, 2)
            ways = {way: lambda way=way: lab.times(way, kind, 100, count, at_once) for way in ("direct", "gateway")}
            found[f"{kind}, {at_once} at a time"] = alternate(options.rounds, ways)
    return found


def download(lab, options):
    found = {}
    size = options.mib << 20
    for kind in PORTS:
        frame.show(f"download: {kind}")
        ways = {way: lambda way=way: [size / (us / 1e6) for us in lab.times(way, kind, size, 1)] for way in ("direct", "gateway")}
        found[kind] = alternate(options.rounds, ways)
    return found


def create(lab, options):
    frame.show("create")
    ways = {"direct": lambda: [lab.create() for _ in range(5)], "gateway": lambda: [lab.create("--net", lab.policy) for _ in range(5)]}
    return {"`caisson run -- /bin/true`": alternate(options.rounds, ways)}


# ---- the tables -----------------------------------------------------------------------------------------------


def time_table(found, ways):
    lines = frame.header("", *(f"{way}, median" for way in ways), *(f"{way}, p99" for way in ways), "added at the median", "ratio")
    for what, rounds in found.items():
        one, other = rounds["direct"], rounds["gateway"]
        low, high = stats.difference_interval(other, one)
        lines.append(frame.row(what, *(f"{stats.median(r) / 1000:.2f} ms" for r in (one, other)),
                               *(f"{stats.percentile(stats.flat(r), 0.99) / 1000:.2f} ms" for r in (one, other)),
                               f"{(stats.median(other) - stats.median(one)) / 1000:.2f} ms ({low / 1000:.2f} to {high / 1000:.2f})", frame.ratio(other, one)))
    return lines


def rate_table(found):
    lines = frame.header("", "direct", "through the gateway", "ratio")
    for what, rounds in found.items():
        lines.append(frame.row(what, *(f"{stats.median(rounds[way]) / 1e6:.0f} MB/s" for way in ("direct", "gateway")),
                               frame.ratio(rounds["gateway"], rounds["direct"])))
    return lines


TABLES = {"requests": ("A connection with one request", lambda found: time_table(found, ("direct", "gateway"))),
          "download": ("A big download", rate_table),
          "create": ("A sandbox", lambda found: time_table(found, ("without", "with a network")))}


def report(result):
    lines = ["", f"Measured on {result['date']}, {result['rounds']} rounds. {result['remark']}".rstrip(), ""]
    lines += frame.header("host", "") + [frame.row(key, value) for key, value in result["host"].items()]
    for part, figures in result["parts"].items():
        title, table = TABLES[part]
        lines += ["", f"### {title}", ""]
        lines += table(figures) if "missing" not in figures else [f"Not measured: {figures['missing']}"]
    return "\n".join(lines) + "\n\n"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=200, help="of each process")
    parser.add_argument("--mib", type=int, default=256, help="of a download")
    parser.add_argument("--quick", action="store_true", help="few of each, for a look")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md as it is")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "egress.json")
    options = parser.parse_args(arguments)
    options.parts = options.parts.split(",")
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.requests, options.mib = 4, 50, 32
    if min(options.rounds, options.requests, options.mib) < 1:
        parser.error("counts must be positive")
    return options


def measure(options, make=Lab):
    machine, remark = host.describe(), frame.busy()
    parts = {}
    with harness.Caller("root") as caller:
        lab = make(caller)
        try:
            for part in options.parts:
                try:
                    parts[part] = globals()[part](lab, options)
                except (frame.BenchError, OSError, subprocess.SubprocessError) as error:
                    print(f"bench: {part}: {error}", file=sys.stderr)
                    parts[part] = {"missing": str(error)}
        finally:
            lab.close()
    frame.show("")
    machine["load after"] = f"{os.getloadavg()[0]:.2f}"
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "remark": remark, "rounds": options.rounds, "host": machine, "parts": parts}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    return result


def main(arguments=None):
    options = parse(arguments)
    if not os.environ.get(STAGE):
        if os.geteuid() != 0:
            print("bench: the Internet of this benchmark is root's to make", file=sys.stderr)
            return 1
        return internet_lab.enter(__file__, arguments if arguments is not None else sys.argv[1:], STAGE)
    try:
        harness.subreaper()
        text = report(measure(options))
        if not options.no_write:
            frame.write_document(options.document, text, BEGIN, END)
    except frame.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
