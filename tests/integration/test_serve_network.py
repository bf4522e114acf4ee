#!/usr/bin/env python3
"""What leaves a server's sandboxes, in the Internet of test_gateway.py: by E2B's fields and by our own API, from the
pool and not, changed while they run, and after the server has been killed and started again.
"""
import contextlib
import json
import signal
import urllib.error
import urllib.request

import frame  # noqa: F401  (its paths)

import harness
import serve_lab
import test_gateway
from test_gateway import EVIL, GOOD, RANGE, TLS

# What a server of the lab that speaks first says.
HELLO = """
import socket
try: print(socket.create_connection(("{}", 5432), 10).recv(9))
except OSError as error: print(type(error).__name__)
"""
STAGE = "CAISSON_SERVE_NETWORK_STAGE"


class Stage(test_gateway.Lab):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        context = serve_lab.fresh()
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    def ask(self, method, path, body=None, server=None):
        server = server or self.server
        request = urllib.request.Request(server.address["url"] + path, None if body is None else json.dumps(body).encode(),
                                         {"X-API-KEY": server.key, "Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                lines = [json.loads(line) for line in answer.read().splitlines()]
                return answer.status, lines if "ndjson" in answer.headers.get("Content-Type", "") else lines[0] if lines else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    @contextlib.contextmanager
    def sandbox(self, server=None, expect=201, **fields):
        status, made = self.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 300, **fields}, server)
        self.assertEqual(status, expect, made)
        try:
            yield made["sandboxID"]
        finally:
            self.ask("DELETE", f"/sandboxes/{made['sandboxID']}", server=server)

    def inside(self, sandbox, script, server=None):
        status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["python3", "-c", TLS + script]}, server)
        self.assertEqual(status, 200, done)
        self.assertIn("end", done[-1], done)
        return "".join(line.get("stdout", "") for line in done).strip()

    def reaches(self, sandbox, name, port=443, server=None):
        return self.inside(sandbox, f'print(tls({name!r}, {port}, {name!r}))', server) == "HTTP/1.0 200 OK"

    def network(self, sandbox, body, expect=204):
        status, answer = self.ask("PUT", f"/sandboxes/{sandbox}/network", body)
        self.assertEqual(status, expect, answer)

    def test_all_of_the_internet_is_usual_and_never_the_rest(self):
        with self.sandbox() as sandbox:
            self.assertTrue(self.reaches(sandbox, "good.example.com"))
            self.assertTrue(self.reaches(sandbox, EVIL))
            for name in ("private.example.com", "loop.example.com", "link.example.com", "own.example.com"):
                self.assertFalse(self.reaches(sandbox, name), name)
            # Somebody is there, on the way that the host itself has to a private network.
            for target in ("range.example.com", RANGE):
                self.assertNotIn("welcome", self.inside(sandbox, HELLO.format(target)))

    def test_what_is_allowed_and_denied_is_told_again(self):
        asked = {"allowOut": [GOOD], "denyOut": ["0.0.0.0/0"]}
        with self.sandbox(network=asked) as sandbox:
            self.assertTrue(self.reaches(sandbox, GOOD))
            self.assertFalse(self.reaches(sandbox, EVIL))
            shown = self.ask("GET", f"/sandboxes/{sandbox}")[1]
            self.assertEqual({key: shown["network"][key] for key in asked}, asked)
            self.assertEqual(shown["allowInternetAccess"], True)
        self.assertEqual(self.servers[EVIL, 443].connections, 0)

    def test_without_internet_access_nothing_leaves(self):
        with self.sandbox(allow_internet_access=False) as sandbox:
            self.assertFalse(self.reaches(sandbox, "good.example.com"))
            self.assertEqual(self.ask("GET", f"/sandboxes/{sandbox}")[1]["allowInternetAccess"], False)
        self.assertEqual(self.servers[GOOD, 443].connections, 0)
        self.assertEqual(self.names.asked, [])

    def test_names_are_allowed_where_the_rest_is_denied(self):
        with self.sandbox(network={"allowOut": ["good.example.com"], "denyOut": ["0.0.0.0/0"]}) as sandbox:
            self.assertTrue(self.reaches(sandbox, "good.example.com"))
            self.assertFalse(self.reaches(sandbox, "evil.example.org"))
        with self.sandbox(network={"denyOut": [EVIL]}) as sandbox:
            self.assertTrue(self.reaches(sandbox, "good.example.com"))
            self.assertFalse(self.reaches(sandbox, "evil.example.org"))
        self.assertEqual(self.servers[EVIL, 443].connections, 0)

    def test_what_is_changed_holds_at_once_and_replaces_all(self):
        with self.sandbox(allow_internet_access=False) as sandbox:
            self.assertFalse(self.reaches(sandbox, "good.example.com"))
            self.network(sandbox, {"allowOut": [GOOD], "denyOut": ["0.0.0.0/0"]})
            self.assertTrue(self.reaches(sandbox, GOOD))
            self.assertFalse(self.reaches(sandbox, EVIL))
            self.network(sandbox, {"denyOut": [GOOD]})
            self.assertFalse(self.reaches(sandbox, GOOD))
            self.assertTrue(self.reaches(sandbox, EVIL))
            self.network(sandbox, {})
            self.assertTrue(self.reaches(sandbox, GOOD))
            self.network(sandbox, {"denyOut": ["no address"]}, 400)
            self.assertTrue(self.reaches(sandbox, GOOD))
            self.network(sandbox, {"rules": {"good.example.com": [{"transform": {"headers": {"A": "b"}}}]}}, 409)
            self.network(sandbox, {"egressProxy": {"address": "10.1.2.3:1080"}}, 400)
            self.assertEqual(self.ask("POST", f"/sandboxes/{sandbox}/pause")[0], 204)
            self.network(sandbox, {}, 409)

    def test_our_own_api_denies_what_nobody_asked_for(self):
        def made(spec):
            status, sandbox = self.ask("POST", "/v1/sandboxes", {"spec": {"image": "base", **spec}})
            self.assertEqual(status, 201, sandbox)
            self.addCleanup(self.ask, "DELETE", f"/v1/sandboxes/{sandbox['id']}")
            return sandbox["id"]

        self.assertFalse(self.reaches(made({}), "good.example.com"))
        sandbox = made({"network": {"rules": [{"hosts": ["good.example.com"]}, {"cidrs": [RANGE + "/32"], "ports": "any", "proto": "tcp"}]}})
        self.assertTrue(self.reaches(sandbox, "good.example.com"))
        self.assertFalse(self.reaches(sandbox, "evil.example.org"))
        # A client does not own this host: nothing lifts the floor for it.
        self.assertNotIn("welcome", self.inside(sandbox, HELLO.format(RANGE)))
        status, answer = self.ask("PUT", f"/v1/sandboxes/{sandbox}/network", {"network": {"rules": [{"hosts": ["evil.example.org"]}]}})
        self.assertEqual(status, 200, answer)
        self.assertTrue(self.reaches(sandbox, "evil.example.org"))
        self.assertFalse(self.reaches(sandbox, "good.example.com"))
        status, answer = self.ask("POST", "/v1/sandboxes", {"spec": {"image": "base", "network": {"rules": [{"hosts": ["*"]}]}}})
        self.assertEqual(status, 400, answer)
        self.assertIn("network.rules[0].hosts[0]", answer["message"])

    def test_a_server_that_is_killed_leaves_networks_as_they_are(self):
        with serve_lab.fresh() as server:
            with self.sandbox(server, network={"allowOut": ["good.example.com"], "denyOut": ["0.0.0.0/0"]}) as sandbox:
                self.assertTrue(self.reaches(sandbox, "good.example.com", server=server))
                server.stop(signal.SIGKILL)
                server.start()
                self.assertTrue(self.reaches(sandbox, "good.example.com", server=server))
                self.assertFalse(self.reaches(sandbox, "evil.example.org", server=server))
                shown = self.ask("GET", f"/sandboxes/{sandbox}", server=server)[1]
                self.assertEqual(shown["network"]["allowOut"], ["good.example.com"])
                # Booted anew, it is what it was.
                self.assertEqual(self.ask("POST", f"/sandboxes/{sandbox}/pause", {"memory": False}, server)[0], 204)
                self.assertEqual(self.ask("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 300}, server)[0], 201)
                self.assertTrue(self.reaches(sandbox, "good.example.com", server=server))
                self.assertFalse(self.reaches(sandbox, "evil.example.org", server=server))
                # So is one like it.
                status, forks = self.ask("POST", f"/sandboxes/{sandbox}/fork", {"count": 1, "timeout": 300}, server)
                self.assertEqual(status, 201, forks)
                fork = forks[0]["sandbox"]["sandboxID"]
                self.assertTrue(self.reaches(fork, "good.example.com", server=server))
                self.assertFalse(self.reaches(fork, "evil.example.org", server=server))
                self.ask("DELETE", f"/sandboxes/{fork}", server=server)
        self.assertEqual(self.servers[EVIL, 443].connections, 0)

    def test_the_pool_has_one_for_whatever_network(self):
        def metric(server, name):
            with urllib.request.urlopen(urllib.request.Request(server.address["url"] + "/metrics", headers={"X-API-KEY": server.key})) as answer:
                return next(int(float(line.split()[1])) for line in answer.read().decode().splitlines() if line.startswith(f"caisson_pool_{name} "))

        with serve_lab.fresh() as server:
            configuration = server.caller.write("serve.yaml", "pool: {base: 2}\n", 0o644)
            server.stop()
            server.arguments += ["--config", str(configuration)]
            server.start()
            for fields, good in (({}, True), ({"allow_internet_access": False}, False), ({"network": {"denyOut": [GOOD]}}, False)):
                self.assertTrue(harness.wait_until(lambda: metric(server, "ready") == 2, 30))
                before = metric(server, "taken_total")
                with self.sandbox(server, **fields) as sandbox:
                    self.assertEqual(metric(server, "taken_total"), before + 1)
                    self.assertEqual(self.reaches(sandbox, GOOD, server=server), good)

    def test_the_operator_closes_what_nobody_asked_for(self):
        with serve_lab.fresh(arguments=("--e2b-default-network", "deny")) as server:
            with self.sandbox(server) as sandbox:
                self.assertFalse(self.reaches(sandbox, "good.example.com", server=server))
            with self.sandbox(server, network={"denyOut": [EVIL]}) as sandbox:
                self.assertTrue(self.reaches(sandbox, "good.example.com", server=server))


if __name__ == "__main__":
    test_gateway.main(__file__, STAGE)
