#!/usr/bin/env python3
"""What images cost: starting from one, unpacking, pulling and building one.

    ./dev bench image [--parts start,unpack,pull,build] [--rounds N] [--quick] [--archive FILE] [--no-write]

start: /bin/true and `python3 -c pass` on the host image, on a small image and on the base image,
alternating, with the difference to host. unpack: `caisson image import` of the base image's archive
against `zstd -d | tar x; sync`. pull: from a registry on loopback, against `skopeo copy` into a folder
and against unpacking the same layer by tar. build: a small Dockerfile, with an empty cache and with a
full one. Figures go to docs/benchmarks.md, between the image markers, and to build/bench/image.json.

What cannot be measured here is named with its reason.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "tests" / "lib"))
import run as frame  # noqa: E402
from lib import host, stats  # noqa: E402
from lib.peers import environment, find  # noqa: E402

BEGIN, END = "<!-- image figures: begin -->", "<!-- image figures: end -->"
PARTS = ("start", "unpack", "pull", "build")
PYTHON = ["python3", "-c", "pass"]
DOCKERFILE = """FROM base
ENV GREETING=hello
WORKDIR /app
COPY hello.py .
RUN python3 hello.py > said && test -s said
USER user
CMD ["python3", "hello.py"]
"""


class Lab:
    """A store of its own on the disk of the builds, with the images that are measured."""

    def __init__(self, options):
        self.options = options
        self.caisson = Path(options.build).resolve() / "caisson"
        place = ROOT / "build" / "bench"
        place.mkdir(parents=True, exist_ok=True)
        self.timer = frame.compile_timer(place)
        self.folder = Path(tempfile.mkdtemp(prefix="image-", dir=place))
        self.environment = {**environment(), **self.store("state")}

    def store(self, name):
        return {"CAISSON_STATE_DIR": str(self.folder / name), "CAISSON_RUN_DIR": str(self.folder / "run")}

    def call(self, *words, **options):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd="/",
                              env={**self.environment, **options.pop("env", {})}, **options)
        if done.returncode != 0:
            raise frame.BenchError(f"{' '.join(map(str, words[:3]))} ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def timed(self, action):
        """Microseconds that action() takes, what it wrote synced."""
        os.sync()
        start = time.monotonic()
        action()
        os.sync()
        return round((time.monotonic() - start) * 1e6)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def alternate(lab, rounds, actions):
    """{name: rounds of one figure}; every round runs every action, in an order of its own."""
    chance = random.Random(lab.options.seed)
    found = {name: [] for name in actions}
    for number in range(rounds):
        for name in chance.sample(list(actions), len(actions)):
            found[name].append([lab.timed(actions[name])])
        frame.show(f"round {number + 1} of {rounds}")
    return found


def small_image(lab):
    """A few files: busybox and its name `true`."""
    path = lab.folder / "small.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(find("busybox"), "bin/busybox")
        link = tarfile.TarInfo("bin/true")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
    return path


# ---- the parts: each returns its figures, or raises BenchError with what is missing ------------------


def start(lab):
    lab.call(lab.caisson, "image", "import", "small", small_image(lab))
    lab.call(lab.caisson, "image", "import", "base", lab.options.archive)
    found = {}
    for program, images in ((["/bin/true"], ("host", "small", "base")), (PYTHON, ("host", "base"))):
        rounds = found[" ".join(program)] = {name: [] for name in images}
        chance = random.Random(lab.options.seed)

        def times(image, count):
            done = lab.call(lab.timer, "times", count, lab.caisson, "run", "--image", image, "--", *program)
            lines = [[int(word) for word in line.split()] for line in done.splitlines()]
            if any(status != 0 for _, status, _ in lines):
                raise frame.BenchError(f"{program[0]} failed on the image {image}")
            return [took for took, _, _ in lines]

        for image in images:
            times(image, 3)  # what the first runs read is in memory for all
        for number in range(lab.options.rounds):
            for image in chance.sample(images, len(images)):
                rounds[image].append(times(image, frame.RUNS_PER_ROUND))
            frame.show(f"start, {program[0]}: round {number + 1} of {lab.options.rounds}")
    kept = json.loads(lab.call(lab.caisson, "image", "inspect", "base"))[0]
    return {"times_us": found, "base": kept.get("rootfs", {})}


def unpack(lab):
    archive, number = lab.options.archive, iter(range(1 << 30))
    if find("zstd") is None:
        raise frame.BenchError("zstd is not installed: package zstd")

    def ours():
        lab.call(lab.caisson, "image", "import", "base", archive, env=lab.store(f"unpack{next(number)}"))

    def tar():
        target = lab.folder / f"tar{next(number)}"
        target.mkdir()
        lab.call("/bin/sh", "-c", 'zstd -dc "$1" | tar -x --numeric-owner -p -C "$2"', "sh", archive, target)

    return {"times_us": alternate(lab, lab.options.unpack_rounds, {"caisson image import": ours, "zstd -d to tar x, sync": tar})}


def pull(lab):
    import registry_lab

    for program in ("docker-registry", "skopeo", "umoci", "zstd"):
        if find(program) is None:
            raise frame.BenchError(f"{program} is not installed")
    folder, number = lab.folder / "pull", iter(range(1 << 30))
    folder.mkdir()
    layer = folder / "base.tar"
    lab.call("/bin/sh", "-c", 'zstd -dc "$1" > "$2"', "sh", lab.options.archive, layer)
    layout = folder / "layout"
    for words in (("init", "--layout", layout), ("new", "--image", f"{layout}:t"), ("raw", "add-layer", "--image", f"{layout}:t", layer)):
        lab.call(find("umoci"), *words)
    registry = registry_lab.Registry(folder / "registry")
    try:
        registry.push(layout, "t", "base:1")
        source = f"{registry.name}/base:1"

        def ours():
            lab.call(lab.caisson, "image", "pull", source, env=lab.store(f"pulled{next(number)}"))

        def skopeo():
            lab.call(find("skopeo"), "copy", "--src-tls-verify=false", f"docker://{source}", f"dir:{folder}/copied{next(number)}")

        blob = max((path for path in (layout / "blobs" / "sha256").iterdir()), key=lambda path: path.stat().st_size)

        def tar():
            target = folder / f"tar{next(number)}"
            target.mkdir()
            lab.call("/bin/sh", "-c", 'gzip -dc "$1" | tar -x --numeric-owner -p -C "$2"', "sh", blob, target)

        return {"times_us": alternate(lab, lab.options.unpack_rounds, {
            "caisson image pull": ours, "skopeo copy to a folder (nothing unpacked)": skopeo, "gzip -d to tar x, sync (nothing fetched)": tar})}
    finally:
        registry.server.stop()


def build(lab):
    folder = lab.folder / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "hello.py").write_text("print('hello')\n")
    lab.call(lab.caisson, "image", "import", "base", lab.options.archive)
    number = iter(range(1 << 30))

    def fresh():
        # Another text for COPY: every step from there on is made anew.
        (folder / "hello.py").write_text(f"print('hello {next(number)}')\n")
        lab.call(lab.caisson, "image", "build", "-t", "made", folder)

    def again():
        lab.call(lab.caisson, "image", "build", "-t", "made", folder)

    found = {"all steps from COPY on": [], "nothing changed": []}
    for _ in range(lab.options.unpack_rounds):
        found["all steps from COPY on"].append([lab.timed(fresh)])
        found["nothing changed"].append([lab.timed(again)])
    return {"times_us": found}


# ---- the tables -----------------------------------------------------------------------------------


def difference(rounds, others):
    low, high = stats.difference_interval(rounds, others)
    return f"{(stats.median(rounds) - stats.median(others)) / 1000:+.2f} ms ({low / 1000:+.2f} to {high / 1000:+.2f})"


def start_tables(figures):
    rootfs = figures["base"]
    lines = ["", f"The base image has {rootfs.get('entries', '?')} files and {rootfs.get('bytes', 0) / (1 << 20):.0f} MiB, kept as "
             f"{rootfs.get('form', '?')}; the small one is busybox alone.", ""]
    for program, found in figures["times_us"].items():
        lines += frame.header(f"`{program}`", "median", "p95", "more than on host")
        for image, rounds in found.items():
            lines.append(frame.row(f"`--image {image}`", f"{stats.median(rounds) / 1000:.2f} ms",
                                   f"{stats.percentile(stats.flat(rounds), 0.95) / 1000:.2f} ms",
                                   "-" if image == "host" else difference(rounds, found["host"])))
        lines.append("")
    return lines


def ratio_table(figures):
    found = figures["times_us"]
    first = next(iter(found.values()))
    lines = ["", *frame.header("", "median", "lowest to highest", "caisson's of it")]
    for name, rounds in found.items():
        values = stats.flat(rounds)
        lines.append(frame.row(f"`{name}`", f"{stats.median(rounds) / 1e6:.2f} s", f"{min(values) / 1e6:.2f} to {max(values) / 1e6:.2f} s",
                               "-" if rounds is first else f"{stats.median(first) / stats.median(rounds):.2f}"))
    return [*lines, ""]


def build_table(figures):
    lines = ["", *frame.header("a Dockerfile of FROM, ENV, WORKDIR, COPY, RUN, USER, CMD", "median", "lowest to highest")]
    for name, rounds in figures["times_us"].items():
        values = stats.flat(rounds)
        lines.append(frame.row(name, f"{stats.median(rounds) / 1e6:.2f} s", f"{min(values) / 1e6:.2f} to {max(values) / 1e6:.2f} s"))
    return [*lines, ""]


TABLES = {"start": ("Starting from an image", start_tables), "unpack": ("Unpacking the base image", ratio_table),
          "pull": ("Pulling it from a registry on loopback", ratio_table), "build": ("Building on it", build_table)}


def report(result):
    lines = ["", f"Measured on {result['date']}, {result['rounds']} rounds of {frame.RUNS_PER_ROUND} runs for starts, "
             f"{result['unpack_rounds']} for the rest. {result['remark']}".rstrip(), ""]
    lines += frame.header("host", "") + [frame.row(key, value) for key, value in result["host"].items()]
    for part, figures in result["parts"].items():
        title, table = TABLES[part]
        lines += ["", f"### {title}"]
        lines += table(figures) if "missing" not in figures else ["", f"Not measured: {figures['missing']}", ""]
    return "\n".join(lines).rstrip() + "\n\n"


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--unpack-rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="few rounds, for a look")
    parser.add_argument("--archive", type=Path, default=ROOT / "build" / "images" / "base.tar.zst")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md as it is")
    parser.add_argument("--build", default=os.environ.get("CAISSON_BUILD", ROOT / "build" / "release"))
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "image.json")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args(arguments)
    options.parts = options.parts.split(",")
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.unpack_rounds = 10, 2
    if options.rounds < 1 or options.unpack_rounds < 1:
        parser.error("rounds must be positive")
    return options


def measure(options):
    if not options.archive.exists():
        raise frame.BenchError(f"there is no {options.archive}; ./dev image builds it")
    machine, remark = host.describe(), frame.busy()
    if remark:
        print(f"bench: {remark}", file=sys.stderr)
    parts, labs = {}, []
    try:
        for part in options.parts:
            labs.append(Lab(options))
            try:
                parts[part] = globals()[part](labs[-1])
            except frame.BenchError as error:
                print(f"bench: {part}: {error}", file=sys.stderr)
                parts[part] = {"missing": str(error)}
    finally:
        # Not before: for minutes after many files are removed, ext4 makes new ones slowly (it goes past
        # every inode that was free only lately).
        for lab in labs:
            lab.close()
    frame.show("")
    machine["load after"] = f"{os.getloadavg()[0]:.2f}"
    result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "rounds": options.rounds, "unpack_rounds": options.unpack_rounds,
              "remark": remark, "seed": options.seed, "host": machine, "parts": parts}
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
