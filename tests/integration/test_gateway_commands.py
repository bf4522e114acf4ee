#!/usr/bin/env python3
"""Secrets that a command of this host makes (source: {command: ...}): it runs before the sandbox and again before a value
ends, as the sandbox's maker and with nothing of its secrets; what ended is refused. In the Internet of test_gateway_secrets.py.
"""
import contextlib
import os
import re
import signal
import subprocess
import textwrap
import time

import frame  # noqa: F401  (its paths)

import harness
import test_gateway_secrets
from test_gateway_secrets import POLICY

STAGE = "CAISSON_GATEWAY_COMMANDS_STAGE"
# Each run makes another value, which holds for so many seconds; while a file called broken lies beside it, it fails.
MINT = """\
    #!/usr/bin/env python3
    import datetime, json, os, sys, time
    folder, life = sys.argv[1], float(sys.argv[2])
    with open(folder + "/runs", "a") as runs:
        runs.write(f"{os.getpid()} {os.getppid()} " + " ".join(sorted(os.environ)) + "\\n")
    if os.path.exists(folder + "/broken"):
        print("ghp_canaryCANARYbroken", file=sys.stderr); sys.exit(3)
    count = len(open(folder + "/runs").readlines())
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=life)
    print(json.dumps({"version": 1, "value": f"ghp_canaryCANARYnumber{count:06d}value", "expires_at": end.isoformat().replace("+00:00", "Z")}))
    """
TRY = 'request("api.example.com", "/plain", headers={"Authorization": "Bearer " + token})'


class Stage(test_gateway_secrets.Stage):
    @contextlib.contextmanager
    def minting(self, caller, life):
        """A policy whose secret is made by a command, and the folder of that."""
        folder = caller.folder / f"mint{time.monotonic_ns()}"
        folder.mkdir()
        folder.chmod(0o777)
        program = folder / "mint"
        program.write_text(textwrap.dedent(MINT))
        program.chmod(0o755)
        yield POLICY.replace("{env: CANARY}", f"{{command: [{program}, {folder}, '{life}']}}"), folder
        self.assertTrue(harness.wait_until(lambda: not self.children(b"caisson-minter"), 10), "it outlived its sandbox")

    def runs(self, folder):
        return (folder / "runs").read_text().splitlines()

    def values(self, name="good"):
        return [int(number) for number in re.findall(rb"Bearer ghp_canaryCANARYnumber(\d+)value", self.received(name))]

    def test_it_runs_again_before_the_value_ends_and_no_request_fails(self):
        script = f"""
import time
end = time.monotonic() + 7
answers = set()
while time.monotonic() < end:
    answer = {TRY}
    answers.add((answer[0], answer[1] == token)); time.sleep(0.1)
print(answers)
"""
        for caller in self.each_caller():
            with self.minting(caller, 3) as (policy, folder):
                result = self.python(caller, script, policy=policy, env={"CANARY": "x" * 20, "MY_SECRET": "y"})
                self.assertEqual(result["stdout"], "{(200, True)}\n", result)
                values = self.values()
                self.assertEqual(values, sorted(values))
                self.assertEqual((values[0], values[-1] >= 3), (1, True), values)
                lines = self.runs(folder)
                # Once for each value, however many requests there were.
                self.assertLessEqual(len(lines), values[-1] + 1)
                for line in lines:
                    self.assertIn("PATH", line)
                    for name in ("CANARY", "MY_SECRET"):
                        self.assertNotIn(name, line)

    def test_while_it_fails_the_value_holds_to_its_end_and_then_there_is_none(self):
        script = f"""
import time
print({TRY}[0], flush=True)
open("/w/broken", "w").close()
seen = []
end = time.monotonic() + 40
while time.monotonic() < end:
    answer = {TRY}
    if not seen or seen[-1] != (answer[0], answer[2]): seen.append((answer[0], answer[2]))
    if answer[0] == 503 and os.path.exists("/w/broken"): os.remove("/w/broken")
    if answer[0] == 200 and len(seen) > 2: break
    time.sleep(0.1)
print(seen)
"""
        for caller in self.each_caller():
            with self.minting(caller, 4) as (policy, folder):
                result = self.python(caller, script, policy=policy, options=("--rw", f"{folder}:/w"))
                self.assertEqual(result["stdout"].splitlines(), ["200", "[(200, ''), (503, 'denied; reason=secret_no_value'), (200, '')]"], result)

    def test_the_same_of_a_detached_sandbox_and_its_next_gateway(self):
        for caller in self.each_caller():
            with self.minting(caller, 5) as (policy, folder):
                with self.detached(caller, policy, "--timeout", "5m") as sandbox:
                    self.assertEqual(self.inside(caller, sandbox, self.ASK), ["200 "])
                    (minter,) = self.children(b"caisson-minter")
                    self.assertTrue(harness.wait_until(lambda: len(self.runs(folder)) >= 3, 20))
                    self.forget()
                    self.assertEqual(self.inside(caller, sandbox, self.ASK), ["200 "])
                    self.assertGreaterEqual(self.values()[-1], 2)
                    os.kill(self.children(b"caisson-gateway")[0], signal.SIGKILL)
                    self.assertTrue(harness.wait_until(lambda: self.children(b"caisson-gateway") == [], 5))
                    self.forget()
                    said = []
                    self.assertTrue(harness.wait_until(lambda: said.append(self.inside(caller, sandbox, self.ASK)) or said[-1] == ["200 "], 20), said)
                    self.assertGreaterEqual(self.values()[-1], 2)
                    for pid in self.children(b"caisson-launche") + self.children(b"caisson-superv"):
                        self.assertNotIn(b"anaryCANARY", self.memory_of(pid))
                    # Without whoever makes them values end, and no gateway goes back to the first one.
                    os.kill(minter, signal.SIGKILL)
                    os.kill(self.children(b"caisson-gateway")[0], signal.SIGKILL)
                    self.assertTrue(harness.wait_until(lambda: said.append(self.inside(caller, sandbox, self.ASK)) or said[-1][0].startswith("503"), 20), said)

    def test_a_flag_and_a_plain_value_do_the_same(self):
        for caller in self.each_caller():
            program = caller.write("plain", "#!/bin/sh\necho ghp_canaryCANARYnumber000007value\n", 0o755)
            script = f"print({TRY}[1] == token)"
            result = self.python(caller, script, policy="rules: [{hosts: [api.example.com]}]", options=("--secret", f"GH_TOKEN=command:{program} a b@api.example.com"))
            self.assertEqual(result["stdout"], "True\n", result)
            self.assertEqual(self.values()[-1], 7)
            self.assertEqual(self.children(b"caisson-minter"), [])


# The cases of the file that this one stands on are its own.
for name in dir(test_gateway_secrets.Stage):
    if name.startswith("test_") and name not in vars(Stage):
        setattr(Stage, name, None)

if __name__ == "__main__":
    test_gateway_secrets.main(__file__, STAGE)
