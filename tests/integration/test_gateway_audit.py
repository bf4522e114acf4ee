#!/usr/bin/env python3
"""The records of a gateway as a chain: `caisson audit` on files that gateways have written, in the Internet of
test_gateway.py. What is said of files that nobody's gateway would write is in tests/cli/test_audit.py.
"""
import json
import os
import pathlib
import signal
import subprocess

import frame  # noqa: F401  (its paths)

import process_tree
import test_gateway

STAGE = "CAISSON_GATEWAY_AUDIT_STAGE"
WAIT = "print(1, flush=True); input()"


class Stage(test_gateway.Lab):
    def waiting(self, caller, audit):
        """A run that has a gateway until it is told to end."""
        process = caller.popen("run", "--image", "host", "--interactive", "--net", "allow:good.example.com", "--audit", audit, "--", "python3", "-c", WAIT,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b"1\n")
        return process

    def run_audited(self, caller, audit):
        done = caller.caisson("run", "--json", "--image", "host", "--net", "allow:good.example.com", "--audit", audit, "--", "curl", "-sk",
                              "https://evil.example.org/")
        return json.loads(done.out)["network"]

    def verify(self, caller, *arguments):
        done = caller.caisson("audit", "verify", *arguments)
        return done.returncode, done.out

    def test_the_audit_is_a_chain_that_goes_on_from_run_to_run(self):
        for caller in self.each_caller():
            audit = str(pathlib.Path(caller.home) / "net.jsonl")
            self.run_audited(caller, audit)
            head = self.run_audited(caller, audit)["audit"]
            whole = pathlib.Path(audit).read_bytes()
            lines = whole.splitlines(keepends=True)
            self.assertEqual([json.loads(line)["kind"] for line in lines], ["begin", "tls", "end"] * 2)
            self.assertEqual(head, {"seq": 6, "hash": json.loads(lines[5])["hash"]})
            self.assertEqual(self.verify(caller, "--head", head["hash"], audit), (0, f"whole: 6 records, sealed as far as record 6, head {head['hash']}\n"))

            def changed(data, words, *, wanted=2, options=()):
                pathlib.Path(audit).write_bytes(data)
                status, out = self.verify(caller, *options, audit)
                self.assertEqual(status, wanted, out)
                self.assertIn(words, out)

            changed(whole.replace(b"evil.example.org", b"good.example.org", 1), "broken: " + audit + ", line 2: the line was changed")
            changed(b"".join(lines[:1] + lines[2:]), "line 2: before this line record 2 is missing")
            changed(b"".join(lines[:-1]), "line 4: the run of", wanted=3)
            # A whole run less, of which the file says nothing.
            changed(b"".join(lines[:3]), "line 3: the file ends with record 3, and record 6 is known to have been written", wanted=3)
            changed(b"".join(lines[:3]), "the last record is not the one whose hash was given", options=("--head", head["hash"]))
            self.assertEqual(pathlib.Path(self.keys(caller), "key").stat().st_mode & 0o777, 0o600)
            done = caller.caisson("audit", "why", audit, "https://evil.example.org/x")
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.out, r"^refused once, last in record 2 .* deny tls evil.example.org:443: no rule names the host")

            # A line that was cut off stays, and the next run says so.
            pathlib.Path(audit).write_bytes(whole + b'{"ts":"20')
            self.run_audited(caller, audit)
            status, out = self.verify(caller, audit)
            self.assertEqual(status, 0, out)
            self.assertIn("remark: " + audit + ", line 7: a record was cut off here", out)

            # An end that was cut off between two runs shows for ever.
            pathlib.Path(audit).write_bytes(b"".join(lines[:3]))
            last = self.run_audited(caller, audit)["audit"]
            self.assertEqual(last["seq"], 13)
            status, out = self.verify(caller, audit)
            self.assertEqual((status, "cut: " + audit + ", line 4: before this line records 4 to 9 are missing" in out), (3, True), out)

    def keys(self, caller):
        return pathlib.Path(caller.env["CAISSON_STATE_DIR"], "audit")

    def test_an_audit_file_has_one_writer_and_nothing_else_in_it(self):
        for caller in self.each_caller():
            audit = str(pathlib.Path(caller.home) / "net.jsonl")
            process = self.waiting(caller, audit)
            done = caller.caisson("run", "--image", "host", "--net", "allow:good.example.com", "--audit", audit, "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("another sandbox writes its records to this file", done.err)
            status, out = self.verify(caller, audit)
            self.assertEqual(status, 0, out)
            self.assertIn("a gateway is writing to the file", out)
            process.communicate(b"\n", timeout=60)
            self.assertEqual(process.returncode, 0)
            self.assertEqual(self.verify(caller, audit)[0], 0)
            notes = caller.write("notes", "mine\n", 0o666)
            done = caller.caisson("run", "--image", "host", "--net", "allow:good.example.com", "--audit", str(notes), "--", "true")
            self.assertEqual(done.returncode, 125)
            self.assertIn("records cannot be appended to this file", done.err)
            self.assertEqual(pathlib.Path(notes).read_text(), "mine\n")
            self.assertEqual(caller.sandboxes_left(), [])

    def test_of_a_gateway_that_was_killed_the_end_is_missing(self):
        for caller in self.each_caller():
            audit = str(pathlib.Path(caller.home) / "net.jsonl")
            process = self.waiting(caller, audit)
            gateway = [pid for pid, _, _ in process_tree.descendants(process.pid)
                       if pathlib.Path(f"/proc/{pid}/comm").read_text() == "caisson-gateway\n"]
            self.assertEqual(len(gateway), 1)
            os.kill(gateway[0], signal.SIGKILL)
            process.communicate(b"\n", timeout=60)
            # Now and after the next run.
            for _ in range(2):
                status, out = self.verify(caller, audit)
                self.assertEqual((status, "incomplete: " + audit + ", line 1: the run of" in out, "broken" in out), (1, True, False), out)
                self.run_audited(caller, audit)


if __name__ == "__main__":
    test_gateway.main(__file__, STAGE)
