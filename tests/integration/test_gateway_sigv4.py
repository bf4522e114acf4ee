#!/usr/bin/env python3
"""Credentials of AWS that a sandbox signs with and does not have: boto3 and curl as they are, against a server that
takes right signatures alone.

Runs in namespaces of its own (root alone, tests/lib/internet_lab.py), as test_gateway_secrets.py does, as root and as an
ordinary user.
"""
import json
import pathlib
import subprocess

import frame  # noqa: F401  (its paths)

import fake_aws
import harness
import internet_lab
import test_gateway_secrets
from internet_lab import Server

STAGE = "CAISSON_GATEWAY_SIGV4_STAGE"
AWS, OTHER = "93.184.11.1", "93.184.11.2"
REGION = "eu-central-1"
NAMES = [f"{service}.{REGION}.example.com" for service in ("s3", "sts", "dynamodb")]
ACCESS, KEY = "AKIACANARYCANARY2345", "canaryCANARY/canaryCANARY+canary01234567"
TOKEN = "canaryTOKEN//" + "Ab1+" * 80 + "=="
CANARIES = (ACCESS, KEY, TOKEN, "CANARY")
POLICY = f"""
rules:
  - {{id: aws, hosts: ["*.{REGION}.example.com"]}}
  - {{id: other, hosts: [other.example.org], tls: inspect}}
  - {{id: plain, hosts: [s3.{REGION}.example.com], tls: plaintext}}
secrets:
  aws:
    kind: sigv4
    access_key: {{env: CANARY_ID}}
    secret_key: {{env: CANARY_KEY}}
    hosts: ["*.{REGION}.example.com"]
    services: [s3, sts, dynamodb]
    regions: [{REGION}]
"""
TEMPORARY = POLICY.replace("    hosts: [\"*", "    session_token: {env: CANARY_TOKEN}\n    hosts: [\"*")
PYTHON = f"""
import botocore.auth, botocore.awsrequest, botocore.config, botocore.credentials, botocore.session, datetime, hashlib, http.client, os, sys
REGION = "{REGION}"
config = dict(retries={{"max_attempts": 0}}, s3={{"addressing_style": "path"}})
def client(name, region=REGION, host=REGION + ".example.com", **more):
    return botocore.session.get_session().create_client(
        name, region_name=region, endpoint_url="https://" + name + "." + host, config=botocore.config.Config(**dict(config, **more)))
def why(call, *args, **named):
    try:
        call(*args, **named)
        return "went through"
    except Exception as error:
        answer = getattr(error, "response", {{}}).get("ResponseMetadata", {{}})
        return str(answer.get("HTTPStatusCode", type(error).__name__)) + answer.get("HTTPHeaders", {{}}).get("x-sandbox-egress", "").replace("denied; reason=", " ")
def request(method, path, headers, body=b"", host="s3." + REGION + ".example.com", kind=http.client.HTTPSConnection):
    c = kind(host, timeout=20)
    c.request(method, path, body, headers); answer = c.getresponse(); answer.read()
    return (str(answer.status) + " " + (answer.headers.get("X-Sandbox-Egress") or "").partition("reason=")[2]).strip()
def signed(method, path, body=b"", service="s3", region=REGION, host="s3." + REGION + ".example.com", headers={{}}, key=None, payload=None):
    kind = botocore.auth.S3SigV4Auth if service == "s3" else botocore.auth.SigV4Auth
    made = botocore.awsrequest.AWSRequest(method, "https://" + host + path, data=body, headers=dict(headers))
    made.context["client_config"] = None
    if payload: made.headers["X-Amz-Content-SHA256"] = payload; kind = type("Other", (kind,), {{"_modify_request_before_signing": lambda s, r: botocore.auth.SigV4Auth._modify_request_before_signing(s, r)}})
    kind(botocore.credentials.Credentials(os.environ["AWS_ACCESS_KEY_ID"], key or os.environ["AWS_SECRET_ACCESS_KEY"], os.environ.get("AWS_SESSION_TOKEN")),
         service, region).add_auth(made)
    return dict(made.headers.items())
s3 = client("s3")
"""


class Stage(test_gateway_secrets.Lab):
    @classmethod
    def setUpClass(cls):
        cls.names = internet_lab.Names({**{name: [AWS] for name in NAMES}, "other.example.org": [OTHER]})
        cls.internet = internet_lab.Internet(AWS, OTHER)
        cls.addClassCleanup(cls.internet.close)
        cls.folder = harness.Caller("root")
        cls.addClassCleanup(cls.folder.close)
        folder = cls.folder.folder
        authority, text = internet_lab.certificate(folder, "lab authority")
        bundle = cls.folder.write("bundle.pem", pathlib.Path(test_gateway_secrets.BUNDLE).read_text() + text, 0o644)
        subprocess.run(["mount", "--bind", bundle, test_gateway_secrets.BUNDLE], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", test_gateway_secrets.BUNDLE], check=True)
        own, _ = internet_lab.certificate(folder, *NAMES, signer=authority)
        other, _ = internet_lab.certificate(folder, "other.example.org", signer=authority)
        cls.aws = type("OneAws", (fake_aws.Aws,), {"objects": {}})
        cls.servers = {"aws": cls.internet.serve(Server, AWS, 443, own, handler=cls.aws),
                       "plain": cls.internet.serve(Server, AWS, 80, handler=cls.aws),
                       "other": cls.internet.serve(Server, OTHER, 443, other, handler=cls.aws)}

    def each(self, kinds=("root", "user"), policies=(POLICY, TEMPORARY)):
        for kind in kinds:
            for policy in policies:
                self.forget()
                self.aws.objects.clear()
                self.aws.credentials = (ACCESS, KEY, TOKEN if policy == TEMPORARY else None)
                with self.subTest(caller=kind, temporary=policy == TEMPORARY), harness.Caller(kind) as caller:
                    yield caller, policy

    def run_in(self, caller, policy, *command, expect=0):
        audit = pathlib.Path(caller.home) / "audit.jsonl"
        audit.unlink(missing_ok=True)
        net = str(caller.write("net.yaml", policy, 0o644))
        done = caller.caisson("run", "--json", "--image", "host", "--audit", str(audit), "--net", net, "--", *command,
                              env={"CANARY_ID": ACCESS, "CANARY_KEY": KEY, "CANARY_TOKEN": TOKEN})
        result = json.loads(done.out)
        self.assertEqual(done.returncode, expect, done)
        text = audit.read_text()
        for canary in CANARIES:
            self.assertNotIn(canary, text + done.out + done.err)
        result["audit"] = [r for r in map(json.loads, text.splitlines()) if r["kind"] not in ("begin", "end", "dns")]
        return result

    def python(self, caller, policy, script):
        return self.run_in(caller, policy, "python3", "-c", PYTHON + script)

    # ---- what is signed anew ----

    def test_boto_works_as_it_is(self):
        script = """
import io, json
big = bytes(range(256)) * 8192                       # 2 MiB: longer than what is read before anything is sent
odd = "a b/ü+~'()*!&=:@,;$%41/.x"
s3.put_object(Bucket="bucket", Key="plain.txt", Body=b"hello")
s3.put_object(Bucket="bucket", Key="big", Body=big)
s3.put_object(Bucket="bucket", Key=odd, Body=b"odd")
# By a client of its own: botocore 1.29 takes what answers an empty body at once for the answer to the next one in chunks.
client("s3").put_object(Bucket="bucket", Key="empty", Body=b"")
client("s3", s3={"addressing_style": "path", "payload_signing_enabled": True}).put_object(Bucket="bucket", Key="hashed", Body=big)
s3.put_object(Bucket="bucket", Key="trailer", Body=io.BytesIO(b"with a trailer"), ChecksumAlgorithm="CRC32")
s3.put_object(Bucket="bucket", Key="trailer big", Body=io.BytesIO(big), ChecksumAlgorithm="CRC32")
read = lambda key, **more: s3.get_object(Bucket="bucket", Key=key, **more)["Body"].read()
print([read(key) for key in ("plain.txt", odd, "empty", "trailer")], [read(key) == big for key in ("big", "hashed", "trailer big")])
print(read("plain.txt", Range="bytes=1-3"))
listed = s3.list_objects_v2(Bucket="bucket", Prefix="a b+&=%~/ü", Delimiter="/", StartAfter="!", MaxKeys=7, FetchOwner=True)
print(listed["KeyCount"])
s3.delete_object(Bucket="bucket", Key="plain.txt")
print(s3.head_object(Bucket="bucket", Key="big")["ContentLength"])
print(client("sts").get_caller_identity()["Account"], client("dynamodb").list_tables()["TableNames"])
"""
        for caller, policy in self.each():
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(),
                             ["[b'hello', b'odd', b'', b'with a trailer'] [True, True, True]", "b'ell'", "7", "2097152", "123456789012 ['one']"], result)
            told = [(r["decision"], r.get("secrets")) for r in result["audit"] if r["kind"] == "http"]
            self.assertGreater(len(told), 15)
            self.assertEqual(set(map(str, told)), {str(("allow", [{"name": "aws", "where": "sigv4", "n": 1}]))}, result["audit"])
            got = self.received("aws")
            self.assertNotIn(KEY.encode(), got)
            for said in (b"UNSIGNED-PAYLOAD", b"STREAMING-UNSIGNED-PAYLOAD-TRAILER", b"aws-chunked"):
                self.assertIn(said, got)

    def test_curl_works_as_it_is(self):
        host = NAMES[0]
        for caller, policy in self.each(policies=(POLICY,)):
            self.aws.objects["/bucket/one"] = b"one"
            for version in ("--http1.1", "--http2"):
                script = (f'curl -sS {version} --aws-sigv4 aws:amz:{REGION}:s3 -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" '
                          f'-H "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD" ')
                result = self.run_in(caller, policy, "sh", "-c", script + f"https://{host}/bucket/one -w ' %{{http_code}} %{{http_version}}'")
                self.assertEqual(result["stdout"], "one 200 " + ("1.1" if version == "--http1.1" else "2"), result)
            script = (f'curl -sS --aws-sigv4 aws:amz:{REGION}:dynamodb -u "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" '
                      f"-H 'X-Amz-Target: DynamoDB_20120810.ListTables' -d '{{}}' https://{NAMES[2]}/")
            self.assertEqual(self.run_in(caller, policy, "sh", "-c", script)["stdout"], '{"TableNames": ["one"]}')

    def test_the_clock_of_the_sandbox_means_nothing(self):
        script = """
class Past(datetime.datetime):
    @classmethod
    def utcnow(cls): return datetime.datetime(2001, 2, 3, 4, 5, 6)
botocore.auth.datetime = type("Module", (), {"datetime": Past})
print(why(s3.list_objects_v2, Bucket="bucket"), signed("GET", "/")["X-Amz-Date"])
"""
        for caller, policy in self.each():
            self.assertEqual(self.python(caller, policy, script)["stdout"], "went through 20010203T040506Z\n")

    def test_the_placeholders_have_the_form_of_credentials(self):
        script = 'print("\\n".join(os.environ.get("AWS_" + name, "") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")))'
        for caller, policy in self.each():
            access, key, token = self.python(caller, policy, script)["stdout"].removesuffix("\n").split("\n")
            self.assertRegex(access, r"^(ASIA|AKIA)[A-Z2-7]{16}$")
            self.assertEqual(access[:4], "ASIA" if policy == TEMPORARY else "AKIA")
            self.assertRegex(key, r"^[A-Za-z0-9]{40}$")
            self.assertEqual(len(token), len(TOKEN) if policy == TEMPORARY else 0)

    def test_an_answer_has_placeholders_where_a_server_says_what_it_was_sent(self):
        script = """
answer = s3.get_object(Bucket="bucket", Key="echo")["Body"].read().decode()
print([os.environ[name] in answer for name in ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN")])
"""
        for caller, policy in self.each(policies=(TEMPORARY,)):
            self.aws.objects["/bucket/echo"] = f"<AWSAccessKeyId>{ACCESS}</AWSAccessKeyId><Token>{TOKEN}</Token>".encode()
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"], "[True, True]\n", result)
            self.assertEqual([r["scrubbed"] for r in result["audit"] if "scrubbed" in r], [2])

    # ---- what is not ----

    def test_what_the_credentials_are_not_for_is_sent_nowhere(self):
        script = """
print(why(client("s3", region="us-east-1").list_objects_v2, Bucket="bucket"))
print(why(client("iam").list_users) if False else request("POST", "/", signed("POST", "/", service="iam")))
print(request("GET", "/", signed("GET", "/", host="other.example.org"), host="other.example.org"))
print(request("GET", "/", signed("GET", "/"), kind=http.client.HTTPConnection))
"""
        for caller, policy in self.each():
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(), ["403 secret_scope", "403 secret_scope", "403 secret_host", "403 secret_plaintext"], result)
            for name in self.servers:
                self.assertEqual(self.received(name), b"")
            denied = [(r["kind"], r["decision"], r["reason"], r["secrets"]) for r in result["audit"] if r["kind"] == "secret_violation"]
            self.assertEqual(denied[0], ("secret_violation", "deny", "secret_scope", [{"name": "aws", "where": "sigv4"}]))
            self.assertEqual(len(denied), 4)

    def test_other_ways_to_sign_are_refused_clearly(self):
        script = """
import urllib.parse
url = s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "one"})
print(request("GET", url.partition(".example.com")[2], {}))
headers = signed("GET", "/")
print(request("GET", "/", dict(headers, Authorization=headers["Authorization"].replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"))))
print(request("PUT", "/bucket/x", signed("PUT", "/bucket/x", payload="STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), b"0\\r\\n\\r\\n"))
"""
        for caller, policy in self.each():
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(), ["403 secret_signing_form"] * 3, result)
            self.assertEqual(self.received("aws"), b"")
            details = [r["detail"] for r in result["audit"] if r["kind"] == "secret_violation"]
            for detail, word in zip(details, ("in the URL", "the algorithm is not", "chunks are signed")):
                self.assertIn(word, detail)

    def test_what_was_not_signed_with_the_placeholders_is_not_signed_anew(self):
        script = """
headers = signed("GET", "/bucket/one")
print(request("GET", "/bucket/two", headers), request("DELETE", "/bucket/one", headers), request("GET", "/bucket/one?acl", headers))
print(request("GET", "/bucket/one", signed("GET", "/bucket/one", key="x" * 40)))
print(request("GET", "/bucket/one", dict(headers, Authorization=headers["Authorization"].replace("SignedHeaders=", "SignedHeaders= "))))
print(request("GET", "/bucket/a//b", signed("GET", "/bucket/a//b")), request("GET", "/bucket/one?prefix=a+b", signed("GET", "/bucket/one?prefix=a+b")))
hashed = signed("PUT", "/bucket/one", b"first", payload=hashlib.sha256(b"first").hexdigest())
print(request("PUT", "/bucket/one", hashed, b"other"))
"""
        for caller, policy in self.each():
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(),
                             ["403 secret_signature 403 secret_signature 403 secret_signature", "403 secret_signature", "403 secret_signature",
                              "403 secret_signature 403 secret_signature", "400 secret_signed_body"], result)
            self.assertEqual(self.received("aws"), b"")

    def test_a_long_body_that_is_another_is_never_whole(self):
        script = """
body = b"x" * (2 << 20)
headers = signed("PUT", "/bucket/big", body, payload=hashlib.sha256(body).hexdigest())
print(why(lambda: request("PUT", "/bucket/big", dict(headers), body)))
print(request("PUT", "/bucket/big", dict(headers), body[:-1] + b"y"))
print(request("POST", "/", signed("POST", "/", body, service="sts"), body))
"""
        for caller, policy in self.each():
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].splitlines(), ["went through", "400 secret_signed_body", "413 secret_signed_body"], result)
            self.assertEqual(self.aws.objects, {"/bucket/big": b"x" * (2 << 20)})

    def test_no_placeholder_goes_anywhere_else(self):
        script = """
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    value = os.environ[name]
    print(request("GET", "/", {"X-Key": value}), request("GET", "/?k=" + value, {}), request("POST", "/", {}, value.encode()),
          request("GET", "/", signed("GET", "/", headers={"X-Amz-Meta-Key": value})), request("GET", "/", {"Authorization": "Bearer " + value}))
"""
        for caller, policy in self.each():
            result = self.python(caller, policy, script)
            self.assertEqual(result["stdout"].split(), ["403", "secret_place"] * 10, result)
            self.assertEqual(self.received("aws"), b"")

    def test_of_a_sandbox_that_outlives_its_maker_too(self):
        for caller, policy in self.each(policies=(TEMPORARY,)):
            net = str(caller.write("net.yaml", policy, 0o644))
            made = caller.caisson("run", "-d", "--image", "host", "--net", net, "--", "sleep", "300",
                                  env={"CANARY_ID": ACCESS, "CANARY_KEY": KEY, "CANARY_TOKEN": TOKEN})
            self.assertEqual(made.returncode, 0, made)
            sandbox = made.out.strip()
            try:
                ask = PYTHON + 'print(why(s3.list_objects_v2, Bucket="bucket"))'
                self.assertEqual(caller.caisson("exec", sandbox, "--", "python3", "-c", ask).out, "went through\n")
                same = caller.caisson("policy", "apply", sandbox, str(caller.write("same.yaml", policy.replace("id: aws", "id: still"), 0o644)))
                self.assertEqual(same.returncode, 0, same)
                self.assertEqual(caller.caisson("exec", sandbox, "--", "python3", "-c", ask).out, "went through\n")
                wider = caller.caisson("policy", "apply", sandbox, str(caller.write("wider.yaml", policy.replace("[s3, sts", "[s3, iam, sts"), 0o644)))
                self.assertEqual(wider.returncode, 125, wider)
                self.assertIn("another rule for it", wider.err)
                without = policy[:policy.index("secrets:")].replace("example.com\"]}", "example.com\"], tls: inspect}", 1)
                self.assertEqual(caller.caisson("policy", "apply", sandbox, str(caller.write("without.yaml", without, 0o644))).returncode, 0)
                self.assertEqual(caller.caisson("exec", sandbox, "--", "python3", "-c", ask).out, "403 secret_revoked\n")
            finally:
                caller.caisson("kill", sandbox)


if __name__ == "__main__":
    test_gateway_secrets.main(__file__, STAGE)
