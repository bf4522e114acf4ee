"""A raw client of the server for measuring: E2B's wire with nothing between us and the socket.

One Client is one connection that is kept; it belongs to one asyncio task. Only what the benchmark calls
is here, and bodies are small: a sandbox that sends more than LIMIT is an error.
"""
import asyncio
import base64
import json

LIMIT = 1 << 20


class WireError(Exception):
    """The server's answer is not what was asked for; the text says what came."""


class Client:
    def __init__(self, host, port, key):
        self.host, self.port, self.key = host, port, key
        self.reader = self.writer = None

    async def request(self, method, path, body=None, headers=()):
        """(status, body) of one request."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=LIMIT)
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"X-API-KEY: {self.key}", f"Content-Length: {len(payload)}"]
        if not any(name.lower() == "content-type" for name, _ in headers):
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in headers]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
        await self.writer.drain()
        return await self.answer()

    async def answer(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
                if len(body) > LIMIT:
                    raise WireError("an answer without end")
            await self.reader.readuntil(b"\r\n")
        else:
            body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection", "").lower() == "close":
            self.close()
        return status, body

    async def create(self, template, timeout):
        """The sandbox's id and token."""
        status, body = await self.request("POST", "/v2/sandboxes", {"templateID": template, "timeout": timeout})
        if status != 201:
            raise WireError(f"create: {status} {body[:300]!r}")
        made = json.loads(body)
        return made["sandboxID"], made.get("envdAccessToken", "")

    async def run(self, sandbox, command):
        """The standard output of a command, as the SDKs start it."""
        identity, token = sandbox
        message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command]}, "stdin": False}).encode()
        headers = [("E2b-Sandbox-Id", identity), ("E2b-Sandbox-Port", "49983"), ("X-Access-Token", token),
                   ("Content-Type", "application/connect+json"), ("Connect-Protocol-Version", "1"), ("Connect-Timeout-Ms", "60000")]
        status, body = await self.request("POST", "/process.Process/Start", b"\0" + len(message).to_bytes(4, "big") + message, headers)
        if status != 200:
            raise WireError(f"run: {status} {body[:300]!r}")
        output, ended = b"", None
        for flags, text in envelopes(body):
            if flags & 2:
                if "error" in text:
                    raise WireError(f"run: {text['error']}")
                break
            event = text.get("event", {})
            output += base64.b64decode(event.get("data", {}).get("stdout", ""))
            ended = event.get("end", ended)
        else:
            raise WireError("run: the stream has no end")
        if ended is None or ended.get("exitCode", 0) != 0:
            raise WireError(f"run: ended with {ended}")
        return output

    async def kill(self, sandbox):
        status, body = await self.request("DELETE", f"/sandboxes/{sandbox[0]}")
        if status not in (204, 404):
            raise WireError(f"kill: {status} {body[:300]!r}")

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.reader = self.writer = None


def envelopes(body):
    """[(flags, message)] of a Connect stream in JSON."""
    found, at = [], 0
    while at < len(body):
        if len(body) < at + 5 or len(body) < at + 5 + int.from_bytes(body[at + 1:at + 5], "big"):
            raise WireError("an envelope is cut short")
        size = int.from_bytes(body[at + 1:at + 5], "big")
        found.append((body[at], json.loads(body[at + 5:at + 5 + size])))
        at += 5 + size
    return found
