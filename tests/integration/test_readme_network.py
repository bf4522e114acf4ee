#!/usr/bin/env python3
"""What the README says of networks and secrets, run as it stands there.

Each of its command lines is run by a shell, with the README's own policy, in a lab whose Internet has the hosts that
they name (root alone, tests/lib/internet_lab.py); what a reader brings along (scripts, a token) is the test's. As root
and as an ordinary user.
"""
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import unittest

import frame  # noqa: F401  (its paths)

import harness
import internet_lab
import readme
from internet_lab import Echo, Server

STAGE = "CAISSON_README_NETWORK_STAGE"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
GOOD, DATABASE = "93.184.10.1", "93.184.10.2"
NAMES = ["api.example.com", "forge.example.com", "files.example.com", "mirror.example.com", "uploads.example.com"]
ZONE = {**{name: [GOOD] for name in NAMES}, "db.example.com": [DATABASE]}
FETCH = """#!/usr/bin/env python3
import urllib.request
print("fetched", urllib.request.urlopen("https://api.example.com/").status)
"""
# What the README calls programs of the reader's: each says what it reached.
FILES = {
    "fetch.py": FETCH,
    "import": """#!/bin/sh
curl -sS https://files.example.com/list && exec python3 -c 'import socket; print(socket.create_connection(("db.example.com", 5432), 10).recv(100))'
""",
    "agent": """#!/bin/sh
curl -sS -H "Authorization: Bearer ${API_TOKEN:-none}" https://api.example.com/agent
curl -sS https://uploads.example.com/ || echo denied
""",
    "crawl": """#!/bin/sh
curl -sS https://api.example.com/crawled
""",
}
# What their lines print where each does what the README says of it; the server adds what it was sent as Connection.
REACHED = [r"fetched 200", r"GET /list \S+", r"b'welcome\\n'", r"GET /debian/dists/stable/Release \S+", r"GET /agent \S+", r"denied",
           r"GET /crawled \S+", r"GET /agent \S+", r"denied", r"allowed: the rule rule-1 allows a TLS connection to api\.example\.com:443; .*",
           r"let through once, last in record 2 .* allow tls api\.example\.com:443: a rule allows it \(rule-1\), .*", r"whole: \d+ records, .*"]
USED = [r"GET /v1/user \S+", r"1 .* begin", r"2 .* allow http GET api\.example\.com:443/v1/user: .*, secret API_TOKEN in header:authorization, .*",
        r"3 .* end, .*", r"GET /agent \S+", r"denied"]


class Stage(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names(ZONE)
        cls.internet = internet_lab.Internet(GOOD, DATABASE)
        cls.addClassCleanup(cls.internet.close)
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        authority, text = internet_lab.certificate(cls.folder.folder, "lab authority")
        bundle = cls.folder.write("bundle.pem", pathlib.Path(BUNDLE).read_text() + text, 0o644)
        subprocess.run(["mount", "--bind", bundle, BUNDLE], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", BUNDLE], check=True)
        certificate, _ = internet_lab.certificate(cls.folder.folder, *NAMES, signer=authority)
        cls.tls = cls.internet.serve(Server, GOOD, 443, certificate)
        cls.internet.serve(Server, GOOD, 80)
        cls.internet.serve(Echo, DATABASE, 5432)

    def each_caller(self):
        for kind in ("root", "user"):
            self.tls.forget()
            with self.subTest(caller=kind), harness.Caller(kind) as caller:
                caller.mkdir("work", 0o755)
                for name, text in FILES.items():
                    caller.write(f"work/{name}", text, 0o755)
                caller.write("work/policy.yaml", readme.block("## The network", "yaml"), 0o644)
                yield caller

    def assert_lines(self, done, patterns):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(patterns), done.stdout + done.stderr)
        for line, pattern in zip(lines, patterns):
            self.assertRegex(line, f"^{pattern}$", done.stdout + done.stderr)

    def test_its_commands_for_networks_do_what_they_say(self):
        for caller in self.each_caller():
            self.assert_lines(readme.run(caller, readme.block("## The network"), caller.folder / "work"), REACHED)

    def test_its_recipe_for_secrets_works(self):
        for caller in self.each_caller():
            token = secrets.token_urlsafe(24)
            caller.write("home/token", token + "\n", 0o600)
            script = readme.filled(readme.block("### Secrets"), {"API_TOKEN=… ": f"API_TOKEN={token} "})
            done = readme.run(caller, script, caller.folder / "work")
            self.assert_lines(done, USED)
            self.assertNotIn(token, done.stdout + done.stderr)
            self.assertEqual(re.findall(rb"GET (\S+) HTTP/1.1\r\n(?:.*\r\n)*?(?i:Authorization): Bearer (\S+)\r\n", self.tls.received),
                             [(b"/v1/user", token.encode()), (b"/agent", token.encode())])


if __name__ == "__main__":
    harness.require_programs()
    harness.subreaper()
    if os.environ.get(STAGE):
        unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["Stage"])], verbosity=2)
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "openssl", "curl"))) or not os.path.exists(BUNDLE):
        print("left out: the gateway is tested as root alone, with unshare, ip, openssl, curl and ca-certificates", file=sys.stderr)
        sys.exit(os.environ.get("CI") == "true")
    sys.exit(internet_lab.enter(__file__, sys.argv[1:] or ["Stage"], STAGE))
