"""What the tests of pulling need: images made by other tools, a real registry, and servers that misbehave.

Everything listens on loopback, on ports that were free a moment ago, and lives in a folder of the test. Registry
is Debian's docker-registry; images are made with umoci and pushed with skopeo. Proxy stands before a registry and
cuts, slows, changes or counts what goes through. Scripted answers as a test says. TokenServer is ours, for the
tests alone: it gives signed tokens to whoever has the right login.
"""
import base64
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import socket
import subprocess
import tarfile
import threading
import time
import urllib.parse
import urllib.request

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def run(*command, **options):
    """A helper program's output; its failure shows what it said."""
    done = subprocess.run([str(word) for word in command], capture_output=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}")
    return done.stdout


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar_of(files):
    """A layer's tar: {name: bytes, or a symbolic link's target as text}; bytes below bin/ are programs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755 if name.startswith("bin/") else 0o644
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def make_layout(folder, layers, tag="t", config=()):
    """An OCI layout made by umoci: one layer for each mapping of files. Its folder."""
    layout = folder / "layout"
    if not layout.exists():
        run("umoci", "init", "--layout", layout)
    run("umoci", "new", "--image", f"{layout}:{tag}")
    for number, files in enumerate(layers):
        archive = folder / f"layer-{tag}-{number}.tar"
        archive.write_bytes(tar_of(files))
        run("umoci", "raw", "add-layer", "--image", f"{layout}:{tag}", archive)
    if config:
        run("umoci", "config", "--image", f"{layout}:{tag}", *config)
    return layout


class Process:
    """A started program that stop() ends."""

    def __init__(self, command, log):
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=output, env={**os.environ, "OTEL_TRACES_EXPORTER": "none"})

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Registry:
    """docker-registry with a configuration and data of its own; `name` is HOST:PORT."""

    def __init__(self, folder, tls=None, auth=None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(10):
            self.port = free_port()
            self.name = f"localhost:{self.port}" if tls else f"127.0.0.1:{self.port}"
            settings = {"version": "0.1", "log": {"level": "info"},
                        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
                        "http": {"addr": f"127.0.0.1:{self.port}"}}
            if tls:
                settings["http"]["tls"] = {"certificate": str(tls.certificate), "key": str(tls.key)}
            if auth:
                settings["auth"] = auth
            config = folder / "config.yml"
            config.write_text(json.dumps(settings))  # JSON is YAML
            self.server = Process(["docker-registry", "serve", config], folder / "log")
            if self._answers():
                return
            self.server.stop()
        raise AssertionError(f"docker-registry does not start: {(folder / 'log').read_text()[-2000:]}")

    def _answers(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.server.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            except OSError:
                time.sleep(0.05)
        return False

    def push(self, layout, tag, name, *options):
        run("skopeo", "copy", "--dest-tls-verify=false", *options, f"oci:{layout}:{tag}", f"docker://{self.name}/{name}")

    def put_manifest(self, name, tag, text, media_type):
        """Straight into the registry, for manifests that no tool makes."""
        request = urllib.request.Request(f"http://{self.name}/v2/{name}/manifests/{tag}", data=text, method="PUT",
                                         headers={"Content-Type": media_type})
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 201, answer.status

    def get_manifest(self, name, tag):
        request = urllib.request.Request(f"http://{self.name}/v2/{name}/manifests/{tag}",
                                         headers={"Accept": f"{MANIFEST}, {INDEX}"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def stop(self):
        self.server.stop()


class Tls:
    """A certificate of `localhost` from an authority of its own, made by openssl."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = folder / "authority.pem"
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=test authority",
            "-keyout", folder / "authority.key", "-out", self.authority)
        run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", self.key,
            "-out", folder / "server.csr")
        extensions = folder / "extensions"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        run("openssl", "x509", "-req", "-in", folder / "server.csr", "-CA", self.authority, "-CAkey",
            folder / "authority.key", "-CAcreateserial", "-days", "3650", "-extfile", extensions, "-out", self.certificate)
        self.authority.chmod(0o644)


class Server:
    """A threaded HTTP server on loopback. Subclasses answer(handler); `seen` holds (path, headers) of each request."""

    def __init__(self, address="127.0.0.1", port=0):
        outer = self
        self.seen = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.seen.append((self.path, dict(self.headers)))
                try:
                    outer.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.httpd = http.server.ThreadingHTTPServer((address, port), Handler)
        self.httpd.daemon_threads = True
        self.port = self.httpd.server_address[1]
        self.name = f"{address}:{self.port}"
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def answer(self, handler):
        raise NotImplementedError

    def stop(self):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()

    def paths(self, part):
        return [path for path, _ in self.seen if part in path]


def reply(handler, status, body=b"", headers=()):
    handler.send_response(status)
    for name, value in dict(headers).items():
        handler.send_header(name, value)
    if "Content-Length" not in dict(headers):
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


class Scripted(Server):
    """Answers {path: (status, body, headers) or a function of the handler}; /v2/ is there by itself."""

    def __init__(self, answers, **options):
        self.answers = {"/v2/": (200, b"{}", {}), **answers}
        super().__init__(**options)

    def answer(self, handler):
        made = self.answers.get(handler.path, (404, b'{"errors":[{"code":"UNKNOWN"}]}', {}))
        if callable(made):
            made(handler)
        else:
            reply(handler, *made)


def image_answers(name, layers, tag="1", architecture=None, platform_os="linux"):
    """The answers of a registry with one image of these layers (tars), and the parts it is made of."""
    architecture = architecture or {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = json.dumps({"os": platform_os, "architecture": architecture, "config": {},
                         "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]}}).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
        "layers": [{"mediaType": LAYER, "digest": digest(layer), "size": len(layer)} for layer in layers]}).encode()
    answers = {f"/v2/{name}/blobs/{digest(blob)}": (200, blob, {}) for blob in (config, *layers)}
    for selector in (tag, digest(manifest)):
        answers[f"/v2/{name}/manifests/{selector}"] = (200, manifest, {"Content-Type": MANIFEST})
    return answers, manifest, config


class Proxy(Server):
    """Before a registry. blob(handler, status, headers, body) may answer in its place; without it all goes through."""

    def __init__(self, registry, blob=None):
        self.registry, self.blob = registry, blob
        super().__init__()

    def answer(self, handler):
        connection = http.client.HTTPConnection("127.0.0.1", self.registry.port)
        sent = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "connection")}
        connection.request("GET", handler.path, headers=sent)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding", "date", "server")}
        if self.blob and "/blobs/" in handler.path:
            self.blob(handler, answer.status, headers, body)
        else:
            reply(handler, answer.status, body, headers)


class TokenServer(Server):
    """Gives tokens for docker-registry to one login. `registry_auth` is what the registry's settings say about it."""

    def __init__(self, folder, user, password):
        folder.mkdir(parents=True, exist_ok=True)
        self.user, self.password, self.key = user, password, folder / "token.key"
        certificate = folder / "token.pem"
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=tokens",
            "-keyout", self.key, "-out", certificate)
        der = run("openssl", "x509", "-in", certificate, "-outform", "DER")
        self.chain = [base64.b64encode(der).decode()]
        super().__init__()
        self.registry_auth = {"token": {"realm": f"http://{self.name}/token", "service": "test-registry",
                                        "issuer": "test-issuer", "rootcertbundle": str(certificate)}}

    def answer(self, handler):
        given = handler.headers.get("Authorization", "")
        if given != "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode():
            return reply(handler, 401, b'{"details":"no"}')
        query = urllib.parse.parse_qs(urllib.parse.urlparse(handler.path).query)
        kind, name, actions = query["scope"][0].split(":")
        now = int(time.time())
        part = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")  # noqa: E731
        text = part({"typ": "JWT", "alg": "RS256", "x5c": self.chain}) + b"." + part({
            "iss": "test-issuer", "sub": self.user, "aud": query["service"][0], "iat": now - 60, "nbf": now - 60,
            "exp": now + 600, "jti": str(len(self.seen)),
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}]})
        signature = run("openssl", "dgst", "-sha256", "-sign", self.key, input=text)
        token = (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()
        return reply(handler, 200, json.dumps({"token": token, "expires_in": 600}).encode())


def login_file(folder, name, user, password):
    """A config.json with this login; the folder is what DOCKER_CONFIG names."""
    folder.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {name: {"auth": auth}}}))
    return folder


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*") if path.is_file())
