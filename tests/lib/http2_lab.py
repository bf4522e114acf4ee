"""Servers and a client of HTTP/2 for tests of the gateway, by Debian's h2 and grpcio (`is_there`)."""
import contextlib
import hashlib
import importlib.util
import json
import os
import socket
import ssl
import sys
import threading
import time

SYSTEM_PYTHON = "/usr/bin/python3"


def is_there():
    return all(map(importlib.util.find_spec, ("h2", "grpc")))


def use_system_python():
    """Runs this program again by the system's Python, where another one has not what Debian's has."""
    if not is_there() and sys.executable != SYSTEM_PYTHON and os.path.exists(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])


if is_there():
    import grpc
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions

# A connection frame by frame. What is asked goes out as it is, right or wrong; streams() is what came.
CLIENT = """
import hashlib, json, os, socket, ssl, sys, time
import h2.config, h2.connection, h2.events, h2.exceptions
token = os.environ.get("GH_TOKEN", "")
class Connection:
    def __init__(self, name="good.example.com", port=443, window=None):
        context = ssl.create_default_context(); context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(socket.create_connection((name, port), 10), server_hostname=name)
        self.socket.settimeout(15)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config); self.name = name; self.streams = {}; self.ended = None
        if window is not None: self.h2.local_settings[4] = window
        self.h2.initiate_connection(); self.flush()
    def flush(self):
        try: self.socket.sendall(self.h2.data_to_send())
        except OSError: pass  # turn() says how it ended
    def head(self, path="/public/a", method="GET", authority=None, more=(), scheme="https", leave=()):
        fields = [(":method", method), (":scheme", scheme), (":authority", authority or self.name), (":path", path)]
        return [f for f in fields if f[0] not in leave] + list(more)
    def ask(self, path="/public/a", body=None, end=True, **named):
        stream = self.h2.get_next_available_stream_id()
        self.streams[stream] = {"status": 0, "head": {}, "body": b"", "trailers": {}, "end": ""}
        self.h2.send_headers(stream, self.head(path, **named), end_stream=body is None and end)
        self.flush()
        if body is not None: self.say(stream, body, end)
        return stream
    def say(self, stream, body, end=False):
        while True:
            room = min(self.h2.local_flow_control_window(stream), 16384)
            if room == 0 and body:
                if not self.turn(): return
                continue
            piece, body = body[:room], body[room:]
            try: self.h2.send_data(stream, piece, end_stream=end and not body)
            except h2.exceptions.ProtocolError: return
            self.flush()
            if not body: return
    def turn(self):
        try: data = self.socket.recv(65536)
        except OSError as error: data = b""; self.ended = self.ended or type(error).__name__
        if not data: self.ended = self.ended or "end"; return False
        for event in self.h2.receive_data(data):
            name = type(event).__name__
            kept = self.streams.get(getattr(event, "stream_id", 0))
            if name == "ConnectionTerminated": self.ended = f"goaway {int(event.error_code)}"
            if kept is None: continue
            if name == "ResponseReceived": kept["head"] = dict(event.headers); kept["status"] = int(kept["head"][":status"])
            if name == "TrailersReceived": kept["trailers"] = dict(event.headers)
            if name == "DataReceived": kept["body"] += event.data; self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if name == "StreamEnded": kept["end"] = "whole"
            if name == "StreamReset": kept["end"] = f"reset {int(event.error_code)}"
        self.flush()
        return True
    def wait(self, *streams):
        while any(not self.streams[s]["end"] for s in streams or self.streams) and self.turn(): pass
        return [self.told(s) for s in streams or self.streams]
    def told(self, stream):
        s = self.streams[stream]
        why = s["head"].get("x-sandbox-egress", "").rpartition("reason=")[2]
        return " ".join(filter(None, (str(s["status"]), why, s["end"] if s["end"] != "whole" else "")))
"""


class Http2Server:
    """TLS and HTTP/2 alone. `requests` is every head that came, `pieces` every byte of every body, `trailers` what stood
    behind them. What it answers depends on the path's last word."""

    def __init__(self, address, port, certificate):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.set_alpn_protocols(["h2"])
        self.socket = socket.create_server((address, port))
        self.forget()
        threading.Thread(target=self.accept, daemon=True).start()

    def forget(self):
        self.requests, self.pieces, self.trailers, self.resets, self.connections = [], [], [], [], 0

    @property
    def received(self):
        return b"".join([json.dumps(self.requests + self.trailers).encode(), *self.pieces])

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.socket.accept()[0],), daemon=True).start()

    def serve(self, raw):
        # Clients break off, which is what some tests are about.
        with contextlib.suppress(OSError, h2.exceptions.ProtocolError), self.context.wrap_socket(raw, server_side=True) as stream:
            self.connections += 1
            connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
            connection.initiate_connection()
            stream.sendall(connection.data_to_send())
            heads, bodies, waiting = {}, {}, {}
            while data := stream.recv(65536):
                for event in connection.receive_data(data):
                    number = getattr(event, "stream_id", 0)
                    if isinstance(event, h2.events.RequestReceived):
                        heads[number], bodies[number] = dict(event.headers), b""
                        self.requests.append(event.headers)
                        self.begin(connection, number, heads[number])
                    elif isinstance(event, h2.events.DataReceived):
                        bodies[number] += event.data
                        self.pieces.append(event.data)
                        connection.acknowledge_received_data(event.flow_controlled_length, number)
                        if heads[number][":path"].endswith("/echo"):
                            connection.send_data(number, event.data)
                    elif isinstance(event, h2.events.TrailersReceived):
                        self.trailers.append(event.headers)
                    elif isinstance(event, h2.events.StreamReset):
                        self.resets.append(heads[number][":path"])
                        waiting.pop(number, None)
                    elif isinstance(event, h2.events.StreamEnded):
                        waiting[number] = self.answer(connection, number, heads[number], bodies[number])
                for number in list(waiting):
                    if self.send(connection, number, waiting[number]):
                        del waiting[number]
                stream.sendall(connection.data_to_send())
                if heads and list(heads.values())[-1][":path"].endswith("/bye"):
                    connection.close_connection()
                    stream.sendall(connection.data_to_send())
                    return

    def begin(self, connection, number, head):
        if head[":path"].endswith("/echo"):
            connection.send_headers(number, [(":status", "200"), ("content-type", "text/plain")])
        if head[":path"].endswith("/early"):
            connection.send_headers(number, [(":status", "200")])
            connection.send_data(number, b"enough", end_stream=True)

    def answer(self, connection, number, head, body):
        """What is still to be sent: [bytes, size of pieces, trailers]."""
        path, sent = head[":path"], head.get("authorization", "").rpartition(" ")[2]
        word = path.split("?")[0].rpartition("/")[2]
        if word == "early":
            return [b"", 1, None]
        if word == "echo":
            return [b"", 1, [("x-count", str(len(body)))]]
        if word == "hang":
            return [None, 1, None]
        if word == "reset":
            connection.send_headers(number, [(":status", "200")])
            connection.send_data(number, b"part")
            connection.reset_stream(number, 2)
            return [None, 1, None]
        more = {"header": [("x-echo", sent)], "alt": [("alt-svc", 'h3=":443"'), ("x-kept", "yes")], "gzip": [("content-encoding", "gzip")]}.get(word, [])
        if word == "none":
            connection.send_headers(number, [(":status", "204")], end_stream=True)
            return [None, 1, None]
        if head[":method"] == "HEAD":
            connection.send_headers(number, [(":status", "200"), ("content-length", "1234")], end_stream=True)
            return [None, 1, None]
        connection.send_headers(number, [(":status", "200"), *more])
        text = {"plain": sent.encode(), "split": sent.encode(), "large": b"0123456789abcdef" * (1 << 19)}.get(
            word, hashlib.sha256(body).hexdigest().encode() if word == "digest" else f"{head[':method']} {path} {len(body)}\n".encode())
        return [text, 1 if word == "split" else 16384, [("x-sent", sent)] if word == "trailer" else None]

    def send(self, connection, number, left):
        text, size, trailers = left
        if text is None:
            return True
        with contextlib.suppress(h2.exceptions.StreamClosedError):
            while text:
                room = min(connection.local_flow_control_window(number), connection.max_outbound_frame_size, size)
                if room == 0:
                    left[0] = text
                    return False
                connection.send_data(number, text[:room])
                text = text[room:]
            if trailers:
                connection.send_headers(number, trailers, end_stream=True)
            elif connection.streams[number].open:
                connection.end_stream(number)
        return True

    def close(self):
        self.socket.close()


class GrpcServer:
    """`heard` are the messages and the metadata that came."""

    def __init__(self, address, port, certificate):
        from concurrent import futures
        self.heard, self.cancelled = [], threading.Event()
        with open(certificate, "rb") as file:
            pem = file.read()
        key, chain = pem[:pem.index(b"-----BEGIN CERT")], pem[pem.index(b"-----BEGIN CERT"):]
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lab.Echo", {
            "Say": grpc.unary_unary_rpc_method_handler(self.say), "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum), "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail), "Hang": grpc.unary_unary_rpc_method_handler(self.hang)}),
            grpc.method_handlers_generic_handler("lab.Other", {"Say": grpc.unary_unary_rpc_method_handler(self.say)})))
        assert self.server.add_secure_port(f"{address}:{port}", grpc.ssl_server_credentials([(key, chain)])) == port
        self.server.start()

    def forget(self):
        self.heard.clear()
        self.cancelled.clear()

    @property
    def received(self):
        return b"".join(self.heard)

    def say(self, message, context):
        metadata = dict(context.invocation_metadata())
        self.heard += [message, json.dumps({k: str(v) for k, v in metadata.items()}).encode()]
        context.set_trailing_metadata((("x-behind", metadata.get("authorization", "none")),))
        return b"you said " + message

    def count(self, message, context):
        for number in range(int(message)):
            yield str(number).encode()

    def sum(self, messages, context):
        return str(sum(map(int, messages))).encode()

    def chat(self, messages, context):
        for message in messages:
            self.heard.append(message)
            yield message[::-1]

    def fail(self, message, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "there is no such thing: \u00fc")

    def hang(self, message, context):
        context.add_callback(self.cancelled.set)
        while context.is_active():
            time.sleep(0.05)
        return b""

    def close(self):
        self.server.stop(None)
