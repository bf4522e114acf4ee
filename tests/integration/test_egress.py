#!/usr/bin/env python3
"""The egress proxy in front of a sandbox without a network: what curl and others inside reach.

Servers listen on this host's loopback and are reached only where the list names them. Names are
looked at in a network and mount namespace of the test's own (root alone), with a hosts file and a
resolver of its own and a second namespace that is the Internet: an address of this host is refused
whatever name leads to it, and a name is resolved once.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import frame

import harness
import internet_lab
from internet_lab import Server

TOOL = harness.build_dir() / "tests" / "caisson_layer_tool"
STAGE = "CAISSON_EGRESS_STAGE"
INTERNET = "8.8.4.4"  # in the second namespace of the test's own


def run_tool(caller, allowed, script, image="host"):
    """(status, what the script said, the proxy's report, stderr) of a script beside a proxy."""
    programs = caller.programs()
    tool = programs / "caisson_layer_tool"
    if programs != harness.build_dir():
        shutil.copy(TOOL, tool)
    else:
        tool = TOOL
    words = [word for entry in allowed for word in ("--allow", entry)]
    done = subprocess.run([*caller._prefix, str(tool), "--image", image, "--egress", *words, "--", script],
                          env=caller.env, cwd=caller.home, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    lines = [line for line in done.stderr.splitlines() if line.startswith(b"{")]
    return done.returncode, done.stdout.decode(errors="replace"), json.loads(lines[0]) if lines else None, done.stderr


class Egress(unittest.TestCase):
    maxDiff = None

    def each_caller(self):
        for kind in harness.callers():
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                yield caller

    def test_curl_reaches_what_is_named_and_nothing_else(self):
        first, second = Server(), Server()
        self.addCleanup(first.close)
        self.addCleanup(second.close)
        for caller in self.each_caller():
            status, out, report, err = run_tool(
                caller, [f"127.0.0.1:{first.port}", f"localhost:{first.port}"], f"""
                  curl -sS http://127.0.0.1:{first.port}/direct
                  curl -sS http://localhost:{first.port}/name
                  curl -sS -p http://127.0.0.1:{first.port}/tunnel
                  curl -sS -d abc http://127.0.0.1:{first.port}/
                  head -c 3000000 /dev/zero | tr '\\0' z | curl -sS -T - -X POST http://127.0.0.1:{first.port}/
                  curl -s -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{second.port}/
                  curl -s -p -o /dev/null -w '%{{http_connect}}\\n' http://127.0.0.1:{second.port}/
                  curl -s http://127.0.0.1:{second.port}/
                  curl -s --noproxy '*' -m 5 http://127.0.0.1:{first.port}/ || echo refused
                  true""")
            self.assertEqual(status, 0, err)
            self.assertEqual(out.splitlines(), [
                "GET /direct close", "GET /name close", "GET /tunnel None", "3 ac", "3000000 zz", "403", "403",
                f"caisson: 127.0.0.1:{second.port} is not among what this sandbox may reach", "refused"])
            self.assertEqual(report["connections"], 5)
            self.assertGreater(report["out"], 3_000_000)
            self.assertEqual(report["refused"], 3)
            self.assertEqual(report["refusals"], [{"target": f"127.0.0.1:{second.port}", "count": 3,
                                                   "reason": "is not among what this sandbox may reach"}])

    def test_https_goes_through_a_tunnel_that_nobody_looks_into(self):
        if not shutil.which("openssl"):
            frame.left_out("openssl is not here")
        for caller in self.each_caller():
            certificate = caller.folder / "certificate.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=DNS:localhost", "-keyout", certificate, "-out", f"{certificate}.crt"],
                           check=True, capture_output=True)
            text = pathlib.Path(f"{certificate}.crt").read_text()
            certificate.write_text(certificate.read_text() + text)
            server = Server(certificate=certificate)
            self.addCleanup(server.close)
            status, out, report, err = run_tool(caller, [f"localhost:{server.port}"], f"""
              cat > /tmp/ca <<'END'\n{text}\nEND
              curl -sS --cacert /tmp/ca https://localhost:{server.port}/secret""")
            self.assertEqual((status, out), (0, "GET /secret None\n"), err)
            self.assertEqual((report["connections"], report["refused"]), (1, 0))

    def test_python_uses_it_by_its_environment(self):
        server = Server()
        self.addCleanup(server.close)
        for caller in self.each_caller():
            status, out, _, err = run_tool(caller, [f"127.0.0.1:{server.port}"],
                                           "python3 -c 'import urllib.request as u; print(u.urlopen("
                                           f'"http://127.0.0.1:{server.port}/py").read())\'')
            self.assertEqual((status, out), (0, "b'GET /py close\\n'\n"), err + out.encode())

    def test_the_guest_and_its_commands_never_hold_the_listener(self):
        # Nothing inside but the proxy's own port listens, and no process inside has that descriptor.
        for caller in self.each_caller():
            status, out, _, err = run_tool(caller, [], """
              for fd in /proc/1/fd/* /proc/self/fd/*; do readlink $fd; done | grep -c socket: || true
              ls /proc/$$/fd
              tail -n +2 /proc/net/tcp | tr -s ' ' | cut -d' ' -f3,5""")
            self.assertEqual(status, 0, err)
            self.assertEqual(out.split(), ["0", "0", "1", "2", "0100007F:0C38", "0A"])

    def test_without_it_nothing_listens(self):
        for caller in self.each_caller():
            done = caller.caisson("run", "--image", "host", "--", "sh", "-c", "tail -n +2 /proc/net/tcp")
            self.assertEqual((done.returncode, done.out), (0, ""), done)


ZONE = {
    "good.example.com": [INTERNET], "private.example.com": ["10.1.2.3"], "loop.example.com": ["127.0.0.1"],
    "mixed.example.com": ["127.0.0.1", INTERNET], "link.example.com": ["169.254.169.254"],
    # Rebinding: whoever asks again is led to this host.
    "turns.example.com": lambda times: [INTERNET] if times == 1 else ["127.0.0.1"],
}


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(ZONE)
        cls.inner = Server("127.0.0.1", 8000)
        cls.outer = internet_lab.Internet(INTERNET)
        cls.addClassCleanup(cls.outer.close)
        cls.outer.serve(Server, INTERNET, 8000)

    def curl(self, *names, allowed=("*.example.com:8000",)):
        with harness.Caller("root") as caller:
            lines = "\n".join(f"curl -s -m 60 http://{name}:8000/x || echo failed" for name in names)
            return run_tool(caller, allowed, lines)

    def test_names_of_the_internet_are_reached(self):
        status, out, report, err = self.curl("good.example.com", "hosts.example.com", INTERNET)
        self.assertEqual((status, out.splitlines()[:2]), (0, ["GET /x close"] * 2), err)
        # An address that the list does not name is not reached by itself.
        self.assertEqual(report["refusals"][0]["target"], f"{INTERNET}:8000")

    def test_names_that_lead_to_this_host_or_its_networks_are_refused(self):
        names = ["private", "loop", "link", "hostsloop", "hostssix"]
        status, out, report, err = self.curl(*(f"{name}.example.com" for name in names))
        self.assertEqual(status, 0, err)
        self.assertEqual(report["connections"], 0)
        self.assertEqual([r["target"] for r in report["refusals"]], [f"{name}.example.com:8000" for name in names])
        for refusal in report["refusals"]:
            self.assertIn("an address of this host or none of the Internet's", refusal["reason"])

    def test_of_several_addresses_only_the_internets_are_tried(self):
        status, out, report, err = self.curl("mixed.example.com")
        self.assertEqual((status, out, report["connections"]), (0, "GET /x close\n", 1), err)

    def test_a_name_is_resolved_once(self):
        status, out, report, err = self.curl("turns.example.com")
        self.assertEqual((status, out, report["connections"]), (0, "GET /x close\n", 1), err)
        self.assertEqual(self.names.asked.count("turns.example.com"), 1)
        status, out, report, err = self.curl("turns.example.com")
        self.assertEqual((report["connections"], report["refused"]), (0, 1), out)

    def test_an_unknown_name_is_said_to_be_so(self):
        status, out, report, err = self.curl("nobody.example.com")
        self.assertIn("nobody.example.com cannot be resolved", out, err)
        self.assertEqual(report["refused"], 0)


def enter_stage():
    hosts = f"::1 hostssix.example.com\n{INTERNET} hosts.example.com\n127.0.0.1 hostsloop.example.com\n"
    return internet_lab.enter(__file__, ["Stage"], STAGE, hosts)


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], "Stage"], verbosity=2)
    names = sys.argv[1:] or ["Egress"]
    program = unittest.main(argv=[sys.argv[0], *names], verbosity=2, exit=False)
    ended = 0 if program.result.wasSuccessful() else 1
    if not sys.argv[1:]:
        if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip"))):
            print("left out: names are tested as root alone, with unshare and ip", file=sys.stderr)
            ended |= os.environ.get("CI") == "true"
        else:
            ended |= enter_stage()
    sys.exit(ended)
