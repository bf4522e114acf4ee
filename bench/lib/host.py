"""What a reader must know of the machine to read the figures."""

import os
import platform
import re
import subprocess
from pathlib import Path


def first(pattern, path):
    match = re.search(pattern, Path(path).read_text(), re.M)
    return match[1].strip() if match else "unknown"


def cgroup_mode():
    mounts = Path("/proc/self/mountinfo").read_text()
    kinds = set(re.findall(r" - (cgroup2?) ", mounts))
    if kinds == {"cgroup2"}:
        return "v2"
    if kinds == {"cgroup", "cgroup2"}:
        return "v1 controllers, v2 beside them without controllers"
    return "v1" if kinds else "none"


def version(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.SubprocessError):
        return "unknown"


def describe():
    release = Path("/etc/os-release")
    memory_kib = int(first(r"^MemTotal:\s+(\d+)", "/proc/meminfo"))
    return {
        "kernel": re.match(r"[\d.]*", platform.release())[0],
        "system": first(r'^PRETTY_NAME="?([^"\n]*)', release) if release.exists() else "unknown",
        "processor": first(r"^model name\s*: (.*)", "/proc/cpuinfo"),
        "processors": os.cpu_count(),
        "memory": f"{memory_kib / (1 << 20):.1f} GiB",
        "control groups": cgroup_mode(),
        "virtualised": "yes" if " hypervisor" in Path("/proc/cpuinfo").read_text() else "no",
        "caller": "root" if os.geteuid() == 0 else "an ordinary user",
        "load before": f"{os.getloadavg()[0]:.2f}",
    }
