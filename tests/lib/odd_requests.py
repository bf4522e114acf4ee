"""Some two hundred connections of the kinds that filters have been got round by, as bytes.

Each is a Case: where to connect (a name of the lab's zone, or an address), to which port, and what to send, in pieces.
Every request in it carries a mark, `case-NNN.M`, so that what reached a server can be told from what was sent. A TLS
hello has it in its random bytes. The names are those of ZONE: of them good, also, paths and all of wild but `no` are
allowed, and shared and evil are not; `shared` is at the same address as the good ones.
"""
from dataclasses import dataclass, field

GOOD, EVIL = "93.184.10.1", "93.184.10.2"
ZONE = {**{f"{name}.example.com": [GOOD] for name in ("good", "also", "paths", "shared", "wild", "a.wild", "no.wild", "b.a.wild", "under_score.wild")},
        "evil.example.org": [EVIL], "good.example.com.evil.example.org": [EVIL], "xgood.example.com": [EVIL], "evil.good.example.com": [EVIL],
        "xn--bcher-kva.wild.example.com": [GOOD]}
HTTP, TLS = 80, 443


@dataclass
class Case:
    name: str
    to: str
    port: int
    pieces: list = field(repr=False)  # of bytes


def request(host, target="/case-NNN.0", method="GET", more="", version="HTTP/1.1"):
    head = f"{method} {target} {version}\r\n" if version else f"{method} {target}\r\n"
    host = "" if host is None else f"Host: {host}\r\n"
    return (head + host + more + "\r\n").encode("latin-1")


def text(host):
    """A host of other letters as its bytes are, which `request` and `server_name` write as Latin-1."""
    return host.encode().decode("latin-1")


def shown(value):
    """What stands in the name of a case."""
    return repr(value) if len(value) < 64 else f"{value[:16]!r} and more, {len(value)} bytes"


# ---- hosts ---------------------------------------------------------------------------------------------------------

# What may stand where a host does: in Host and in the server name of TLS.
HOSTS = [
    "good.example.com", "also.example.com", "GOOD.EXAMPLE.COM", "gOOd.eXample.Com", "good.example.com.", "good.example.com..", ".good.example.com",
    "good..example.com", "wild.example.com", "a.wild.example.com", "b.a.wild.example.com", "no.wild.example.com", "NO.wild.example.com",
    "no.wild.example.com.", "under_score.wild.example.com", "shared.example.com", "evil.example.org", "EVIL.example.org", "xgood.example.com",
    "evil.good.example.com", "good.example.com.evil.example.org", "goodexample.com", "example.com", "com", "localhost", GOOD, EVIL, "127.0.0.1",
    "2130706433", "0x5db80a02", "93.184.2562", "0135.0270.012.02", "93.184.10.2.", "[::1]", "[::ffff:93.184.10.2]", "::1",
    text("bücher.wild.example.com"), "xn--bcher-kva.wild.example.com", text("gооd.example.com"), text("good。example。com"), text("good\u00ad.example.com"),
    "xn--a.wild.example.com", "-.wild.example.com", "a-.wild.example.com", "*.wild.example.com", "a b.wild.example.com", "good.example.com evil.example.org",
    "good.example.com\tevil.example.org", "evil.example.org,good.example.com", "good.example.com;evil.example.org", "evil.example.org@good.example.com",
    "good.example.com@evil.example.org", "evil.example.org#good.example.com", "evil.example.org?good.example.com", "evil.example.org/good.example.com",
    "evil.example.org\\good.example.com", "good.example.com%00.evil.example.org", "good%2eexample.com", "%67ood.example.com",
    "evil.example.org\0.good.example.com", "good.example.com\0.evil.example.org", "evil.example.org\x7f", "a" * 63 + ".wild.example.com",
    "a" * 64 + ".wild.example.com", ".".join(["a" * 60] * 4) + ".wild.example.com", "",
]
# In Host alone.
AUTHORITIES = ["good.example.com:80", "good.example.com:443", "good.example.com:", "good.example.com:080", "good.example.com:+80", "good.example.com:80:80",
               "good.example.com:80@evil.example.org", "good.example.com: 80", "good.example.com:65616", "good.example.com:0x50", "evil.example.org:80",
               "http://good.example.com", "good.example.com/", " good.example.com", "good.example.com ", "\tgood.example.com", '"good.example.com"']


def hosts():
    # To an address, so that the name in the bytes is the only one.
    for host in [*HOSTS, *AUTHORITIES]:
        yield f"Host {shown(host)}", GOOD, HTTP, [request(host)]
    for host in ("good.example.com", "evil.example.org", "shared.example.com"):
        yield f"to evil's name, Host {host}", "evil.example.org", HTTP, [request(host)]
        yield f"to evil's address, Host {host}", EVIL, HTTP, [request(host)]
        yield f"to good's name, Host {host}", "good.example.com", HTTP, [request(host)]
        yield f"to shared, Host {host}", "shared.example.com", HTTP, [request(host)]
    good, evil = "Host: good.example.com\r\n", "Host: evil.example.org\r\n"
    for name, lines in {"no Host": "", "Host twice, the same": good * 2, "Host twice, evil last": good + evil, "Host twice, evil first": evil + good,
                        "Host with a space before the colon": "Host : good.example.com\r\n", "Host folded": "Host:\r\n good.example.com\r\n",
                        "Host folded to evil": "Host: good.example.com\r\n evil.example.org\r\n", "Host in capitals": "HOST: good.example.com\r\n",
                        "X-Forwarded-Host": good + "X-Forwarded-Host: evil.example.org\r\n", "Host behind a bare line break": "X: y\n" + evil + good,
                        "Host behind a bare return": "X: y\rHost: evil.example.org\r\n" + good}.items():
        yield name, "good.example.com", HTTP, [request(None, more=lines)]


# ---- targets and paths ---------------------------------------------------------------------------------------------

TARGETS = [
    "http://good.example.com/case-NNN.0", "http://GOOD.example.com/case-NNN.0", "HTTP://good.example.com/case-NNN.0", "http://good.example.com:80/case-NNN.0",
    "http://evil.example.org/case-NNN.0", "http://shared.example.com/case-NNN.0", "http://good.example.com@evil.example.org/case-NNN.0",
    "http://evil.example.org@good.example.com/case-NNN.0", "http://evil.example.org:80@good.example.com/case-NNN.0", "https://good.example.com/case-NNN.0",
    "https://evil.example.org/case-NNN.0", "ftp://good.example.com/case-NNN.0", "//evil.example.org/case-NNN.0", "//good.example.com/case-NNN.0",
    "http:/good.example.com/case-NNN.0", "http:///case-NNN.0", "http:evil.example.org/case-NNN.0", "http://good.example.com" "?case-NNN.0", "http://good.example.com\\@evil.example.org/case-NNN.0",
    "http://good.example.com#@evil.example.org/case-NNN.0", "http://[::1]/case-NNN.0", f"http://{EVIL}/case-NNN.0", f"http://{GOOD}/case-NNN.0", "*", "good.example.com:80",
    "case-NNN.0", "/case-NNN.0 HTTP/1.1\r\nHost: evil.example.org\r\nX: ", "/case-NNN.0#fragment", "/case-NNN.0?http://evil.example.org/", "urn:case-NNN.0",
]
PATHS = [
    "/private/case-NNN.0", "/private", "/private?case-NNN.0", "/private/", "/PRIVATE/case-NNN.0", "/privates/case-NNN.0", "/public/case-NNN.0", "/public/../private/case-NNN.0",
    "/public/%2e%2e/private/case-NNN.0", "/public/%2E%2e/private/case-NNN.0", "/public/..%2fprivate/case-NNN.0", "/public/%252e%252e/private/case-NNN.0", "/./private/case-NNN.0",
    "//private/case-NNN.0", "/%70rivate/case-NNN.0", "/%2570rivate/case-NNN.0", "/private%2fcase-NNN.0", "/private%00/case-NNN.0", "/private;x/case-NNN.0", "/public/..;/private/case-NNN.0",
    "/public/..\\private/case-NNN.0", "\\private\\case-NNN.0", "/public/%5c..%5cprivate/case-NNN.0", "/../private/case-NNN.0", "/private/../public/case-NNN.0", "/private/./case-NNN.0",
    "/private/%2e%2e/public/case-NNN.0", "/public/case-NNN.0?/../private", "/public/case-NNN.0#/private", "/priv%61te/case-NNN.0", "/private\t/case-NNN.0", "/%zz/case-NNN.0", "/%/case-NNN.0",
    "/public/\x80case-NNN.0", "/" + "a" * 4096 + "case-NNN.0", "/" + "../" * 50 + "private/case-NNN.0", "/.%2e/private/case-NNN.0", "/p/..//private/case-NNN.0",
]


def targets():
    for target in TARGETS:
        yield f"target {shown(target)}", "good.example.com", HTTP, [request("good.example.com", target)]
    for target in ("http://good.example.com/case-NNN.0", "/case-NNN.0"):
        yield f"target {target}, Host evil", "good.example.com", HTTP, [request("evil.example.org", target)]
    for path in PATHS:
        yield f"path {shown(path)}", "paths.example.com", HTTP, [request("paths.example.com", path)]
    for method in ("HEAD", "OPTIONS", "get", "TRACE", "FOO", "GET\t", "CONNECT", "X" * 200, "GE T", "\r\nGET", "\r\n\r\nGET"):
        yield f"method {shown(method)}", "good.example.com", HTTP, [request("good.example.com", method=method)]
    for where in ("evil.example.org:443", "evil.example.org:80", "good.example.com:443"):
        yield f"CONNECT {where}", "good.example.com", HTTP, [request(where, where, "CONNECT", "X: case-NNN.0\r\n"), request("evil.example.org", "/case-NNN.1")]
    for version in ("HTTP/1.0", "HTTP/0.9", "", "HTTP/1.2", "HTTP/2.0", "HTTP/3", "http/1.1", "HTTP/1.1 HTTP/1.1", "HTTP/01.1", "HTTP/1.1x"):
        yield f"version {shown(version)}", "good.example.com", HTTP, [request("good.example.com", version=version)]


# ---- framing -------------------------------------------------------------------------------------------------------


def framing():
    second = request("evil.example.org", "/case-NNN.1")
    inner = second.decode()
    chunked = f"{len(inner):x}\r\n{inner}\r\n0\r\n\r\n"

    def post(headers, body, host="good.example.com"):
        return request(host, method="POST", more=headers) + body.encode()

    yield "two requests, the second for evil", "good.example.com", HTTP, [request("good.example.com") + second]
    yield "two requests, evil first", "good.example.com", HTTP, [request("evil.example.org") + request("good.example.com", "/case-NNN.1")]
    yield "two requests in two pieces", "good.example.com", HTTP, [request("good.example.com"), second]
    yield "two good requests", "good.example.com", HTTP, [request("good.example.com") + request("good.example.com", "/case-NNN.1")]
    for name, headers, body in (
            ("CL and TE", f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + inner),
            ("TE and CL", f"Transfer-Encoding: chunked\r\nContent-Length: {len(inner)}\r\n", chunked),
            ("TE xchunked", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n" + inner),
            ("TE chunked, identity", "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n" + inner),
            ("TE twice", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + inner),
            ("TE with a space before the colon", "Transfer-Encoding : chunked\r\n", "0\r\n\r\n" + inner),
            ("TE folded", "Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n" + inner), ("TE with a tab", "Transfer-Encoding:\tchunked\r\n", "0\r\n\r\n" + inner),
            ("TE with a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n" + inner), ("two CL", "Content-Length: 0\r\nContent-Length: 400\r\n", inner),
            ("two CL, the same", "Content-Length: 0\r\nContent-Length: 0\r\n", inner), ("CL list", "Content-Length: 0, 0\r\n", inner),
            ("CL signed", "Content-Length: +0\r\n", inner), ("CL negative", "Content-Length: -1\r\n", inner), ("CL hexadecimal", "Content-Length: 0x0\r\n", inner),
            ("CL with a space", "Content-Length: 0 1\r\n", inner), ("CL too large", "Content-Length: 18446744073709551616\r\n", inner), ("CL 0", "Content-Length: 0\r\n", inner),
            ("chunk size overflows", "Transfer-Encoding: chunked\r\n", "10000000000000000\r\n" + inner), ("chunk size signed", "Transfer-Encoding: chunked\r\n", "+0\r\n\r\n" + inner),
            ("chunk size 0x0", "Transfer-Encoding: chunked\r\n", "0x0\r\n\r\n" + inner), ("chunks end with bare line breaks", "Transfer-Encoding: chunked\r\n", "0\n\n" + inner),
            ("chunk extension", "Transfer-Encoding: chunked\r\n", "0;a=b\r\n\r\n" + inner), ("chunk extension with a line break", "Transfer-Encoding: chunked\r\n", "0;a\nb\r\n\r\n" + inner),
            ("trailers", "Transfer-Encoding: chunked\r\n", "0\r\nHost: evil.example.org\r\n\r\n" + inner), ("upgrade to h2c", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n", inner),
            ("upgrade to websocket", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n", inner),
            ("upgrade to foo", "Upgrade: foo\r\nConnection: Upgrade\r\n", inner), ("Connection: Host", "Connection: Host\r\n", inner)):
        yield name, "good.example.com", HTTP, [post(headers, body)]
    base = request("good.example.com")
    for name, piece in (("bare line breaks", base.replace(b"\r\n", b"\n")), ("bare returns", base.replace(b"\r\n", b"\r")), ("NUL in a header", request("good.example.com", more="X: a\0b\r\n")),
                        ("a header without a colon", request("good.example.com", more="nonsense\r\n")), ("a header without a name", request("good.example.com", more=": x\r\n")),
                        ("a header of 70 KiB", request("good.example.com", more="X: " + "a" * 70000 + "\r\n")), ("300 headers", request("good.example.com", more="X: y\r\n" * 300)),
                        ("a head that does not end", base[:-2]), ("spaces between words", base.replace(b" HTTP", b"   HTTP")), ("a space first", b" " + base),
                        ("a byte order mark first", b"\xef\xbb\xbf" + base), ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ncase-NNN.0"), ("SSH", b"SSH-2.0-case-NNN.0\r\n"),
                        ("SOCKS5", b"\x05\x01\x00case-NNN.0"), ("SOCKS4a", b"\x04\x01\x00\x50\x00\x00\x00\x01case-NNN.0\0evil.example.org\0"), ("zeros", bytes(64) + b"case-NNN.0"),
                        ("high bytes", bytes(range(128, 256)) + b"case-NNN.0"), ("a proxy's own protocol", b"PROXY TCP4 127.0.0.1 127.0.0.1 1 80\r\n" + base)):
        yield name, "good.example.com", HTTP, [piece]


# ---- TLS -----------------------------------------------------------------------------------------------------------


def vector(content, width):
    return len(content).to_bytes(width, "big") + content


def extension(kind, body):
    return kind.to_bytes(2, "big") + vector(body, 2)


def server_name(*names, kind=0):
    return extension(0, vector(b"".join(bytes([kind]) + vector(name.encode("latin-1"), 2) for name in names), 2))


def message(extensions, version=b"\x03\x03", kind=1, ciphers=b"\x13\x01\xc0\x2b\xc0\x2f"):
    body = version + b"case-NNN.0".ljust(32, b"r") + vector(b"s" * 32, 1) + vector(ciphers, 2) + b"\x01\0" + vector(extensions, 2)
    return bytes([kind]) + vector(body, 3)


def record(payload, kind=22, version=b"\x03\x01"):
    return bytes([kind]) + version + vector(payload, 2)


USUAL = extension(10, vector(b"\x00\x1d\x00\x17", 2)) + extension(13, vector(b"\x04\x03\x08\x04", 2)) + extension(43, vector(b"\x03\x04\x03\x03", 1))


def hello(*names, before=b"", after=b"", **named):
    return record(message(before + server_name(*names) + USUAL + after, **named))


def tls():
    for host in HOSTS:
        yield f"SNI {shown(host)}", GOOD, TLS, [hello(host)]
    for name in ("good.example.com", "evil.example.org", "shared.example.com"):
        yield f"to evil's name, SNI {name}", "evil.example.org", TLS, [hello(name)]
        yield f"to evil's address, SNI {name}", EVIL, TLS, [hello(name)]
        yield f"to good's name, SNI {name}", "good.example.com", TLS, [hello(name)]
        yield f"to shared, SNI {name}", "shared.example.com", TLS, [hello(name)]
    good, plain = "good.example.com", record(message(USUAL))
    whole = hello(good)
    ech = extension(0xFE0D, b"\0\0\x01\0\x01\0" + vector(b"k" * 32, 2) + vector(b"p" * 100, 2))
    for name, pieces in {
            "no SNI": [plain], "no extensions": [record(message(b""))], "two names": [hello(good, "evil.example.org")], "two names, evil first": [hello("evil.example.org", good)],
            "two SNI extensions": [record(message(server_name(good) + server_name("evil.example.org") + USUAL))],
            "two SNI extensions, evil first": [record(message(server_name("evil.example.org") + server_name(good) + USUAL))],
            "a name of another kind": [record(message(server_name(good, kind=7) + USUAL))], "an empty list of names": [record(message(extension(0, b"\0\0") + USUAL))],
            "an empty extension": [record(message(extension(0, b"") + USUAL))], "a list that is longer than it": [record(message(extension(0, b"\0\xff\0\0\x01a") + USUAL))],
            "SNI last, behind 16 KiB": [record(message(USUAL + extension(21, bytes(15000)) + server_name(good)))], "ECH": [hello(good, after=ech)],
            "ECH, evil outside": [hello("evil.example.org", after=ech)], "early data": [hello(good, after=extension(42, b""))],
            "TLS 1.0": [hello(good, version=b"\x03\x01")], "SSL 3": [hello(good, version=b"\x03\x00")], "TLS 9.9": [hello(good, version=b"\x09\x09")],
            "another message first": [record(b"\x02" + (4).to_bytes(3, "big") + b"abcd") + whole], "an empty record first": [record(b"") + whole],
            "an alert first": [record(b"\x01\x00", kind=21) + whole], "application data": [record(message(server_name(good) + USUAL), kind=23)],
            "a record of version 2.0": [record(message(server_name(good) + USUAL), version=b"\x02\x00")],
            "SSL 2": [b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10case-NNN.0" + bytes(37)], "no ciphers": [hello(good, ciphers=b"")],
            "a hello that does not end": [whole[:-20]], "bytes behind the hello": [whole + b"more"], "a byte at a time at first": [whole[n:n + 1] for n in range(11)] + [whole[11:]],
            "HTTP": [request(good)], "HTTP for evil": [request("evil.example.org")], "SSH": [b"SSH-2.0-case-NNN.0\r\n"], "zeros": [bytes(64) + b"case-NNN.0"],
    }.items():
        yield f"443: {name}", good, TLS, pieces
    body = message(server_name(good) + USUAL)
    for name, at in (("after its type", 1), ("in its length", 3), ("in the middle", 60), ("before its end", len(body) - 3)):
        yield f"443: a hello in two records, {name}", good, TLS, [record(body[:at]) + record(body[at:])]
    yield "80: a hello", good, HTTP, [whole]
    yield "80: a hello for evil", good, HTTP, [hello("evil.example.org")]


def cases():
    """All of them, each with its number."""
    made = (Case(*case) for make in (hosts, targets, framing, tls) for case in make())
    return [Case(case.name, case.to, case.port, [piece.replace(b"case-NNN", b"case-%03d" % number) for piece in case.pieces])
            for number, case in enumerate(made)]
