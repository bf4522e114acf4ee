#!/usr/bin/env python3
"""caisson policy check and explain: what is said of a network policy, and its exit statuses."""
import json
import re

import support

POLICY = """
rules:
  - {id: api, hosts: [api.example.com]}
  - {id: mirror, hosts: [mirror.example.com], tls: plaintext, http: [{methods: [GET], paths: ["/debian/**"]}]}
"""


class Policy(support.CallerTest):
    def policy(self, text=POLICY, name="net.yaml"):
        return str(self.caller.write(name, text, 0o644))

    def test_check_says_that_a_policy_is_valid(self):
        done = self.caller.caisson("policy", "check", self.policy())
        self.assertEqual((done.returncode, done.out), (0, "valid: 2 rules\n"), done)
        done = self.caller.caisson("policy", "check", self.policy('{"rules": []}', "net.json"))
        self.assertEqual((done.returncode, done.out), (0, "valid: 0 rules\n"), done)
        done = self.caller.caisson("policy", "check", "-", input=POLICY.encode())
        self.assertEqual(done.returncode, 0, done)

    def test_the_examples_of_the_documents_are_valid(self):
        for document in ("README.md", "docs/network.md"):
            text = (support.harness.ROOT / document).read_text()
            policies = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.S) if re.search(r"^rules:", block, re.M)]
            self.assertTrue(policies, document)
            for policy in policies:
                done = self.caller.caisson("policy", "check", "-", input=policy.encode())
                self.assertEqual(done.returncode, 0, done)
        self.assertIn("docs/network.md", self.caller.caisson("policy", "check", "--help").out)

    def test_check_says_what_is_wrong_and_where(self):
        file = self.policy("rules:\n  - {host: [api.example.com]}\n")
        done = self.caller.caisson("policy", "check", file)
        self.assertEqual((done.returncode, done.out), (125, ""), done)
        for word in (file, "line 2", "rules[0].host", "perhaps hosts is meant"):
            self.assertIn(word, done.err)
        done = self.caller.caisson("policy", "check", "/nowhere")
        self.assertEqual(done.returncode, 125)
        self.assertIn("No such file", done.err)
        done = self.caller.caisson("policy", "check")
        self.assertEqual(done.returncode, 125)
        self.assertIn("allowed is one: the policy's file", done.err)

    def test_explain_says_by_which_rule(self):
        file = self.policy()
        for url, more, status, begins in (
                ("https://api.example.com", [], 0, "allowed: the rule api allows a TLS connection to api.example.com:443"),
                ("https://www.example.com", [], 1, "denied: no rule names www.example.com"),
                ("http://mirror.example.com/debian/x", [], 0, "allowed: the rule mirror allows GET /debian/x"),
                ("http://mirror.example.com/debian/x", ["--method", "POST"], 1, "denied: no rule for mirror.example.com:80 has the method POST"),
                ("https://api.example.com:8443", [], 1, "denied: api.example.com is allowed on other ports than 8443")):
            done = self.caller.caisson("policy", "explain", *more, file, url)
            self.assertEqual((done.returncode, done.out.startswith(begins)), (status, True), done)

    def test_explain_as_json(self):
        done = self.caller.caisson("policy", "explain", "--json", self.policy(), "https://api.example.com")
        told = json.loads(done.out)
        self.assertEqual((told["decision"], told["reason"], told["rule"]), ("allow", "match", "api"))

    def test_explain_refuses_what_is_no_url(self):
        done = self.caller.caisson("policy", "explain", self.policy(), "api.example.com")
        self.assertEqual(done.returncode, 125)
        self.assertIn("https://HOST[:PORT]", done.err)


support.main()
