#!/usr/bin/env python3
"""Out by a SOCKS5 proxy (`upstream_proxy`): Dante without a login and microsocks with one, in the Internet of
test_gateway.py, where the proxy has names of its own. Servers say whom they were connected to by. As root and as an
ordinary user; and of a server's sandboxes, by E2B's `egressProxy`.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading

import frame  # noqa: F401  (its paths)

import harness
import internet_lab
import serve_lab
import test_gateway
import test_serve_network
from internet_lab import Echo, Server
from test_gateway import EVIL, GOOD, RANGE

STAGE = "CAISSON_GATEWAY_PROXY_STAGE"
PROXY, LOGIN_PROXY = "93.184.10.9", "93.184.10.8"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
USER, PASSWORD = "somebody", "pwCANARYpw123"
DANTE = """
logoutput: {folder}/dante.log
internal: {address} port = 1080
internal: {inner} port = 1080
external: {address}
socksmethod: none
clientmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks block {{ from: 0.0.0.0/0 to: evil.example.org }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 log: connect }}
"""
RULES = """
rules:
  - {id: spliced, hosts: [good.example.com, hidden.example.com, evil.example.org, private.example.com]}
  - {id: opened, hosts: [also.example.com], tls: inspect}
  - {id: plain, hosts: [good.example.com, private.example.com], tls: plaintext}
  - {id: raw, hosts: [good.example.com], ports: [5432], proto: tcp}
"""
VIA = "\nupstream_proxy: {address: \"%s\"}\n"
LOGIN = "\nupstream_proxy: {address: \"%s\", username: %s, password: {env: PROXY_PASSWORD}}\n"
ASK = """
import socket, ssl
def raw(name, port, ask):
    try:
        with socket.create_connection((name, port), 10) as s:
            if ask: s.sendall(ask)
            data = s.recv(4096)
            while ask and (piece := s.recv(4096)): data += piece
            return data.decode()
    except OSError as error: return type(error).__name__
def tls(name, trust=False, port=443):
    context = ssl.create_default_context()
    if not trust: context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((name, port), 10) as c, context.wrap_socket(c, server_hostname=name) as s:
            s.sendall(b"GET /x HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n" % name.encode())
            data = b""
            while piece := s.recv(4096): data += piece
            return data.decode().split("\\r\\n")[-1].strip()
    except OSError as error: return type(error).__name__ + " " + str(error)
def http(name): return raw(name, 80, b"GET /x HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n" % name.encode())
"""
ALL = ASK + 'print(tls("good.example.com")); print(tls("also.example.com", True)); print(http("good.example.com").partition("by ")[2].strip()); print(raw("good.example.com", 5432, b""))'


class Peer(internet_lab.Handler):
    def do_GET(self):
        self.answer(f"by {self.client_address[0]}\n".encode())


class ProxysNames(internet_lab.Names):
    def close(self):
        pass


class Lab(test_gateway.Lab):
    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names({**test_gateway.ZONE, "proxy.example.com": [PROXY], "near-proxy.example.com": [RANGE], "loop-proxy.example.com": ["127.0.0.1"]})
        cls.internet = internet_lab.Internet(GOOD, EVIL, RANGE, PROXY, LOGIN_PROXY)
        cls.addClassCleanup(cls.internet.close)
        cls.there = cls.internet.serve(ProxysNames, {"good.example.com": [GOOD], "also.example.com": [GOOD], "hidden.example.com": [GOOD], "evil.example.org": [EVIL]})
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        folder = cls.folder.folder
        authority, cls.authority = internet_lab.certificate(folder, "lab authority")
        bundle = cls.folder.write("bundle.pem", pathlib.Path(BUNDLE).read_text() + cls.authority, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", BUNDLE], check=True)
        cls.servers = {}
        for address, names in ((GOOD, ["good.example.com", "also.example.com", "hidden.example.com", GOOD]), (EVIL, ["evil.example.org", EVIL])):
            certificate, _ = internet_lab.certificate(folder, *names, signer=authority)
            cls.servers[address, 443] = cls.internet.serve(Server, address, 443, certificate, handler=Peer)
            cls.servers[address, 80] = cls.internet.serve(Server, address, 80, handler=Peer)
        cls.internet.serve(Echo, GOOD, 5432)
        cls.dante_log = pathlib.Path(folder) / "dante.log"
        config = cls.folder.write("danted.conf", DANTE.format(folder=folder, address=PROXY, inner=RANGE), 0o644)
        cls.start(shutil.which("danted", path=os.environ["PATH"] + ":/usr/sbin"), "-f", str(config))
        cls.start("microsocks", "-i", LOGIN_PROXY, "-p", "1080", "-b", LOGIN_PROXY, "-u", USER, "-P", PASSWORD)
        for address in (PROXY, LOGIN_PROXY, RANGE):
            assert harness.wait_until(lambda: cls.answers(address), 10), address

    @classmethod
    def start(cls, *command):
        process = subprocess.Popen(["nsenter", f"--net=/proc/{cls.internet.process.pid}/ns/net", "--", *command],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

        def end():
            os.killpg(process.pid, 9)
            process.wait()

        cls.addClassCleanup(end)

    @staticmethod
    def answers(address):
        try:
            socket.create_connection((address, 1080), 1).close()
        except OSError:
            return False
        return True

    def setUp(self):
        super().setUp()
        self.there.asked.clear()
        # What the proxies were asked before they had anything to do with this test.
        self.assertTrue(all(map(self.answers, (PROXY, LOGIN_PROXY))))


class Local(Lab):
    def out(self, caller, text, script=ALL, **named):
        return self.run_in(caller, self.policy(caller, text), "python3", "-c", script, **named)

    def each_refusal(self, result):
        """What each of ALL was told, when the proxy fails: and that nothing went out past it."""
        lines = result["stdout"]
        self.assertIn("TLSV1_ALERT_INTERNAL_ERROR", lines)
        self.assertIn('"reason":"upstream_proxy"', lines)
        self.assertIn("ConnectionResetError", lines)
        self.assertEqual({(r["decision"], r["reason"]) for r in result["audit"]}, {("deny", "upstream_proxy")}, result["audit"])
        self.assert_untouched(GOOD)

    def test_all_of_it_goes_out_by_the_proxy(self):
        for caller in self.each_caller():
            self.names.asked.clear()
            result = self.out(caller, RULES + VIA % f"{PROXY}:1080")
            self.assertEqual(result["stdout"].split(), ["by", PROXY] + ["by", PROXY] + [PROXY] + ["welcome"], result)
            self.assertEqual({(r["kind"], r["rule"], r["upstream"]) for r in result["audit"]},
                             {("tls", "spliced", f"good.example.com:443 via {PROXY}:1080"), ("http", "opened", f"also.example.com:443 via {PROXY}:1080"),
                              ("http", "plain", f"good.example.com:80 via {PROXY}:1080"), ("tcp", "raw", f"good.example.com:5432 via {PROXY}:1080")})
            # Names that rules allow are the proxy's to resolve, also those that it alone knows.
            self.assertEqual(self.out(caller, RULES + VIA % f"{PROXY}:1080", ASK + 'print(tls("hidden.example.com"))')["stdout"], f"by {PROXY}\n")
            self.assertEqual(self.names.asked, [])

    def test_policy_is_judged_before_it(self):
        for caller in self.each_caller():
            before = self.dante_log.read_text().count("pass(")
            result = self.out(caller, "rules: [{hosts: [good.example.com]}]" + VIA % f"{PROXY}:1080",
                              ASK + 'print(tls("evil.example.org")); print(tls("also.example.com")); print(http("good.example.com"))')
            self.assertEqual([r["reason"] for r in result["audit"]], ["no_rule", "no_rule", "port"])
            self.assertEqual(self.dante_log.read_text().count("pass("), before)
            self.assert_untouched(GOOD)

    def test_where_addresses_decide_the_proxy_gets_no_names(self):
        script = ASK + 'print(tls("good.example.com")); print(tls("evil.example.org")); print(http("private.example.com")); print(http("loop.example.com"))'
        deny = "{action: deny, cidrs: [%s/32]}" % EVIL
        for caller in self.each_caller():
            for text in (f"default: allow-public\nrules: [{deny}]", RULES.replace("rules:", f"rules:\n  - {deny}").replace("private.example.com", "private.example.com, loop.example.com")):
                self.there.asked.clear()
                result = self.out(caller, text + VIA % f"{PROXY}:1080", script)
                self.assertEqual(result["stdout"].splitlines()[0], f"by {PROXY}", result)
                self.assertEqual([(r["decision"], r["reason"]) for r in result["audit"]][1:], [("deny", "deny_rule"), ("deny", "floor"), ("deny", "floor")], result)
                self.assertEqual(result["audit"][0]["upstream"], f"{GOOD}:443 via {PROXY}:1080")
                self.assertNotIn("good.example.com", self.there.asked)
            self.assert_untouched(EVIL)

    def test_a_proxy_in_a_private_network_gets_judged_addresses(self):
        for caller in self.each_caller():
            for address in (f"{RANGE}:1080", "near-proxy.example.com:1080"):
                self.there.asked.clear()
                result = self.out(caller, RULES + VIA % address, ASK + 'print(tls("good.example.com")); print(http("private.example.com"))')
                self.assertEqual([(r["decision"], r["reason"]) for r in result["audit"]], [("allow", "match"), ("deny", "floor")], result)
                self.assertEqual(result["audit"][0]["upstream"], f"{GOOD}:443 via {address}")
                self.assertNotIn("good.example.com", self.there.asked)

    def test_the_proxys_own_address_is_judged(self):
        for caller in self.each_caller():
            # Nothing lifts a fixed floor; a name lifts it for private networks alone.
            for text in ("floor: fixed" + RULES + VIA % f"{RANGE}:1080", "floor: fixed" + RULES + VIA % "127.0.0.1:1080", RULES + VIA % "loop-proxy.example.com:1080"):
                self.each_refusal(self.out(caller, text))

    def test_a_proxy_that_is_not_there_is_not_gone_around(self):
        for caller in self.each_caller():
            for address in (f"{PROXY}:1", "nowhere.example.com:1080"):
                self.each_refusal(self.out(caller, RULES + VIA % address))

    def test_what_it_refuses_is_refused(self):
        for caller in self.each_caller():
            result = self.out(caller, RULES + VIA % f"{PROXY}:1080", ASK + 'print(tls("evil.example.org"))')
            self.assertEqual([(r["reason"], r["detail"]) for r in result["audit"]],
                             [("upstream_proxy", "the proxy says of evil.example.org:443: not allowed")])
            self.assert_untouched(EVIL)

    def test_a_login_is_given_to_the_proxy_and_shown_nowhere(self):
        for caller in self.each_caller():
            net = RULES + LOGIN % (f"{LOGIN_PROXY}:1080", USER)
            caller.env["PROXY_PASSWORD"] = PASSWORD
            result = self.out(caller, net, 'import os\n' + ALL + '\nprint(os.environ.get("PROXY_PASSWORD"))')
            self.assertEqual(result["stdout"].split(), ["by", LOGIN_PROXY, "by", LOGIN_PROXY, LOGIN_PROXY, "welcome", "None"], result)
            self.assertNotIn("CANARY", json.dumps(result))
            caller.env["PROXY_PASSWORD"] = "another"
            for server in self.servers.values():
                server.forget()
            result = self.out(caller, net)
            self.each_refusal(result)
            self.assertIn("does not take the username and password", result["audit"][0]["detail"])
            # Without one it is not let in either; one without a username is no policy.
            result = self.out(caller, RULES + VIA % f"{LOGIN_PROXY}:1080")
            self.each_refusal(result)
            self.assertIn("asks for a username", result["audit"][0]["detail"])
            done = caller.caisson("policy", "check", self.policy(caller, RULES + VIA.replace("}", ", password: {env: P}}") % "proxy.example.com:1"))
            self.assertEqual(done.returncode, 125, done)
            self.assertIn("upstream_proxy.password: found a password without a username", done.err)

    def test_what_is_no_proxy_ends_nothing_but_the_connection(self):
        class Odd:
            """Answers whatever it is asked with these bytes, and then nothing."""

            def __init__(self, port, *answers):
                self.socket = socket.create_server((PROXY, port))
                self.answers = answers
                threading.Thread(target=self.serve, daemon=True).start()

            def serve(self):
                while True:
                    try:
                        connection, _ = self.socket.accept()
                    except OSError:
                        return
                    with connection:
                        for answer in self.answers:
                            connection.recv(4096)
                            connection.sendall(answer)

            def close(self):
                self.socket.close()

        odd = ((2001, b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS5"), (2002, b"\x05", "broke off"), (2003, b"\x05\x02", "does not speak SOCKS5"),
               (2004, b"\x05\xff", "asks for a username"))
        for port, answer, _ in odd:
            self.internet.serve(Odd, port, answer)
        with harness.Caller("root") as caller:
            for port, _, sentence in odd:
                result = self.out(caller, RULES + VIA % f"{PROXY}:{port}", ASK + 'print(tls("good.example.com"))')
                self.assertEqual([r["reason"] for r in result["audit"]], ["upstream_proxy"], result)
                self.assertIn(sentence, result["audit"][0]["detail"])
        self.assert_untouched(GOOD)

    def test_another_proxy_ends_what_went_by_the_first(self):
        with harness.Caller("root") as caller, contextlib.ExitStack() as stack:
            caller.env["PROXY_PASSWORD"] = PASSWORD
            made = caller.caisson("run", "-d", "--image", "host", "--net", self.policy(caller, RULES + LOGIN % (f"{LOGIN_PROXY}:1080", USER)), "--", "sleep", "300")
            self.assertEqual(made.returncode, 0, made)
            # Before the caller's folder goes.
            stack.callback(caller.caisson, "kill", made.out.strip())
            script = ASK + """
import time
s = socket.create_connection(("good.example.com", 5432), 10); print(s.recv(100).decode(), flush=True)
try: print(s.recv(100))
except OSError as error: print(type(error).__name__)
"""
            command = caller.command("exec", made.out.strip(), "--", "python3", "-c", script)
            held = stack.enter_context(subprocess.Popen(command, env=caller.env, stdout=subprocess.PIPE, text=True))
            self.assertEqual(held.stdout.readline(), "welcome\n")
            applied = caller.caisson("policy", "apply", made.out.strip(), self.policy(caller, RULES + VIA % f"{PROXY}:1080"))
            self.assertEqual(applied.returncode, 0, applied)
            self.assertIn("ConnectionResetError", held.communicate(timeout=30)[0])
            done = caller.caisson("exec", made.out.strip(), "--", "python3", "-c", ASK + 'print(tls("good.example.com"))')
            self.assertEqual(done.out, f"by {PROXY}\n")
            # The password is for the proxy that it was given for.
            applied = caller.caisson("policy", "apply", made.out.strip(), self.policy(caller, RULES + LOGIN % (f"{PROXY}:1080", USER)))
            self.assertNotEqual(applied.returncode, 0)
            self.assertIn("network.upstream_proxy.password", applied.err)


class Stage(Local):
    """And those of a server's sandboxes, by E2B's field."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        context = serve_lab.fresh()
        cls.server = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)

    ask, sandbox = test_serve_network.Stage.ask, test_serve_network.Stage.sandbox
    network = test_serve_network.Stage.network

    def told(self, sandbox):
        status, done = self.ask("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": ["python3", "-c", ASK + 'print(tls("good.example.com"))']})
        self.assertEqual(status, 200, done)
        return "".join(line.get("stdout", "") for line in done).strip()

    def shown(self, sandbox):
        return self.ask("GET", f"/sandboxes/{sandbox}")[1]["network"].get("egressProxy")

    def test_a_proxy_is_set_replaced_and_cleared(self):
        lists = {"allowOut": ["good.example.com"], "denyOut": ["0.0.0.0/0"]}
        with self.sandbox(network={**lists, "egressProxy": {"address": f"{PROXY}:1080"}}) as sandbox:
            self.assertEqual(self.told(sandbox), f"by {PROXY}")
            self.assertEqual(self.shown(sandbox), {"address": f"{PROXY}:1080"})
            # Who is looked at by name is resolved there.
            self.assertEqual(self.names.asked, [])
            self.network(sandbox, {**lists, "egressProxy": {"address": f"{LOGIN_PROXY}:1080", "username": USER}})
            self.assertIn("TLSV1_ALERT_INTERNAL_ERROR", self.told(sandbox))
            self.network(sandbox, {**lists, "egressProxy": {"address": f"{LOGIN_PROXY}:1080", "username": USER, "password": PASSWORD}}, 409)
            self.network(sandbox, lists)
            self.assertEqual(self.shown(sandbox), None)
            self.assertIn("by 10.", self.told(sandbox))

    def test_its_password_is_sealed_and_shown_nowhere(self):
        proxy = {"address": f"{LOGIN_PROXY}:1080", "username": USER, "password": PASSWORD}
        with self.sandbox(network={"egressProxy": proxy}) as sandbox:
            self.assertEqual(self.told(sandbox), f"by {LOGIN_PROXY}")
            self.assertEqual(self.shown(sandbox), {"address": f"{LOGIN_PROXY}:1080", "username": USER})
            self.server.stop(signal.SIGKILL)
            self.server.start()
            self.assertEqual(self.told(sandbox), f"by {LOGIN_PROXY}")
            self.network(sandbox, {"egressProxy": {**proxy, "password": "another"}})
            self.assertIn("TLSV1_ALERT_INTERNAL_ERROR", self.told(sandbox))
            self.network(sandbox, {"egressProxy": proxy})
            self.assertEqual(self.told(sandbox), f"by {LOGIN_PROXY}")
            status, forks = self.ask("POST", f"/sandboxes/{sandbox}/fork", {"count": 1, "timeout": 300})
            self.assertEqual(status, 201, forks)
            fork = forks[0]["sandbox"]["sandboxID"]
            self.assertEqual(self.told(fork), f"by {LOGIN_PROXY}")
            self.ask("DELETE", f"/sandboxes/{fork}")
            for folder in (self.server.caller.env["CAISSON_STATE_DIR"] + "/server", str(self.server.run_folder), str(self.server.log)):
                files = [pathlib.Path(folder)] if pathlib.Path(folder).is_file() else [f for f in pathlib.Path(folder).rglob("*") if f.is_file()]
                for file in files:
                    self.assertNotIn(b"CANARY", file.read_bytes(), file)

    def test_a_proxy_is_no_way_into_the_hosts_network(self):
        for address in (f"{RANGE}:1080", "127.0.0.1:1080"):
            status, answer = self.ask("POST", "/sandboxes", {"templateID": "base", "network": {"egressProxy": {"address": address}}})
            self.assertEqual(status, 400, answer)
            self.assertIn("network.egressProxy.address", answer["message"])
        with self.sandbox(network={"egressProxy": {"address": "near-proxy.example.com:1080"}}) as sandbox:
            self.assertIn("TLSV1_ALERT_INTERNAL_ERROR", self.told(sandbox))
        self.assert_untouched(GOOD)


if __name__ == "__main__":
    if not all(shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") for program in ("danted", "microsocks")):
        print("left out: proxies are tested with danted and microsocks", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    test_gateway.main(__file__, STAGE)
