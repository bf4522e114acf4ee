"""The server's HTTP with many connections, and with clients that take their time."""
import json
import os
import pathlib
import resource
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

MANY = 10_000
MANY_SECURE = 1_000
# Loose: 5 and 25 KB, and 140 KB for who takes nothing, were measured.
MOST_PER_CONNECTION = 10_000
MOST_PER_SECURE_CONNECTION = 80_000
MOST_PER_SLOW_READER = 300_000


def request(path):
    return f"GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode()


def read_answer(connection):
    """The body of an answer with a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            raise EOFError(data)
        data += more
    head, body = data.split(b"\r\n\r\n", 1)
    length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")).split(b":")[1])
    while len(body) < length:
        body += connection.recv(65536)
    return body


class HttpLoad(unittest.TestCase):
    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MANY + 1000
        if hard < wanted:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            except (ValueError, OSError):
                self.skipTest(f"at most {hard} open files here, {wanted} are needed")
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.open = []
        self.addCleanup(lambda: [connection.close() for connection in self.open])

    def start(self, *arguments):
        tool = pathlib.Path(os.environ["CAISSON_BUILD"]) / "tests" / "caisson_http_tool"
        server = subprocess.Popen([tool, *arguments], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.port = int(server.stdout.readline())

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.open.append(connection)
        return connection

    def ask(self, connection, path):
        connection.sendall(request(path))
        return read_answer(connection)

    def counts(self, connection):
        return json.loads(self.ask(connection, "/counts"))

    def wait_until(self, what, seconds=30):
        until = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)

    def test_ten_thousand_idle_connections(self):
        self.start()
        watch = self.connect()
        before = self.counts(watch)
        idle = [self.connect() for _ in range(MANY)]
        for connection in idle:
            self.assertEqual(self.ask(connection, "/hello"), b"hello")
        after = self.counts(watch)
        self.assertEqual(after["connections"], MANY + 1)
        each = (after["memory"] - before["memory"]) / MANY
        print(f"an idle connection: {each:.0f} bytes")
        self.assertLess(each, MOST_PER_CONNECTION)
        # All of them are still good, and a new one is served at once.
        for connection in idle[:: MANY // 100]:
            self.assertEqual(self.ask(connection, "/hello"), b"hello")
        began = time.monotonic()
        self.assertEqual(self.ask(self.connect(), "/hello"), b"hello")
        self.assertLess(time.monotonic() - began, 1)
        # What was freed serves the next ones: a second time costs no more than the first.
        for connection in idle:
            connection.close()
        self.wait_until(lambda: self.counts(watch)["connections"] <= 2)
        idle = [self.connect() for _ in range(MANY)]
        for connection in idle:
            self.assertEqual(self.ask(connection, "/hello"), b"hello")
        again = self.counts(watch)
        print(f"10 000 of them: {after['memory'] / 1e6:.1f} MB, the second time {again['memory'] / 1e6:.1f} MB")
        self.assertLess(again["memory"], after["memory"] * 1.2)

    def test_who_takes_nothing_is_bounded_and_cut_off_and_delays_nobody(self):
        self.start()
        watch = self.connect()
        before = self.counts(watch)
        slow = [self.connect() for _ in range(100)]
        for connection in slow:
            connection.sendall(request("/stream"))
        slowest = 0
        during = before
        until = time.monotonic() + 1
        while time.monotonic() < until:
            began = time.monotonic()
            during = max(during, self.counts(watch), key=lambda counts: counts["memory"])
            slowest = max(slowest, time.monotonic() - began)
        each = (during["memory"] - before["memory"]) / len(slow)
        print(f"a client that takes nothing: {each:.0f} bytes; the slowest answer beside them took {slowest * 1000:.0f} ms")
        self.assertLess(each, MOST_PER_SLOW_READER)
        self.assertLess(slowest, 1)
        self.wait_until(lambda: self.counts(watch)["connections"] == 1)

    def test_heads_that_come_slowly_end_in_time(self):
        self.start()
        watch = self.connect()
        slow = [self.connect() for _ in range(500)]
        began = time.monotonic()
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        # A byte now and then does not help.
        while time.monotonic() - began < 1.5:
            for connection in slow:
                connection.sendall(b"x")
            time.sleep(0.3)
        for connection in slow:
            answer = connection.recv(65536)
            self.assertTrue(answer.startswith(b"HTTP/1.1 408 "), answer)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(self.ask(watch, "/hello"), b"hello")

    def test_uploads_are_as_long_as_they_were_sent(self):
        self.start()
        connection = self.connect()
        size = 200_000_000
        piece = b"x" * 1_000_000
        began = time.monotonic()
        connection.sendall(f"POST /upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: {size}\r\n\r\n".encode())
        for _ in range(size // len(piece)):
            connection.sendall(piece)
        self.assertEqual(read_answer(connection), str(size).encode())
        print(f"uploaded with {size / (time.monotonic() - began) / 1e6:.0f} MB/s")
        self.assertLess(self.counts(connection)["memory"], 50e6)

    def test_idle_connections_over_tls(self):
        folder = tempfile.mkdtemp(prefix="caisson-http-")
        self.addCleanup(shutil.rmtree, folder)
        self.start("secure", folder)
        context = ssl.create_default_context(cafile=folder + "/ca.pem")

        def connect():
            connection = context.wrap_socket(self.connect(), server_hostname="a.example.com")
            self.open.append(connection)
            return connection

        watch = connect()
        before = self.counts(watch)
        for _ in range(MANY_SECURE):
            self.assertEqual(self.ask(connect(), "/hello"), b"hello")
        each = (self.counts(watch)["memory"] - before["memory"]) / MANY_SECURE
        print(f"an idle connection over TLS: {each:.0f} bytes")
        self.assertLess(each, MOST_PER_SECURE_CONNECTION)


if __name__ == "__main__":
    unittest.main()
