#!/usr/bin/env python3
"""What the gateway costs: connections, requests, downloads and many connections at once, beside two proxies.

    ./dev bench egress [--parts requests,http,download,open,create] [--rounds N] [--quick] [--no-write]

All of it in namespaces of its own, with an Internet of one host (root alone). The same program (bench/egress_load.cpp)
asks the same server in turn by every way that there is (bench/lib/egress_lab.py): by itself beside the server's wire
(direct), in a sandbox through its gateway, which passes TLS unopened (splice) or opens it (inspect), and, where they are
installed (packages squid-openssl and mitmproxy), through squid and mitmproxy as forward proxies that do the same. The
gateway inspects with a connection to the server for each one of the sandbox. requests: TLS, a connection for each request, and requests on connections
that are open. http: the same without TLS. download: a body of many MiB. open: thousands of connections at once, which
ask, stand, and ask again; memory of the process that has them. create: `caisson run -- true` without a network, with one,
and with one that opens TLS. Figures go to docs/benchmarks.md, between the egress markers, and to build/bench/egress.json.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
import run as frame  # noqa: E402
from lib import host, stats  # noqa: E402
from lib import egress_lab  # noqa: E402
from lib.egress_lab import harness, internet_lab  # noqa: E402

BEGIN, END = "<!-- egress figures: begin -->", "<!-- egress figures: end -->"
STAGE = "CAISSON_EGRESS_BENCH_STAGE"
PARTS = ("requests", "http", "download", "open", "create")
SECURE = ("direct", "splice", "squid, splice", "mitmproxy, passing", "inspect", "squid, bump", "mitmproxy")
OPENED = ("splice", "inspect", "squid, splice")
# What is asked for: milliseconds added at the median, of either way of asking.
TARGETS = {"splice": 1.0, "inspect": 3.0}
LEAST_RATE = 125e6  # bytes a second: 1 Gbit/s

# (what, at once, microseconds of pause, whether the connection stands)
SITUATIONS = (("a connection with one request, one after another", 1, 0, False),
              ("a connection with one request, 16 at a time, each every 50 ms", 16, 50_000, False),
              ("a connection with one request, 16 at a time without a pause", 16, 0, False),
              ("a request on a connection that stands, one after another", 1, 0, True),
              ("a request on one of 16 connections that stand, each every 50 ms", 16, 50_000, True))


# ---- the parts: each returns what its table needs ----------------------------------------------------------------


def alternate(rounds, ways):
    """{way: rounds}, each round with every way, in turn first."""
    found = {way: [] for way in ways}
    for index in range(rounds):
        order = list(ways)
        for way in order if index % 2 == 0 else reversed(order):
            found[way].append(ways[way]())
    return found


def here(lab, names):
    return [name for name in names if not lab.ways[name].missing]


def asked(lab, options, names):
    """{situation: {way: rounds of microseconds}}"""
    found = {}
    for what, at_once, pause, kept in SITUATIONS:
        frame.show(what)
        count = max(options.requests // at_once, 2)
        ways = {name: lambda name=name: lab.times(name, count, at_once, pause_us=pause, kept=kept) for name in here(lab, names)}
        found[what] = alternate(options.rounds, ways)
    return found


def requests(lab, options):
    return asked(lab, options, SECURE)


def http(lab, options):
    return asked(lab, options, ("direct, HTTP", "HTTP"))


def download(lab, options):
    size, found = options.mib << 20, {}
    for kind, names in (("TLS", SECURE), ("HTTP", ("direct, HTTP", "HTTP")), ("TCP", ("direct, TCP", "TCP"))):
        frame.show(f"download: {kind}")
        ways = {name: lambda name=name: [size / (us / 1e6) for us in lab.times(name, 1, 1, size=size)] for name in here(lab, names)}
        found[kind] = alternate(max(options.rounds // 2, 2), ways)
    return found


def opened(lab, options):
    """{way: what became of the connections, and the memory of each}"""
    found = {}
    raise_limit(options.open)
    for name in ("direct", *here(lab, OPENED)):
        frame.show(f"open: {name}")
        memory = {}
        with lab.held(name, 1) as (_, again, pid):
            first = egress_lab.memory_of(lab.keeper(name, pid)) if name != "direct" else (0, 0)
            again()
        kernel = egress_lab.kernel_memory()
        with lab.held(name, options.open) as (said, again, pid):
            last = egress_lab.memory_of(lab.keeper(name, pid)) if name != "direct" else (0, 0)
            memory["kernel"] = (egress_lab.kernel_memory() - kernel) / options.open
            answered = again()
        memory["pss"], memory["rss"] = ((after - before) / options.open for before, after in zip(first, last))
        found[name] = {"opened": counts(said), "answered": counts(answered), "kib": memory}
    return found


def raise_limit(connections):
    """Two descriptors for each are needed by what stands between, and some."""
    wanted, hard = 2 * connections + 1000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, wanted), max(hard, wanted)))
    except (ValueError, OSError) as error:
        raise frame.BenchError(f"{connections} connections need {wanted} open files, and this host allows {hard}: {error}") from error


def counts(said):
    """(done, failed) of "open 5 failed 0 WHY"."""
    words = said.split()
    if len(words) < 4 or words[2] != "failed":
        raise frame.BenchError(f"the client ended with {said!r}")
    return int(words[1]), int(words[3])


def create(lab, options):
    frame.show("create")
    ways = {"without a network": lambda: [lab.create() for _ in range(5)],
            "with one": lambda: [lab.create("--net", "allow:" + egress_lab.NAME) for _ in range(5)],
            "with one that opens TLS": lambda: [lab.create("--net", lab.policy) for _ in range(5)]}
    return {"`caisson run -- /bin/true`": alternate(options.rounds, ways)}


MEASURED = {"requests": requests, "http": http, "download": download, "open": opened, "create": create}


# ---- the tables --------------------------------------------------------------------------------------------------


def milliseconds(us):
    return f"{us / 1000:.2f}"


def time_tables(found):
    lines = []
    for what, ways in found.items():
        direct = next(iter(ways.values()))
        lines += [f"**{what}**", "", *frame.header("ms", "median", "added at the median", "p99", "p99 of the first's")]
        for way, rounds in ways.items():
            low, high = stats.difference_interval(rounds, direct)
            tail, usual = (stats.percentile(stats.flat(r), 0.99) for r in (rounds, direct))
            added = f"{milliseconds(stats.median(rounds) - stats.median(direct))} ({milliseconds(low)} to {milliseconds(high)})" if rounds is not direct else "-"
            lines.append(frame.row(way, milliseconds(stats.median(rounds)), added, milliseconds(tail), f"{tail / usual:.1f}"))
        lines.append("")
    return lines[:-1]


def request_tables(found):
    return [*time_tables(found), "", *(f"- {verdict}" for verdict in verdicts(found))]


def verdicts(found):
    """What was asked for, and what it is: of every situation but the one in which all wait for the processors."""
    for way, most in TARGETS.items():
        added = {what: (stats.median(ways[way]) - stats.median(ways["direct"])) / 1000 for what, ways in found.items() if way in ways and
                 "without a pause" not in what}
        missed = {what: value for what, value in added.items() if value >= most}
        yield (f"asked for: `{way}` adds less than {most:.0f} ms at the median, at 1 and at 16 connections: " +
               ("so it is" if not missed else "missed: " + "; ".join(f"{value:.2f} ms for {what}" for what, value in missed.items())))


def rate_tables(found):
    lines = []
    for kind, ways in found.items():
        direct = next(iter(ways.values()))
        lines += [f"**{kind}**", "", *frame.header("", "MB/s", "of direct")]
        lines += [frame.row(way, f"{stats.median(rounds) / 1e6:.0f}", frame.ratio(rounds, direct) if rounds is not direct else "-")
                  for way, rounds in ways.items()]
        lines.append("")
    slow = [way for way in ("splice", "inspect") if stats.median(found["TLS"][way]) < LEAST_RATE]
    return [*lines, f"- asked for: 1 Gbit/s (125 MB/s): {'so it is' if not slow else 'missed by ' + ', '.join(slow)}"]


def open_table(found):
    lines = frame.header("", "connections", "failed to open", "failed to ask again", "PSS of each, KiB", "RSS of each, KiB", "kernel, KiB")
    for way, figures in found.items():
        (opened, failed), (_, silent), memory = figures["opened"], figures["answered"], figures["kib"]
        own = [f"{memory[kind]:.1f}" if way != "direct" else "-" for kind in ("pss", "rss")]
        lines.append(frame.row(way, opened, failed, silent, *own, f"{memory['kernel']:.0f}"))
    return [*lines, "", "The kernel's part is how much its objects and what sockets hold grew by meanwhile, of the whole machine; direct's is the "
            "client's and the server's sockets, the others' has the gateway's or the proxy's two as well."]


TABLES = {"requests": ("TLS", request_tables), "http": ("HTTP without TLS", time_tables), "download": ("A big download", rate_tables),
          "open": ("Many connections at once", open_table), "create": ("A sandbox", time_tables)}


def report(result):
    lines = ["", f"Measured on {result['date']}, {result['rounds']} rounds. {result['remark']}".rstrip(), ""]
    lines += frame.header("host", "") + [frame.row(key, value) for key, value in result["host"].items()]
    lines += ["", *frame.header("way", "is"), *(frame.row(name, what) for name, (what, missing) in result["ways"].items() if not missing)]
    missing = [(name, why) for name, (_, why) in result["ways"].items() if why]
    if missing:
        lines += ["", "Not measured here:", "", *(f"- {name}: {why}" for name, why in missing)]
    for part, figures in result["parts"].items():
        title, table = TABLES[part]
        lines += ["", f"### {title}", ""]
        lines += table(figures) if "missing" not in figures else [f"Not measured: {figures['missing']}"]
    return "\n".join(lines) + "\n\n"


# ---- the command -------------------------------------------------------------------------------------------------


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=200, help="of each process")
    parser.add_argument("--mib", type=int, default=256, help="of a download")
    parser.add_argument("--open", type=int, default=5000, help="connections at once")
    parser.add_argument("--quick", action="store_true", help="few of each, for a look")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md as it is")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "egress.json")
    options = parser.parse_args(arguments)
    options.parts = options.parts.split(",")
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.requests, options.mib, options.open = 3, 50, 32, 500
    if min(options.rounds, options.requests, options.mib, options.open) < 1:
        parser.error("counts must be positive")
    return options


def measure(options, make=egress_lab.Lab):
    machine, remark = host.describe(), frame.busy()
    parts = {}
    with harness.Caller("root") as caller:
        lab = make(caller)
        try:
            for part in options.parts:
                try:
                    parts[part] = MEASURED[part](lab, options)
                except (frame.BenchError, OSError, subprocess.SubprocessError) as error:
                    print(f"bench: {part}: {error}", file=sys.stderr)
                    parts[part] = {"missing": str(error)}
        finally:
            lab.close()
    frame.show("")
    machine["load after"] = f"{os.getloadavg()[0]:.2f}"
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "remark": remark, "rounds": options.rounds, "host": machine,
              "ways": {way.name: (way.what, way.missing) for way in lab.ways.values()}, "parts": parts}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1))
    return result


def main(arguments=None):
    options = parse(arguments)
    if not os.environ.get(STAGE):
        if os.geteuid() != 0:
            print("bench: the Internet of this benchmark is root's to make", file=sys.stderr)
            return 1
        return internet_lab.enter(__file__, arguments if arguments is not None else sys.argv[1:], STAGE)
    try:
        harness.subreaper()
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
