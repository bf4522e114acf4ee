#!/usr/bin/env python3
"""What the server costs: a sandbox with its first command, bursts, many at once, and their memory.

    ./dev bench serve [--parts one,burst,live] [--pool N] [--rounds N] [--quick] [--no-write] [--serve-arg ARG]…

one: create, first command (`true`, by a login shell, as the SDKs start it) and kill, one after another, by
a raw client and by E2B's SDK; beside it the same shell in the image's tree by chroot alone, which no sandbox
can be faster than. burst: 100 creates at the same time, several times, alone and each with a first command.
Both without a pool and with one of N sandboxes that the server makes ahead, full when a measurement begins. The
run directory lies in memory, as it does on hosts. live: 500 sandboxes that
run, what a create costs then, and the memory of each: the proportional share of its processes, and what the
kernel has besides (the fall of MemAvailable, and slab). Figures go to docs/benchmarks.md, between the serve
markers, and to build/bench/serve.json.

What cannot be measured here is named with its reason.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import shutil
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import harness  # noqa: E402
import node  # noqa: E402
import process_tree  # noqa: E402
import run as frame  # noqa: E402
import serve_lab  # noqa: E402
from lib import host, stats  # noqa: E402
from lib.e2b_client import Client, WireError  # noqa: E402

BEGIN, END = "<!-- serve figures: begin -->", "<!-- serve figures: end -->"
PARTS = ("one", "burst", "live")
SDK_FOLDER, SDK = ROOT / "tests" / "sdk", "e2b-2.51"
TEMPLATE, LIFETIME = "base", 900
POOLED = ("one", "burst")  # parts that are measured with a pool too
FILL_SECONDS = 120
SETTLE_SECONDS = 2  # for what ends a moment after its answer


class Lab:
    """A server, and how to call it."""

    def __init__(self, server, options, pool=0):
        self.server, self.options, self.pool = server, options, pool
        address = urlsplit(server.address["url"])
        self.where = (address.hostname, address.port, server.key)

    def client(self):
        return Client(*self.where)

    def settle(self):
        """Waits until what was killed is gone, and the pool full."""
        time.sleep(SETTLE_SECONDS)
        if not harness.wait_until(lambda: len(self.server.sandboxes()) >= self.pool, FILL_SECONDS):
            raise frame.BenchError(f"the pool of {self.pool} was not full after {FILL_SECONDS} s")


async def create_and_run(client):
    """(microseconds to the answer of create, to the end of the first command, the sandbox)."""
    began = time.monotonic()
    sandbox = await client.create(TEMPLATE, LIFETIME)
    made = time.monotonic()
    await client.run(sandbox, "true")
    return round((made - began) * 1e6), round((time.monotonic() - began) * 1e6), sandbox


async def create(client):
    """As create_and_run, without the command."""
    began = time.monotonic()
    sandbox = await client.create(TEMPLATE, LIFETIME)
    made = round((time.monotonic() - began) * 1e6)
    return made, made, sandbox


async def many(lab, count, at_once, make=create_and_run):
    """`count` sandboxes of which `at_once` are made at a time: (figures of each, sandboxes)."""
    todo, done = iter(range(count)), []

    async def worker():
        client = lab.client()
        for _ in todo:
            done.append(await make(client))
            if len(done) % 50 == 0:
                frame.show(f"{len(done)} of {count} sandboxes")
        client.close()

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return [(made, first) for made, first, _ in done], [sandbox for _, _, sandbox in done]


async def kill_all(lab, sandboxes, at_once=20):
    todo = iter(sandboxes)

    async def worker():
        client = lab.client()
        for sandbox in todo:
            await client.kill(sandbox)
        client.close()

    await asyncio.gather(*(worker() for _ in range(at_once)))


# ---- memory ---------------------------------------------------------------------------------------


def proportional_kib(pids):
    total = 0
    for pid in pids:
        try:
            total += int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)[1])
        except (OSError, TypeError):
            continue  # it ended, or has no memory any more
    return total


def memory(lab):
    """KiB now: of the server's process, of all other processes that came of us, and of the kernel's books."""
    ours = [pid for pid, _, _ in process_tree.descendants(os.getpid())[1:]]
    server = lab.server.process.pid
    kernel = {name: int(host.first(rf"^{name}:\s+(\d+)", "/proc/meminfo")) for name in ("MemAvailable", "Slab", "KernelStack", "PageTables")}
    return {"server": proportional_kib([server]), "sandboxes": proportional_kib([pid for pid in ours if pid != server]),
            "processes": len(ours) - 1, **kernel}


# ---- the parts: each returns its figures, or raises with what is missing ---------------------------------


def floor(lab):
    """Microseconds of the first command in the image's tree, without a sandbox and without a server."""
    state = Path(lab.server.caller.env["CAISSON_STATE_DIR"])
    profiles = list(state.glob("images/rootfs/*/*/etc/profile"))
    if not profiles:
        raise frame.BenchError(f"{state} holds no tree of the image")
    timer = frame.compile_timer(ROOT / "build" / "bench")
    command = [timer, "in", profiles[0].parent.parent, "1000", "times", str(lab.options.rounds + 3), "/bin/bash", "-l", "-c", "true"]
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": "/home/user", "USER": "user"})
    lines = [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
    if done.returncode != 0 or not lines or any(status for _, status, _ in lines):
        raise frame.BenchError(f"the shell in the image's tree failed: {done.stdout[-200:]}{done.stderr[-500:]}")
    return [took for took, _, _ in lines[3:]]


def one(lab):
    rounds = lab.options.rounds

    async def raw():
        client, figures = lab.client(), []
        for number in range(-3, rounds):  # the first ones find nothing warm
            made, first, sandbox = await create_and_run(client)
            began = time.monotonic()
            await client.kill(sandbox)
            if number >= 0:
                figures.append((made, first, round((time.monotonic() - began) * 1e6)))
            frame.show(f"one at a time: {number + 1} of {rounds}")
        client.close()
        return figures

    found = {"no sandbox": {"the shell alone": floor(lab)}, "raw client": columns(asyncio.run(raw()))}
    try:
        found["E2B's SDK"] = with_sdk(lab, rounds)
    except (node.NodeError, frame.BenchError) as error:
        return {"times_us": found, "missing_sdk": str(error)}
    return {"times_us": found}


def columns(figures):
    made, first, killed = zip(*figures)
    return {"create": made, "create and first command": first, "kill": killed}


def with_sdk(lab, rounds):
    folder = node.packages(SDK_FOLDER)
    done = subprocess.run([node.node(), "timed.mjs", str(rounds)], cwd=folder, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "CAISSON_SDK": SDK, **lab.server.environment("plain")})
    if done.returncode != 0:
        raise frame.BenchError(f"the SDK failed: {done.stderr.strip()[-500:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return columns([[round(line[key] * 1000) for key in ("create", "first", "kill")] for line in lines])


def burst(lab):
    found = []
    for number in range(lab.options.bursts):
        frame.show(f"burst {number + 1} of {lab.options.bursts}")
        alone, sandboxes = asyncio.run(many(lab, lab.options.burst, lab.options.burst, create))
        asyncio.run(kill_all(lab, sandboxes))
        lab.settle()
        began = time.monotonic()
        figures, sandboxes = asyncio.run(many(lab, lab.options.burst, lab.options.burst))
        took = round((time.monotonic() - began) * 1e6)
        asyncio.run(kill_all(lab, sandboxes))
        lab.settle()
        found.append({"create alone": [made for made, _ in alone], "create": [made for made, _ in figures],
                      "create and first command": [first for _, first in figures], "all": took})
    return {"bursts": found, "size": lab.options.burst}


def live(lab):
    count = lab.options.live
    before = memory(lab)
    _, sandboxes = asyncio.run(many(lab, count, 10))
    time.sleep(SETTLE_SECONDS)
    after = memory(lab)

    async def then():
        client, figures = lab.client(), []
        for _ in range(lab.options.rounds):
            made, first, sandbox = await create_and_run(client)
            began = time.monotonic()
            await client.kill(sandbox)
            figures.append((made, first, round((time.monotonic() - began) * 1e6)))
        client.close()
        return figures

    figures = asyncio.run(then())
    asyncio.run(kill_all(lab, sandboxes))
    return {"count": count, "before": before, "after": after, "times_us": {f"with {count} live": columns(figures)}}


# ---- the tables -----------------------------------------------------------------------------------


def times_table(found):
    lines = frame.header("", "median", "p95", "p99", "highest")
    for name, kinds in found.items():
        for what, values in kinds.items():
            lines.append(frame.row(f"{what}, {name}", *(f"{value / 1000:.2f} ms" for value in
                         (stats.median([values]), stats.percentile(values, 0.95), stats.percentile(values, 0.99), max(values)))))
    return lines


def one_tables(figures):
    lines = ["", *times_table(figures["times_us"])]
    return lines + (["", f"E2B's SDK was not measured: {figures['missing_sdk']}"] if "missing_sdk" in figures else [])


def burst_tables(figures):
    bursts = figures["bursts"]
    merged = {what: [value for one_burst in bursts for value in one_burst[what]] for what in ("create alone", "create", "create and first command")}
    whole = sorted(one_burst["all"] / 1000 for one_burst in bursts)
    return ["", *times_table({f"{figures['size']} at the same time": merged}), "",
            f"{len(bursts)} bursts; from the first request to the end of the last command {whole[0]:.0f} to {whole[-1]:.0f} ms."]


def live_tables(figures):
    before, after, count = figures["before"], figures["after"], figures["count"]
    each = {key: (after[key] - before[key]) / count for key in after}
    lines = ["", *times_table(figures["times_us"]), "", *frame.header(f"memory of each of {count} idle sandboxes", "")]
    lines += [frame.row("its processes (PSS)", f"{each['sandboxes']:.0f} KiB in {each['processes']:.1f} processes"),
              frame.row("the server's share", f"{each['server']:.0f} KiB"),
              frame.row("all, by the fall of MemAvailable", f"{-each['MemAvailable']:.0f} KiB"),
              frame.row("of that slab, kernel stacks, page tables", ", ".join(f"{each[key]:.0f}" for key in ("Slab", "KernelStack", "PageTables")) + " KiB")]
    return [*lines, "", f"The server itself: {after['server'] / 1024:.1f} MiB."]


TABLES = {"one": ("One after another", one_tables), "burst": ("Many at the same time", burst_tables), "live": ("Many that live", live_tables)}


def report(result):
    lines = ["", f"Measured on {result['date']}. {result['remark']}".rstrip(), ""]
    lines += frame.header("host", "") + [frame.row(key, value) for key, value in result["host"].items()]
    if result["arguments"]:
        lines += ["", f"The server was started with `{' '.join(result['arguments'])}`."]
    for name, figures in result["parts"].items():
        part, _, pool = name.partition(" ")
        title, table = TABLES[part]
        lines += ["", f"### {title}{f', {pool} made ahead' if pool else ''}"]
        lines += table(figures) if "missing" not in figures else ["", f"Not measured: {figures['missing']}"]
    return "\n".join(lines).rstrip() + "\n\n"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--pool", type=int, default=100, help="sandboxes that the server makes ahead; 0: measure without alone")
    parser.add_argument("--burst", type=int, default=100, help="how many at the same time")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--live", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="few of each, for a look")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md as it is")
    parser.add_argument("--serve-arg", action="append", default=[], metavar="ARG", help="a further option of caisson-serve")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "serve.json")
    options = parser.parse_args(arguments)
    options.parts = options.parts.split(",")
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.bursts, options.burst, options.live, options.pool = 10, 1, 20, 20, min(options.pool, 20)
    if options.pool < 0 or min(options.rounds, options.burst, options.bursts, options.live) < 1:
        parser.error("counts must be positive")
    return options


def measure(options, start=serve_lab.fresh):
    """Each part has a server of its own, so that none finds what another left."""
    machine, remark = host.describe(), frame.busy()
    if remark:
        print(f"bench: {remark}", file=sys.stderr)
    parts = {}
    for part, pool in [(part, pool) for part in options.parts for pool in ((0, options.pool) if part in POOLED and options.pool else (0,))]:
        name = f"{part} {pool}" if pool else part
        run = harness.memory_folder()
        try:
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
                config.write(f"pool: {{{TEMPLATE}: {pool}}}\n")
                config.flush()
                os.chmod(config.name, 0o644)
                with start(arguments=[*(["--config", config.name] if pool else []), *options.serve_arg], run=run) as server:
                    lab = Lab(server, options, pool)
                    lab.settle()
                    parts[name] = globals()[part](lab)
        except (frame.BenchError, WireError, serve_lab.ServerError, OSError, asyncio.IncompleteReadError) as error:
            print(f"bench: {name}: {error}", file=sys.stderr)
            parts[name] = {"missing": str(error)}
        finally:
            # Also where the server, whose it is, never was.
            if run:
                shutil.rmtree(run, ignore_errors=True)
    frame.show("")
    machine["load after"] = f"{os.getloadavg()[0]:.2f}"
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "remark": remark, "host": machine, "arguments": options.serve_arg, "parts": parts}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    return result


def main(arguments=None):
    options = parse(arguments)
    try:
        text = report(measure(options))
        if not options.no_write:
            frame.write_document(options.document, text, BEGIN, END)
    except frame.BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
