"""The facts that probe.py finds inside a test machine, and their table."""

import json
from pathlib import Path

PROBE = Path(__file__).with_name("probe.py")


def collect(vm, user="root"):
    result = vm.run(f"python3 -S - <<'PROBE'\n{PROBE.read_text()}\nPROBE\n", user=user, timeout=90).check()
    facts = json.loads(result.stdout)
    facts["seconds from start to ready"] = round(vm.seconds_to_ready, 2)
    return facts


def table(facts):
    width = max(map(len, facts))
    return "\n".join(f"{name:{width}}  {value}" for name, value in facts.items())
