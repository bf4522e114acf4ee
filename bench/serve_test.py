#!/usr/bin/env python3
"""The server benchmark's own tests: its client, its tables, what is missing; with a made-up server."""

import asyncio
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))
import serve
from lib import e2b_client


def envelope(flags, message):
    text = json.dumps(message).encode()
    return bytes([flags]) + len(text).to_bytes(4, "big") + text


def chunked(*pieces):
    return b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces) + b"0\r\n\r\n"


def plain(status, body):
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def stream(*pieces):
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(*pieces)


END = envelope(2, {})
DATA = envelope(0, {"event": {"data": {"stdout": "aGk="}}})


def call(answers, action):
    """action(client) against a server that gives these answers in turn; its requests are in `seen`."""
    seen = []

    async def whole():
        async def serve_one(reader, writer):
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                seen.append((head, await reader.readexactly(length)))
                writer.write(answer)
                await writer.drain()
            writer.close()

        listener = await asyncio.start_server(serve_one, "127.0.0.1", 0)
        client = e2b_client.Client("127.0.0.1", listener.sockets[0].getsockname()[1], "e2b_0")
        try:
            return await action(client)
        finally:
            client.close()
            listener.close()

    return asyncio.run(whole()), seen


class Client(unittest.TestCase):
    def test_create_run_and_kill_on_one_connection(self):
        async def action(client):
            sandbox = await client.create("base", 5)
            output = await client.run(sandbox, "echo hi")
            await client.kill(sandbox)
            return sandbox, output

        end = envelope(0, {"event": {"end": {"exited": True}}})
        whole = envelope(0, {"event": {"start": {"pid": 1}}}) + DATA + end + END
        result, seen = call([plain(201, b'{"sandboxID": "i1", "envdAccessToken": "t"}'), stream(whole[:7], whole[7:]), plain(204, b"")], action)
        self.assertEqual(result, (("i1", "t"), b"hi"))
        self.assertIn(b"X-API-KEY: e2b_0\r\n", seen[0][0])
        self.assertIn(b"E2b-Sandbox-Id: i1\r\n", seen[1][0])
        self.assertEqual(json.loads(seen[1][1][5:])["process"]["args"], ["-l", "-c", "echo hi"])

    def test_what_is_no_success(self):
        async def create(client):
            await client.create("base", 5)

        async def run(client):
            await client.run(("i1", ""), "true")

        failed = envelope(0, {"event": {"end": {"exitCode": 3}}})
        for action, answer, words in ((create, plain(429, b"enough"), "429"), (run, plain(502, b""), "502"), (run, stream(DATA), "no end"),
                                      (run, stream(END), "ended with None"), (run, stream(failed + END), "'exitCode': 3"),
                                      (run, stream(envelope(2, {"error": {"code": "internal"}})), "internal"), (run, stream(DATA[:6]), "cut short")):
            with self.assertRaisesRegex(e2b_client.WireError, words):
                call([answer], action)


FIGURES = {"create": [1000, 2000, 3000], "create and first command": [5000, 6000, 7000], "kill": [100, 100, 100]}
BEFORE = dict.fromkeys(("server", "sandboxes", "processes", "MemAvailable", "Slab", "KernelStack", "PageTables"), 0)
AFTER = {"server": 2048, "sandboxes": 20480, "processes": 30, "MemAvailable": -40960, "Slab": 10240, "KernelStack": 100, "PageTables": 200}


class Report(unittest.TestCase):
    def test_each_part_has_its_table_or_its_reason(self):
        parts = {"one": {"times_us": {"raw client": FIGURES}, "missing_sdk": "no npm"},
                 "burst 7": {"size": 3, "bursts": [{"create alone": [500], "create": [1000], "create and first command": [9000], "all": 12000}]},
                 "live": {"count": 10, "before": BEFORE, "after": AFTER, "times_us": {"with 10 live": FIGURES}}}
        text = serve.report({"date": "2026-01-01", "remark": "", "host": {"kernel": "6.1"}, "arguments": ["--x"], "parts": parts})
        self.assertIn("| create and first command, raw client | 6.00 ms | 7.00 ms | 7.00 ms | 7.00 ms |", text)
        self.assertIn("E2B's SDK was not measured: no npm", text)
        self.assertIn("| create alone, 3 at the same time | 0.50 ms |", text)
        self.assertIn("1 bursts; from the first request to the end of the last command 12 to 12 ms", text)
        self.assertIn("| its processes (PSS) | 2048 KiB in 3.0 processes |", text)
        self.assertIn("| all, by the fall of MemAvailable | 4096 KiB |", text)
        self.assertIn("started with `--x`", text)
        self.assertIn("### Many at the same time, 7 made ahead", text)

    def test_the_document_has_its_markers(self):
        document = (serve.ROOT / "docs" / "benchmarks.md").read_text()
        self.assertEqual((document.count(serve.BEGIN), document.count(serve.END)), (1, 1))


class Whole(unittest.TestCase):
    def test_a_part_without_a_server_is_named_with_its_reason(self):
        @contextlib.contextmanager
        def none(arguments, run):
            raise serve.serve_lab.ServerError("there is no server")
            yield

        with tempfile.TemporaryDirectory() as folder, mock.patch("sys.stderr", io.StringIO()):
            options = serve.parse(["--parts", "one", "--pool", "3", "--json", f"{folder}/made/serve.json"])
            result = serve.measure(options, start=none)
            self.assertEqual(serve.report(result).count("Not measured: there is no server"), 2)
            self.assertEqual(json.loads((Path(folder) / "made" / "serve.json").read_text())["parts"], result["parts"])

    def test_wrong_options(self):
        for wrong in (["--parts", "two"], ["--rounds", "0"], ["--live", "0"]):
            with self.assertRaises(SystemExit), mock.patch("sys.stderr", io.StringIO()):
                serve.parse(wrong)


if __name__ == "__main__":
    unittest.main()
