"""What flattening a layer into an erofs image costs, beside `zstd -d | tar x; sync` of the same layer.

The image bench's part about unpacking: `measure(build, layer, folder, rounds)` with the release build,
a layer that zstd compressed, and a folder on the disk that is meant, where nothing else is. Every
round takes each contender once, in another order; both end with their bytes on the disk.
"""

import gzip
import os
import random
import shutil
import statistics
import subprocess
import time
from pathlib import Path

YARDSTICK = "zstd -d | tar x; sync"


class UnpackBenchError(Exception):
    """The measurement cannot be made; the text says why."""


def as_gzip(layer, folder):
    """The same tar, compressed as registries have it."""
    target = Path(folder) / "layer.tar.gz"
    tar = subprocess.Popen(["zstd", "-dc", layer], stdout=subprocess.PIPE)
    with gzip.open(target, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(tar.stdout, packed, 1 << 20)
    if tar.wait() != 0:
        raise UnpackBenchError(f"zstd cannot read {layer}")
    return target


def contenders(build, layer, folder):
    tool = Path(build) / "tests" / "caisson_rootfs_tool"
    if not tool.exists():
        raise UnpackBenchError(f"{tool} is missing: build the target caisson_rootfs_tool")
    packed = as_gzip(layer, folder)
    flatten = [tool, "flatten", "erofs", "OUT", "--sync"]
    return {
        YARDSTICK: ["sh", "-c", 'mkdir OUT && zstd -dc "$0" | tar -xf - -C OUT --numeric-owner && sync -f OUT', layer],
        "gzip -d | tar x; sync": ["sh", "-c", 'mkdir OUT && gzip -dc "$0" | tar -xf - -C OUT --numeric-owner && sync -f OUT', packed],
        "erofs from zstd": [*flatten, layer],
        "erofs from gzip": [*flatten, packed],
    }


def once(command, folder):
    out = Path(folder) / "out"
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    words = [str(word).replace("OUT", str(out)) for word in command]
    before = os.times()
    start = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True)
    seconds = time.monotonic() - start
    after = os.times()
    if done.returncode != 0:
        raise UnpackBenchError(f"{' '.join(words)}: {done.stderr.strip()}")
    shutil.rmtree(out, ignore_errors=True)
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, used


def measure(build, layer, folder, rounds=5):
    """{contender: {"seconds": median, "least": …, "processor": median, "ratio": least to tar's least}}."""
    commands = contenders(build, layer, folder)
    runs = {name: [] for name in commands}
    for _ in range(rounds):
        for name in random.sample(list(commands), len(commands)):
            runs[name].append(once(commands[name], folder))
    (Path(folder) / "layer.tar.gz").unlink()
    yardstick = min(seconds for seconds, _ in runs[YARDSTICK])
    return {
        name: {
            "seconds": statistics.median(seconds for seconds, _ in taken),
            "least": min(seconds for seconds, _ in taken),
            "processor": statistics.median(used for _, used in taken),
            "ratio": min(seconds for seconds, _ in taken) / yardstick,
        }
        for name, taken in runs.items()
    }
