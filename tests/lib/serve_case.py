"""What tests of the server by E2B's wire share: one server for a class, and how it is asked, without an SDK."""
import base64
import json
import struct
import unittest
import urllib.error
import urllib.request

import serve_lab

TAG = "long one"


class Case(unittest.TestCase):
    """One server for all tests of a class, and how it is asked."""

    @classmethod
    def setUpClass(cls):
        context = serve_lab.fresh()
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def ask(self, method, path, body=None, sandbox=None):
        """(status, answer)"""
        headers = {"X-API-KEY": self.server.key, "Content-Type": "application/json"}
        if sandbox:
            headers |= {"E2b-Sandbox-Id": sandbox["sandboxID"], "X-Access-Token": sandbox["envdAccessToken"]}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server.address["url"] + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def create(self, **values):
        status, sandbox = self.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300, **values})
        self.assertEqual(status, 201, sandbox)
        return sandbox

    def start(self, sandbox, command):
        """Starts a command and goes away as soon as it runs; its pid inside."""
        for event in self.stream(sandbox, "Start", {"process": {"cmd": "/bin/sh", "args": ["-c", command]}, "tag": TAG}):
            return event["start"]["pid"]

    def stream(self, sandbox, method, body):
        """The events of a stream of process.Process; whoever stops reading closes it."""
        message = json.dumps(body).encode()
        headers = {"E2b-Sandbox-Id": sandbox["sandboxID"], "X-Access-Token": sandbox["envdAccessToken"],
                   "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        request = urllib.request.Request(f"{self.server.address['url']}/process.Process/{method}",
                                         b"\0" + struct.pack(">I", len(message)) + message, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            while head := answer.read(5):
                flags, length = struct.unpack(">BI", head)
                text = answer.read(length)
                if flags & 2:
                    return
                if event := json.loads(text).get("event"):
                    yield event

    def output_of(self, sandbox, command):
        """What a command says on standard output until it ends with success."""
        output, end = b"", None
        for event in self.stream(sandbox, "Start", {"process": {"cmd": "/bin/sh", "args": ["-c", command]}}):
            output += base64.b64decode(event.get("data", {}).get("stdout", ""))
            end = event.get("end", end)
        self.assertEqual((end or {}).get("exitCode", 0), 0, (command, output, end))
        return output.decode()

    def listed(self):
        return {found["sandboxID"]: found for found in self.ask("GET", "/v2/sandboxes")[1]}
