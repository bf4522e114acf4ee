"""A server of AWS's interfaces that takes a request only where its signature is right.

Signatures are computed by botocore's own signer, which shares nothing with ours, from what came on the wire. Objects
are kept in memory; what S3 and STS answer is as much of it as botocore's clients read.
"""
import base64
import datetime
import hashlib
import html
import re
import urllib.parse
import zlib

import internet_lab
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SKEW = datetime.timedelta(minutes=5)


class Denied(Exception):
    pass


def scope_of(authorization):
    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
                         authorization or "")
    if not found:
        raise Denied("there is no signature")
    return found.groups()


class Aws(internet_lab.Handler):
    """`credentials` are (access key, secret key, session token or None)."""

    protocol_version = "HTTP/1.1"
    credentials = None
    objects = {}

    def do_GET(self):
        self.serve()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def serve(self):
        body = self.body()
        try:
            self.verify(body)
            answer = self.reply(self.payload(body))
        except Denied as denied:
            xml = f"<Error><Code>SignatureDoesNotMatch</Code><Message>{denied}</Message></Error>"
            answer = (403, {"Content-Type": "application/xml"}, xml.encode())
        status, headers, data = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def verify(self, body):
        access_key, date, region, service, names, signature = scope_of(self.headers.get("Authorization"))
        own, secret, token = self.credentials
        if access_key != own or self.headers.get("X-Amz-Security-Token") != token:
            raise Denied("of credentials that nobody has")
        time = datetime.datetime.strptime(self.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ")
        if abs(datetime.datetime.utcnow() - time) > SKEW or date != time.strftime("%Y%m%d"):
            raise Denied("RequestTimeTooSkewed")
        names = names.split(";")
        for name in self.headers:
            if name.lower().startswith("x-amz-") and name.lower() not in names:
                raise Denied(f"There were headers present in the request which were not signed: {name}")
        headers = {name: ",".join(self.headers.get_all(name)) for name in names}
        request = AWSRequest(self.command, f"https://{self.headers['Host']}{self.path}", headers=headers, data=body)
        request.context["timestamp"] = self.headers["X-Amz-Date"]
        signer = (S3SigV4Auth if service == "s3" else SigV4Auth)(Credentials(own, secret, token), service, region)
        right = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
        if right != signature:
            raise Denied("The request signature we calculated does not match the signature you provided")

    def payload(self, body):
        said = self.headers.get("X-Amz-Content-Sha256")
        if said in (None, "UNSIGNED-PAYLOAD"):
            return body
        if said == "STREAMING-UNSIGNED-PAYLOAD-TRAILER":
            return self.unchunked(body)
        if hashlib.sha256(body).hexdigest() != said:
            raise Denied("XAmzContentSHA256Mismatch")
        return body

    def unchunked(self, body):
        data = b""
        while True:
            line, _, body = body.partition(b"\r\n")
            if not int(line, 16):
                break
            data, body = data + body[:int(line, 16)], body[int(line, 16) + 2:]
        name, _, value = body.partition(b"\r\n")[0].partition(b":")
        if name != b"x-amz-checksum-crc32" or base64.b64decode(value) != zlib.crc32(data).to_bytes(4, "big"):
            raise Denied("of another checksum")
        return data

    def reply(self, data):
        path, _, query = self.path.partition("?")
        name = urllib.parse.unquote(path)
        if self.headers["Host"].startswith("sts."):
            return 200, {"Content-Type": "text/xml"}, (b"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account>"
                                                       b"</GetCallerIdentityResult></GetCallerIdentityResponse>")
        if self.headers["Host"].startswith("dynamodb."):
            return 200, {"Content-Type": "application/x-amz-json-1.0"}, b'{"TableNames": ["one"]}'
        if self.command == "PUT":
            self.objects[name] = data
            return 200, {"ETag": '"1"'}, b""
        if self.command == "DELETE":
            return 204, {}, b""
        if query:
            keys = "".join(f"<Contents><Key>{html.escape(key.partition('/bucket/')[2])}</Key></Contents>" for key in sorted(self.objects))
            return 200, {"Content-Type": "application/xml"}, (
                f"<ListBucketResult><Name>bucket</Name><KeyCount>{len(self.objects)}</KeyCount>{keys}</ListBucketResult>").encode()
        if name not in self.objects:
            return 404, {}, b""
        data, found = self.objects[name], re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not found:
            return 200, {"ETag": '"1"'}, data
        begin, end = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
        return 206, {"ETag": '"1"', "Content-Range": f"bytes {begin}-{end}/{len(data)}"}, data[begin:end + 1]
