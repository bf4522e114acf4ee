#!/usr/bin/env python3
"""What a sandbox costs, beside plain fork and exec, bwrap, runc and crun, in one run of alternating order.

    ./dev bench run [--rounds N] [--quick] [--hyperfine] [--require] [--no-write]

Measured: /bin/true and `python3 -c pass` from exec of the command to its end; how many /bin/true a
second two workers at a time get through; the memory of what a sandbox keeps running; and, where
the test build is there (CAISSON_TIMINGS=1: lines "timing STEP MICROSECONDS" on stderr), the cost of
each step. Figures go to docs/benchmarks.md, between its markers, and to build/bench/run.json.

A command that cannot run here is named with its reason. With --require it is an error that caisson
cannot be measured.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib import host, memory, stats
from lib.peers import OURS, PLAIN, YARDSTICK, environment, find, peers

PROGRAMS = {"/bin/true": ["/bin/true"], "python3 -c pass": ["/usr/bin/python3", "-c", "pass"]}
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
RUNS_PER_ROUND = 4


class BenchError(Exception):
    """The measurement cannot be made; the text says why."""


def compile_program(folder, name, compilers, *flags):
    """The program that bench/NAME makes, in a folder that keeps it; with the first compiler that is here."""
    folder.mkdir(parents=True, exist_ok=True)
    source, program = ROOT / "bench" / name, folder / Path(name).stem
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    compiler = next(filter(None, map(find, compilers)), None)
    if compiler is None:
        raise BenchError(f"no compiler for {name}: install clang-19")
    done = subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", program, source, *flags], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{name} does not compile:\n{done.stderr}")
    return program


def compile_timer(folder):
    return compile_program(folder, "spawn_timer.c", ("clang-19", "cc"))


class Bench:
    def __init__(self, build, folder, options):
        self.timer = compile_timer(ROOT / "build" / "bench")
        self.folder, self.options, self.build = folder, options, build
        self.peers = peers(build, folder)
        self.here = [peer for peer in self.peers if not peer.missing]
        self.environment = environment()

    def timer_lines(self, *arguments):
        done = subprocess.run([self.timer, *map(str, arguments)], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"spawn_timer failed: {done.stderr.strip()}")
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]

    def times(self, peer, program, count):
        """Microseconds of each of these runs."""
        lines = self.timer_lines("times", count, *peer.command(program))
        failed = [status for _, status, _ in lines if status != 0]
        if failed:
            raise BenchError(f"{peer.name} ended {len(failed)} of {count} runs of {program[0]} with status {failed[0]}")
        return [took for took, _, _ in lines]

    def latency(self):
        """{program: {peer: rounds of microseconds}}; every round runs every peer, in an order of its own."""
        chance = random.Random(self.options.seed)
        found = {name: {peer.name: [] for peer in self.here} for name in PROGRAMS}
        for name, program in PROGRAMS.items():
            for peer in self.here:
                self.times(peer, program, 3)  # What the first runs read is in memory for all.
            for number in range(self.options.rounds):
                for peer in chance.sample(self.here, len(self.here)):
                    found[name][peer.name].append(self.times(peer, program, RUNS_PER_ROUND))
                show(f"{name}: round {number + 1} of {self.options.rounds}")
        return found

    def throughput(self):
        """{peer: runs a second of two workers, one figure a round}."""
        found = {peer.name: [] for peer in self.here}
        for number in range(self.options.throughput_rounds):
            for peer in self.here:
                ((runs, failed, took),) = self.timer_lines("rate", 2, self.options.seconds, *peer.command(["/bin/true"]))
                if failed:
                    raise BenchError(f"{peer.name} failed in {failed} of {runs} runs with two workers")
                found[peer.name].append([runs * 1e6 / took])
            show(f"two workers: round {number + 1} of {self.options.throughput_rounds}")
        return found

    def memory(self):
        program = [find("sleep"), memory.SECONDS]
        return {peer.name: memory.measure(peer.command(program), self.environment, self.folder)
                for peer in self.here if peer.name != PLAIN}

    def steps(self):
        """{step: microseconds of each run}, from what the test build prints; empty where there is none."""
        found = {}
        with_times = self.build.parent / "switches" / "caisson"
        ours = next((peer for peer in self.here if peer.name == OURS), None) if with_times.exists() else None
        for _ in range(self.options.rounds if ours else 0):
            done = subprocess.run([with_times, *ours.command(["/bin/true"])[1:]], cwd=self.folder, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, env={**self.environment, "CAISSON_TIMINGS": "1"})
            for step, took in re.findall(r"^timing (\S+) (\d+)$", done.stderr, re.M):
                found.setdefault(step, []).append(int(took))
        return found

    def hyperfine(self):
        """The same by another tool: medians in microseconds of /bin/true."""
        program = find("hyperfine")
        if program is None:
            raise BenchError("hyperfine is not installed: package hyperfine")
        found = {}
        for peer in self.here:
            words = peer.command(["/bin/true"])
            if any("%n" in word for word in words):
                continue  # It runs one command again and again and cannot give each run a name.
            result = self.folder / "hyperfine.json"
            done = subprocess.run([program, "-N", "--warmup", "5", "--runs", "100", "--export-json", result,
                                   " ".join(words)], cwd=self.folder, env=self.environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise BenchError(f"hyperfine failed with {peer.name}: {done.stderr.strip()[-300:]}")
            found[peer.name] = json.loads(result.read_text())["results"][0]["median"] * 1e6
        return found


def busy():
    """A sentence where so much else runs that the figures say little; empty on a quiet machine."""
    load = os.getloadavg()[0]
    if load < 0.5 * os.cpu_count():
        return ""
    return f"The machine was busy with other work (load {load:.1f} on {os.cpu_count()} processors)."


def show(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# ---- the tables -----------------------------------------------------------------------------------


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*cells):
    return [row(*cells), "|" + "---|" * len(cells)]


def ratio(rounds, others):
    if others is None:
        return "-"
    low, high = stats.interval(rounds, others)
    return f"{stats.median(rounds) / stats.median(others):.2f} ({low:.2f} to {high:.2f})"


def latency_table(found, what):
    lines = header("", "median", "95 % of it", "p95", f"of {YARDSTICK}", f"of {PLAIN}")
    for name, rounds in found.items():
        low, high = stats.interval(rounds)
        lines.append(row(what[name], f"{stats.median(rounds) / 1000:.2f} ms", f"{low / 1000:.2f} to {high / 1000:.2f}",
                         f"{stats.percentile(stats.flat(rounds), 0.95) / 1000:.2f} ms",
                         ratio(rounds, found.get(YARDSTICK)), ratio(rounds, found[PLAIN])))
    return lines


def throughput_table(found, what):
    lines = header("", "runs a second", "lowest and highest round", f"of {YARDSTICK}")
    for name, rounds in found.items():
        values = stats.flat(rounds)
        lines.append(row(what[name], f"{statistics.median(values):.0f}", f"{min(values):.0f} to {max(values):.0f}",
                         ratio(rounds, found.get(YARDSTICK))))
    return lines


def memory_table(found, what):
    lines = header("", "PSS while it waits", "RSS while it waits", "processes", "highest PSS", "highest RSS")
    for name, values in found.items():
        if values is None:
            lines.append(row(what[name], "keeps no process", "-", 0, "-", "-"))
        else:
            lines.append(row(what[name], *(f"{values[key] / 1024:.2f} MiB" for key in ("idle_pss_kib", "idle_rss_kib")),
                             values["processes"], *(f"{values[key] / 1024:.2f} MiB" for key in ("peak_pss_kib", "peak_rss_kib"))))
    return lines


def report(result):
    what = {peer["name"]: f"`{peer['name']}`" for peer in result["commands"]}
    lines = ["", f"Measured on {result['date']}, {result['rounds']} rounds of {RUNS_PER_ROUND} runs. {result['remark']}".rstrip(), ""]
    lines += header("host", "") + [row(key, value) for key, value in result["host"].items()]
    lines += ["", *header("command", "called as", "version")]
    for peer in result["commands"]:
        lines.append(row(f"`{peer['name']}`", f"`{peer['what']}`" if peer["name"] != PLAIN else peer["what"], peer["version"]))
    missing = [peer for peer in result["commands"] if peer["missing"]]
    if missing:
        lines += ["", "Not measured here:", ""] + [f"- `{peer['name']}`: {peer['missing']}" for peer in missing]
    for name in PROGRAMS:
        lines += ["", f"## `{name}`, from exec of the command to its end", "", *latency_table(result["latency_us"][name], what)]
    lines += ["", "## `/bin/true`, two workers at a time", "", *throughput_table(result["runs_per_second"], what)]
    lines += ["", "## Memory of what a sandbox keeps running, without the program in it", "", *memory_table(result["memory"], what)]
    lines += ["", "## Where the time goes", ""]
    if result["steps_us"]:
        lines += ["Steps of different processes overlap: launcher, supervisor, the child that becomes the guest, and "
                  "its helper. `ready` is the supervisor's wait for the guest, `spaces` the child's for the helper.", ""]
        lines += header("step", "median", "p95")
        lines += [row(step, f"{statistics.median(values):.0f} µs", f"{stats.percentile(values, 0.95)} µs")
                  for step, values in result["steps_us"].items()]
    else:
        lines.append("No figures: there is no test build (`./dev build switches`), which alone tells its steps.")
    if result["hyperfine_us"]:
        lines += ["", "## The same by hyperfine, `/bin/true`", "", *header("", "median")]
        lines += [row(what[name], f"{value / 1000:.2f} ms") for name, value in result["hyperfine_us"].items()]
    return "\n".join(lines + [""])


def write_document(path, text, begin=BEGIN, end=END):
    """Replaces what stands between the markers."""
    document = path.read_text()
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        raise BenchError(f"{path} must hold {begin!r} and, after it, {end!r}, each once")
    before, rest = document.split(begin)
    path.write_text(before + begin + "\n" + text + end + rest.split(end)[1])


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=3, help="of each round of two workers")
    parser.add_argument("--throughput-rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few rounds, for a look")
    parser.add_argument("--hyperfine", action="store_true", help="measure again with hyperfine")
    parser.add_argument("--require", action="store_true", help="fail where caisson cannot be measured")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md as it is")
    parser.add_argument("--build", default=os.environ.get("CAISSON_BUILD", ROOT / "build" / "release"))
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "run.json")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.throughput_rounds = 10, 1, 3
    if options.rounds < 1 or options.throughput_rounds < 1 or options.seconds <= 0:
        parser.error("rounds and seconds must be positive")
    return options


def measure(options):
    (ROOT / "build" / "bench").mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    folder.chmod(0o755)
    try:
        machine, remark = host.describe(), busy()
        if remark:
            print(f"bench: {remark}", file=sys.stderr)
        bench = Bench(Path(options.build).resolve(), folder, options)
        ours = next(peer for peer in bench.peers if peer.name == OURS)
        for peer in bench.peers:
            if peer.missing:
                print(f"bench: {peer.name}: {peer.missing}", file=sys.stderr)
        if ours.missing and options.require:
            raise BenchError(f"caisson cannot be measured: {ours.missing}")
        versions = {PLAIN: "-", OURS: host.version(str(Path(options.build) / "caisson"), "--version")}
        result = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "rounds": options.rounds, "remark": remark, "seed": options.seed,
            "host": machine,
            "commands": [{"name": peer.name, "what": peer.what, "missing": peer.missing,
                          "version": versions.get(peer.name) or host.version(find(peer.name) or peer.name, "--version")}
                         for peer in bench.peers],
            "latency_us": bench.latency(), "runs_per_second": bench.throughput(), "memory": bench.memory(),
            "steps_us": bench.steps(), "hyperfine_us": bench.hyperfine() if options.hyperfine else {},
        }
        machine["load after"] = f"{os.getloadavg()[0]:.2f}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show("")
    options.json.write_text(json.dumps(result, indent=1))
    return result


def main(arguments=None):
    options = parse(arguments)
    try:
        result = measure(options)
        text = report(result)
        if not options.no_write:
            write_document(options.document, text)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
