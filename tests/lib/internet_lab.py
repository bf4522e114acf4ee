"""An Internet of a test's own: names, addresses and servers that no packet of the host reaches.

A test file runs itself once more in a network and a mount namespace of its own (`enter`): there the
resolver is ours (`Names`), and a wire leads to a second namespace (`Internet`), which has whatever
addresses the test wants, global ones among them. Neither has a way out: `enter` stops where it finds
one. Servers record every byte that reaches them, so that a test says what left a sandbox and not what
a log says of it.
"""
import contextlib
import ctypes
import http.server
import os
import re
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading

import harness

OWN, PEER = "10.77.0.1", "10.77.0.2"  # the wire between the two


class Handler(http.server.BaseHTTPRequestHandler):
    """Says what it was asked for."""

    protocol_version = "HTTP/1.0"

    def do_GET(self):
        self.answer(f"{self.command} {self.path} {self.headers.get('Connection')}\n".encode())

    do_DELETE = do_GET

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


class Recorded:
    """A socket's file for reading that keeps what came."""

    def __init__(self, file, kept):
        self._file, self._kept = file, kept

    def __getattr__(self, name):
        return getattr(self._file, name)

    def _keep(self, data):
        self._kept.append(data)
        return data

    def read(self, *size):
        return self._keep(self._file.read(*size))

    def readline(self, *size):
        return self._keep(self._file.readline(*size))


class Server:
    """HTTP, over TLS where there is a certificate. `received` is every byte of every connection. `status`: of every
    answer."""

    def __init__(self, address="127.0.0.1", port=0, certificate=None, status=200, newest=None, handler=Handler):
        self.pieces, self.connections = [], 0
        outer = self

        class RecordingHandler(handler):
            def send_response(self, code, message=None):
                super().send_response(status if code == 200 else code, message)

            def setup(self):
                outer.connections += 1
                super().setup()
                self.rfile = Recorded(self.rfile, outer.pieces)

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # clients break off

        self.server = Quiet((address, port), RecordingHandler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            if newest:
                context.set_ciphers("DEFAULT:@SECLEVEL=0")
                context.minimum_version = context.maximum_version = newest
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def received(self):
        return b"".join(self.pieces)

    def forget(self):
        self.pieces.clear()
        self.connections = 0

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Echo:
    """TCP that speaks first and says again what it hears."""

    def __init__(self, address, port):
        class EchoHandler(socketserver.BaseRequestHandler):
            def handle(self):
                # Whoever is reset is what some tests are about.
                with contextlib.suppress(ConnectionError):
                    self.request.sendall(b"welcome\n")
                    while data := self.request.recv(65536):
                        self.request.sendall(data)

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self.server = socketserver.ThreadingTCPServer((address, port), EchoHandler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Internet:
    """A network namespace that a wire leads to, with these addresses."""

    def __init__(self, *addresses):
        self.servers = []
        self.process = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "echo; exec sleep 1200"], stdout=subprocess.PIPE)
        self.process.stdout.readline()  # it is in its namespace by now
        inside = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--"]
        for prefix, words in (([], f"link add wire type veth peer name wire netns {self.process.pid}"),
                              ([], f"addr add {OWN}/30 dev wire"), ([], "link set wire up"),
                              (inside, f"addr add {PEER}/30 dev wire"), (inside, "link set wire up"),
                              (inside, "link set lo up"), ([], f"route add default via {PEER}"),
                              *((inside, f"addr add {address}/32 dev lo") for address in addresses)):
            subprocess.run([*prefix, "ip", *words.split()], check=True)

    def serve(self, make, *arguments, **named):
        """A server of that class, made in there: a socket belongs to the namespace of its thread."""
        made = []

        def run():
            with open(f"/proc/{self.process.pid}/ns/net") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(make(*arguments, **named))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.servers.append(made[0])
        return made[0]

    def close(self):
        for server in self.servers:
            server.close()
        self.process.kill()
        self.process.communicate()


class Names:
    """A DNS server on 127.0.0.1:53. `zone` has addresses, a function of how often it was asked, or (priority, weight,
    port, target) of services (SRV). `asked` are the names,
    `numbers` the queries' own. `ttl`: seconds for which its answers hold."""

    def __init__(self, zone, ttl=0):
        self.zone, self.ttl, self.asked, self.numbers = zone, ttl, [], []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def receive(self):
        return self.socket.recvfrom(2048)

    def serve(self):
        while True:
            query, peer = self.receive()
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode(errors="replace"))
                at += 1 + query[at]
            kind = struct.unpack(">H", query[at + 1:at + 3])[0]
            name = ".".join(labels).lower()
            found = self.zone.get(name)
            if kind == 1:
                self.asked.append(name)
                self.numbers.append(query[:2])
                if callable(found):
                    found = found(self.asked.count(name))
            services = [one for one in found or [] if isinstance(one, tuple)] if not callable(found) else []
            if services:
                self.asked.append(name)
                data = [struct.pack(">HHH", *one[:3]) + b"".join(bytes([len(label)]) + label.encode() for label in one[3].split(".")) + b"\0"
                        for one in services] if kind == 33 else []
                answers = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, self.ttl, len(one)) + one for one in data)
                self.socket.sendto(query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(data), 0, 0) + query[12:at + 5] + answers, peer)
                continue
            head = query[:2] + struct.pack(">HHHHH", 0x8183 if found is None else 0x8180, 1, len(found or []) if kind == 1 else 0, 0, 0)
            answers = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, self.ttl, 4) + socket.inet_aton(a)
                               for a in found or []) if kind == 1 else b""
            self.socket.sendto(head + query[12:at + 5] + answers, peer)


def certificate(folder, *names, signer=None):
    """(file with key and certificate for these names, the certificate's text). Without `signer`, an earlier file of
    this function's for an authority, it signs itself."""
    path = folder / f"{re.sub('[^a-z0-9]', '_', names[0])}.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", f"/CN={names[0]}", "-keyout", path, "-out", f"{path}.crt"]
    if signer:
        words += ["-CA", f"{signer}.crt", "-CAkey", signer, "-addext", "basicConstraints=CA:FALSE"]
    words += ["-addext", "subjectAltName=" + ",".join(f"IP:{n}" if re.fullmatch(r"[\d.]+", n) else f"DNS:{n}" for n in names)]
    subprocess.run(words, check=True, capture_output=True)
    with open(f"{path}.crt") as file:
        text = file.read()
    with open(path, "a") as file:
        file.write(text)
    return path, text


def expired_certificate(folder, name, signer):
    """As `certificate`, of yesterday and the day before; the file."""
    path = folder / "expired.pem"
    extensions = folder / "expired.ext"
    extensions.write_text(f"basicConstraints=CA:FALSE\nsubjectAltName=DNS:{name}\n")
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                    "-keyout", path, "-out", f"{path}.csr"], check=True, capture_output=True)
    text = subprocess.run(["openssl", "x509", "-req", "-in", f"{path}.csr", "-CA", f"{signer}.crt", "-CAkey", signer, "-days", "-1",
                           "-extfile", extensions], check=True, capture_output=True, text=True).stdout
    with open(path, "a") as file:
        file.write(text)
    return path


def enter(file, stage, variable, hosts=""):
    """Runs the class `stage` of the test `file` in namespaces of its own, with `variable` set; its status."""
    with harness.Caller("root") as caller:
        names = caller.write("hosts", f"127.0.0.1 localhost\n::1 localhost\n{hosts}", 0o644)
        resolver = caller.write("resolver", "nameserver 127.0.0.1\n", 0o644)
        script = ('set -e; ip link set lo up; [ -z "$(ip route)" ]; mount --bind "$1" /etc/hosts; '
                  'target=$(readlink -f /etc/resolv.conf); [ -e "$target" ] || : > /etc/resolv.conf; '
                  'mount --bind "$2" "$(readlink -f /etc/resolv.conf)"; shift 2; exec "$@"')
        return subprocess.run(["unshare", "--net", "--mount", "--propagation=private", "--", "sh", "-c", script, "sh",
                               names, resolver, sys.executable, file, *stage],
                              env={**os.environ, variable: "1"}).returncode
