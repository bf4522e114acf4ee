"""A caisson-serve for tests and benchmarks: on a free port, with folders of its own, until stop().

This file alone knows how the server is started and what it says then. It is called as

    caisson-serve --listen 127.0.0.1:0 --state-dir DIR --run-dir DIR --print-address ARG…

and its first line on standard output is one JSON object: `url` (plain HTTP), the first time `api_key`, and
where it speaks TLS `domain` (with the port; sandboxes are names below it) and `ca` (the certificate to
trust). Its sandboxes live in a folder of the run directory, apart from those of `caisson run`.

Clients find the server by `environment()`: in the form "plain" all goes to one address and sandboxes are
named by headers; in the form "domain" each has a host name of its own, as the SDKs have it by default.
Names below the domain are answered with 127.0.0.1 inside the client (resolve.cjs): a host's resolver knows
no wildcards for tests. No request leaves the machine.
"""
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time

import harness

LIB = pathlib.Path(__file__).resolve().parent
DOMAIN = "e2b.test"
READY_SECONDS = 60
ARCHIVE = harness.ROOT / "build" / "images" / "base.tar.zst"


class ServerError(Exception):
    """The server does not run; the text says why."""


class Server:
    """A server that runs as this harness.Caller; `arguments` are further options of caisson-serve."""

    def __init__(self, caller, *, arguments=(), tls=False, preset="release"):
        self.caller, self.preset = caller, preset
        self.log = caller.folder / "serve.log"
        self.arguments = [*arguments, *(["--tls-listen", "127.0.0.1:0", "--tls-domain", DOMAIN, "--tls-dev", "true"] if tls else [])]
        self.process, self.address, self.key = None, {}, ""
        self.start()

    def start(self):
        """Starts it (again): with the same folders, on another port."""
        program = self.caller.programs(self.preset) / "caisson-serve"
        if not program.exists():
            raise ServerError(f"{program} is missing: build the {self.preset} preset first")
        command = self.caller.command("--listen", "127.0.0.1:0", "--print-address", "--state-dir", self.caller.env["CAISSON_STATE_DIR"],
                                      "--run-dir", self.caller.env["CAISSON_RUN_DIR"], *self.arguments,
                                      preset=self.preset, program="caisson-serve")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=self.caller.env, cwd=self.caller.home, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log)
        self.address = json.loads(self._first_line())
        self.key = self.address.get("api_key") or self.key or self.new_key()
        return self

    def _first_line(self):
        line, end = b"", time.monotonic() + READY_SECONDS
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            piece = self.process.stdout.read1(4096) if ready else b""
            if not piece:
                self.stop()
                raise ServerError(f"caisson-serve printed no address ({'ended' if ready else f'waited {READY_SECONDS} s'}):\n{self.said()}")
            line += piece
        return line

    def new_key(self, *arguments):
        done = self.caller.caisson("key", "create", "--state-dir", self.caller.env["CAISSON_STATE_DIR"], *arguments)
        found = re.search(r"\be2b_[0-9a-f]{40}\b", done.out)
        if done.returncode != 0 or not found:
            raise ServerError(f"no key: {done}")
        return found.group()

    @property
    def run_folder(self):
        return pathlib.Path(self.caller.env["CAISSON_RUN_DIR"]) / "serve"

    def sandboxes(self):
        """What lives, and what has not been removed yet: names of folders."""
        folder = self.run_folder / "sandboxes"
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def end_sandboxes(self, patience=10):
        """Ends what the server left running; what is there still after that time."""
        self.caller.caisson("kill", "--all", env={"CAISSON_RUN_DIR": str(self.run_folder)})
        harness.wait_until(lambda: not self.sandboxes(), patience)
        return self.sandboxes()

    def said(self, last=4000):
        """The end of its log."""
        return self.log.read_text(errors="replace")[-last:] if self.log.exists() else ""

    def environment(self, form="plain"):
        """What an SDK's process needs in its environment to use this server."""
        return client_environment(form, self.key, url=self.address["url"], domain=self.address.get("domain"), ca=self.address.get("ca"))

    def stop(self, how=signal.SIGTERM, patience=20):
        """Ends it; its sandboxes go on. The status that it ended with."""
        if self.process is None:
            return None
        self.process.send_signal(how)
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise ServerError(f"caisson-serve did not end {patience} s after signal {how}:\n{self.said()}") from None
        finally:
            self.process.stdout.close()
            self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@contextlib.contextmanager
def fresh(*, images=("base",), tls=False, arguments=(), run=None):
    """A new server of root's, with the base image under these names; at the end nothing of it is left. `run`: a
    folder for its run directory, which is removed too."""
    if os.geteuid() != 0:
        raise ServerError("only root's server can be tried like this: the base image's users need a range of ids")
    if not ARCHIVE.exists():
        raise ServerError(f"{ARCHIVE} is missing: ./dev image builds it")
    harness.require_programs()
    harness.subreaper()
    with harness.Caller("root", run) as caller:
        # The server is nobody that these folders know; of what is in them it is told the names.
        for folder in (caller.run, caller.folder / "state"):
            folder.chmod(0o711)
        for name in images:
            done = caller.caisson("image", "import", name, ARCHIVE, timeout=120)
            if done.returncode != 0:
                raise ServerError(f"no image {name}: {done}")
        server = Server(caller, tls=tls, arguments=arguments)
        try:
            with server:
                yield server
        finally:
            left = server.end_sandboxes()
        if left:
            raise ServerError(f"sandboxes were left behind: {left}")


def client_environment(form, key, *, url=None, domain=None, ca=None):
    """The variables by which an SDK finds a server, for the form "plain" or "domain"."""
    found = {"E2B_API_KEY": key}
    if form == "plain":
        return {**found, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url}
    if not domain:
        raise ServerError("this server speaks no TLS, which the form 'domain' needs")
    found |= {"E2B_DOMAIN": domain, "NODE_OPTIONS": f"--require={LIB / 'resolve.cjs'}", "CAISSON_TEST_DOMAIN": domain.split(":")[0]}
    if ca:
        found |= {"NODE_EXTRA_CA_CERTS": ca, "SSL_CERT_FILE": ca}
    return found
