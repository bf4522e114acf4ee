"""The lab of the egress benchmark: an Internet of one host, a server on it, and the ways that lead there.

A way is how one program's request gets to the server: by itself beside the server's wire, in a sandbox through its
gateway, or beside the wire through a forward proxy that other people made. All are here at the same time, so that
rounds can take them in turn. A way that this machine cannot take has a `missing` reason.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import harness  # noqa: E402
import internet_lab  # noqa: E402
import process_tree  # noqa: E402
import run as frame  # noqa: E402

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# Two names of the one host: what is said to the second is looked into.
NAME, DEEP, ADDRESS = "good.example.com", "deep.example.com", "93.184.10.1"
PORTS = {"http": 80, "tls": 443, "tcp": 8080}
POLICY = """
limits: {connections: unlimited, connections_per_second: unlimited, dns_per_second: unlimited}
rules:
  - {hosts: [good.example.com], tls: plaintext}
  - {hosts: [good.example.com]}
  - {hosts: [deep.example.com], tls: inspect}
  - {hosts: [good.example.com], ports: [8080], proto: tcp}
"""
SQUID = """
http_port 127.0.0.1:3128 name=passing ssl-bump cert={folder}/proxy.pem generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
http_port 127.0.0.1:3129 name=opening ssl-bump cert={folder}/proxy.pem generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
acl is_passing myportname passing
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump splice is_passing
ssl_bump bump all
sslcrtd_program /usr/lib/squid/security_file_certgen -s {folder}/certificates -M 4MB
tls_outgoing_options cafile={bundle}
http_access allow all
cache deny all
access_log none
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
netdb_filename none
pinger_enable off
visible_hostname lab.example.com
dns_nameservers 127.0.0.1
max_filedescriptors 16384
shutdown_lifetime 0 seconds
"""


@dataclass
class Way:
    """`inside`: in a sandbox, through its gateway. `proxy`: HOST:PORT to ask with CONNECT."""

    name: str
    what: str
    kind: str = "tls"
    host: str = NAME
    inside: bool = False
    proxy: str = ""
    missing: str = ""


def ways():
    squid, mitmdump = frame.find("squid"), frame.find("mitmdump")
    helper = os.path.exists("/usr/lib/squid/security_file_certgen")
    no_squid = "" if squid and helper else "not installed: package squid-openssl"
    no_mitmproxy = "" if mitmdump else "not installed: package mitmproxy"
    return [
        Way("direct", "the program beside the server's wire, TLS"),
        Way("splice", "in a sandbox, TLS that its gateway passes unopened", inside=True),
        Way("squid, splice", "squid as a forward proxy: CONNECT, peek at the hello, splice", proxy="127.0.0.1:3128", missing=no_squid),
        Way("mitmproxy, passing", "mitmdump --ignore-hosts: CONNECT, bytes passed on", proxy="127.0.0.1:3131", missing=no_mitmproxy),
        Way("inspect", "in a sandbox, TLS that its gateway opens, each request judged", host=DEEP, inside=True),
        Way("squid, bump", "squid: CONNECT, TLS opened, server verified", proxy="127.0.0.1:3129", missing=no_squid),
        Way("mitmproxy", "mitmdump: CONNECT, TLS opened, server verified", proxy="127.0.0.1:3130", missing=no_mitmproxy),
        Way("direct, HTTP", "the program beside the server's wire, without TLS", kind="http"),
        Way("HTTP", "in a sandbox, each request judged", kind="http", inside=True),
        Way("direct, TCP", "as direct, HTTP", kind="tcp"),
        Way("TCP", "in a sandbox, by a tcp rule, bytes not looked at", kind="tcp", inside=True),
    ]


class Lab:
    def __init__(self, caller):
        self.caller, self.folder = caller, caller.folder
        self.program = frame.compile_program(ROOT / "build" / "bench", "egress_load.cpp", ("clang++-19", "clang++"), "-std=gnu++23", "-lssl",
                                             "-lcrypto", "-pthread")
        # Where an ordinary user's sandbox would see it too.
        self.load = self.folder / "egress_load"
        shutil.copy(self.program, self.load)
        self.names = internet_lab.Names({NAME: [ADDRESS], DEEP: [ADDRESS]}, ttl=300)
        self.internet = internet_lab.Internet(ADDRESS)
        self.processes = []
        self.ways = {way.name: way for way in ways()}
        self.policy = str(caller.write("net.yaml", POLICY, 0o644))
        self.make_certificates()
        for kind, port in PORTS.items():
            self.serve(port, *([self.certificate] if kind == "tls" else []))
        self.start_squid()
        self.start_mitmproxy()
        for way in self.ways.values():
            if not way.missing:
                self.times(way.name, 1, 1)  # it leads there, and what the first one reads is in memory

    def make_certificates(self):
        authority, text = internet_lab.certificate(self.folder, "lab authority")
        bundle = self.caller.write("bundle.pem", BUNDLE.read_text() + text, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        self.certificate, _ = internet_lab.certificate(self.folder, NAME, DEEP, signer=authority)
        # The authority by which proxies open TLS, which nobody verifies here.
        proxy, _ = internet_lab.certificate(self.folder, "proxy authority")
        shutil.copy(proxy, self.folder / "proxy.pem")

    def serve(self, port, *certificate):
        server = subprocess.Popen(["nsenter", f"--net=/proc/{self.internet.process.pid}/ns/net", "--", self.load, "serve", str(port),
                                   *map(str, certificate)], stdout=subprocess.PIPE)
        self.processes.append(server)
        if server.stdout.readline() != b"up\n":
            raise frame.BenchError(f"the server on port {port} did not start")

    def start_squid(self):
        if self.ways["squid, bump"].missing:
            return
        folder = self.caller.mkdir("squid")
        shutil.copy(self.folder / "proxy.pem", folder)
        (folder / "squid.conf").write_text(SQUID.format(folder=folder, bundle=BUNDLE))
        subprocess.run(["/usr/lib/squid/security_file_certgen", "-c", "-s", folder / "certificates", "-M", "4MB"], check=True, capture_output=True)
        subprocess.run(["chown", "-R", "proxy:proxy", folder], check=True)
        self.start("squid", ["squid", "-N", "-f", folder / "squid.conf"], "squid, splice", "squid, bump")

    def start_mitmproxy(self):
        if self.ways["mitmproxy"].missing:
            return
        folder = self.caller.mkdir("mitmproxy")
        common = ["mitmdump", "-q", "--listen-host", "127.0.0.1", "--set", "stream_large_bodies=1m", "--set", f"confdir={folder}", "--set",
                  f"ssl_verify_upstream_trusted_ca={BUNDLE}"]
        self.start("mitmproxy", [*common, "-p", "3130"], "mitmproxy")
        self.start("mitmproxy", [*common, "-p", "3131", "--ignore-hosts", ".*"], "mitmproxy, passing")

    def start(self, package, command, *names):
        """Starts a proxy and waits for its ports; where it does not come up its ways are missing."""
        log = self.folder / f"{names[-1].replace(', ', '-')}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "HOME": str(self.folder)})
        self.processes.append(process)

        def is_up():
            return process.poll() is not None or all(is_listening(self.ways[name].proxy) for name in names)

        if not harness.wait_until(is_up, 30) or process.poll() is not None:
            for name in names:
                self.ways[name].missing = f"{package} does not run here: {(log.read_text().splitlines() or ['it said nothing'])[-1][:200]}"

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()
        self.internet.close()
        subprocess.run(["umount", BUNDLE], check=True)

    # ---- what is measured ----

    def command(self, way, *words):
        """The load program as that way has it."""
        there = [f"name={way.host}", f"port={PORTS[way.kind]}", *(["tls"] if way.kind == "tls" else []), *([f"proxy={way.proxy}"] if way.proxy else [])]
        if not way.inside:
            return [str(self.load), *words[:1], *there, *words[1:]]
        return [*self.caller.command(), "run", "--image", "host", "--cpus", "2", "--memory", "4GiB", "--open-files", "16384", "--timeout", "5m", "--cpu-time",
                "5m", "--net", self.policy, "--ro", f"{self.load}:/mnt/load", "--", "/mnt/load", *words[:1], *there, *words[1:]]

    def times(self, name, count, at_once, size=100, pause_us=0, kept=False):
        """Microseconds of each request of one process."""
        words = ["ask", f"count={count}", f"at_once={at_once}", f"bytes={size}", f"pause_us={pause_us}", *(["kept"] if kept else [])]
        done = subprocess.run(self.command(self.ways[name], *words), env=self.caller.env, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise frame.BenchError(f"{name}: {done.stderr.strip()[-500:]}")
        return frame.json.loads(done.stdout)

    @contextmanager
    def held(self, name, count):
        """So many connections that have asked once and stand open: (what the client said, a function that has each ask
        again and returns what it says)."""
        process = subprocess.Popen(self.command(self.ways[name], "hold", f"count={count}", "bytes=100"), env=self.caller.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        try:
            said = process.stdout.readline().strip()

            def again():
                process.stdin.write("\n")
                process.stdin.flush()
                return process.stdout.readline().strip()

            yield said, again, process.pid
        finally:
            process.stdin.close()
            process.wait(60)
            process.stdout.close()

    def create(self, *options):
        began = frame.time.monotonic_ns()
        done = subprocess.run([*self.caller.command(), "run", "--image", "host", *options, "--", "/bin/true"], env=self.caller.env, capture_output=True, text=True)
        if done.returncode != 0:
            raise frame.BenchError(f"run: {done.stderr[-500:]}")
        return (frame.time.monotonic_ns() - began) // 1000

    def keeper(self, name, pid):
        """The process that has the connections of a way: the gateway of the sandbox, or the proxy."""
        if self.ways[name].inside:
            for found, _, _ in process_tree.descendants(pid):
                if Path(f"/proc/{found}/comm").read_text().strip() == "caisson-gateway":
                    return found
            raise frame.BenchError(f"{name}: no gateway runs")
        return listener(self.ways[name].proxy)


def is_listening(address):
    """Whether a socket of this network namespace listens there."""
    return listening_inode(address) is not None


def listening_inode(address):
    host, port = address.split(":")
    wanted = "".join(f"{int(part):02X}" for part in reversed(host.split("."))) + f":{int(port):04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1] == wanted and words[3] == "0A":
            return words[9]
    return None


def listener(address):
    """The process that listens there."""
    inode = listening_inode(address)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == f"socket:[{inode}]":
                    return int(pid)
        except OSError:
            continue
    raise frame.BenchError(f"nobody listens at {address}")


def memory_of(pid):
    """(PSS, RSS) in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return tuple(int(re.search(rf"^{key}:\s+(\d+)", text, re.M)[1]) for key in ("Pss", "Rss"))


def kernel_memory():
    """KiB of the kernel's own objects and of what sockets hold, of the whole machine."""
    slab = int(re.search(r"^Slab:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)[1])
    pages = int(re.search(r"^TCP: .* mem (\d+)", Path("/proc/net/sockstat").read_text(), re.M)[1])
    return slab + pages * (os.sysconf("SC_PAGESIZE") // 1024)
