"""E2B's wire as it is, without an SDK: what tests ask a serve_lab.Server for, by HTTP and JSON."""
import base64
import json
import struct
import urllib.error
import urllib.request

TIMEOUT = 60


class Wire:
    def __init__(self, server):
        self.server = server

    def ask(self, method, path, body=None, sandbox=None, headers=None):
        """(status, answer), of the control plane or of a sandbox."""
        sent = {"X-API-KEY": self.server.key, "Content-Type": "application/json", **(headers or {})}
        if sandbox:
            sent |= self.of(sandbox)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.server.address["url"] + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    @staticmethod
    def of(sandbox):
        return {"E2b-Sandbox-Id": sandbox["sandboxID"], "X-Access-Token": sandbox["envdAccessToken"]}

    def create(self, **values):
        status, sandbox = self.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 300, **values})
        if status != 201:
            raise AssertionError(f"create: {status} {sandbox}")
        return sandbox

    def kill(self, *sandboxes):
        for sandbox in sandboxes:
            self.ask("DELETE", f"/sandboxes/{sandbox['sandboxID']}")

    def stream(self, sandbox, method, body, user=""):
        """The events of a stream of process.Process, as they come; whoever stops reading closes it."""
        message = json.dumps(body).encode()
        headers = {**self.of(sandbox), "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        request = urllib.request.Request(f"{self.server.address['url']}/process.Process/{method}",
                                         b"\0" + struct.pack(">I", len(message)) + message, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            while head := answer.read(5):
                flags, length = struct.unpack(">BI", head)
                text = json.loads(answer.read(length))
                if flags & 2:
                    if "error" in text:
                        raise ValueError(f"{body}: {text['error']}")
                    return
                if event := text.get("event"):
                    yield event

    def events(self, sandbox, command, tag="", user=""):
        """Those of a command."""
        return self.stream(sandbox, "Start", {"process": {"cmd": "/bin/bash", "args": ["-c", command]}, "tag": tag}, user)

    def start(self, sandbox, command, tag=""):
        """Starts a command and goes away as soon as it runs; its pid inside."""
        stream = self.events(sandbox, command, tag)
        pid = next(stream)["start"]["pid"]
        stream.close()
        return pid

    def run(self, sandbox, command, user=""):
        """(exit code, standard output)"""
        out = b""
        for event in self.events(sandbox, command, user=user):
            out += base64.b64decode(event.get("data", {}).get("stdout", ""))
            if "end" in event:
                return event["end"].get("exitCode", 0), out.decode()
        raise AssertionError(f"{command}: its stream ended without an end")
