#!/usr/bin/env python3
"""A throwaway host: Debian's own kernel (Linux 6.1, pure cgroup v2) under QEMU's emulation.

    with Vm() as vm:
        result = vm.run("caisson run -- true", user="user")
        result.status, result.stdout, result.stderr, result.timed_out, result.survivors

A machine boots in a few seconds and serves any number of runs, one at a time. Inside: an ext4 root
that is thrown away, /usr from a read-only disk, the programs of CAISSON_BUILD (default
build/release) in /opt/caisson/build and on PATH, `files` in /opt/caisson, the users root, `user`
(with subordinate ids) and `plain` (without), and control groups as systemd lays them out:

    group="system"     a service of root (default for root)
    group="delegated"  a scope that belongs to the user (default for others)
    group="session"    a scope that does not belong to the user
    group="top"        the root group

There is no network but loopback. QEMU ends with this process, whatever ends it.

    vm.py facts                 the table of what this kernel has
    vm.py run [--user U] [--group G] SCRIPT
    vm.py boot [--rounds N]     how long it takes from exec to ready
"""

import argparse
import atexit
import ctypes
import mmap
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import vm_parts
from vm_parts import BUILD, PartsError

PROGRAMS = ["caisson", "caisson-launcher", "caisson-guest", "caisson-image-worker"]
BOOT_TIMEOUT = 120
GRACE = 30  # Beyond a run's own timeout, which the agent keeps.
_libc = ctypes.CDLL(None, use_errno=True)


class VmError(Exception):
    """The machine itself failed; the text ends with the last lines of its console."""


@dataclass
class RunResult:
    status: int  # exit status, or -n when a signal ended it
    stdout: bytes
    stderr: bytes
    timed_out: bool
    survivors: int  # processes of the run that outlived it (and were then killed)
    elapsed: float  # seconds, as this side saw it

    @property
    def text(self):
        return self.stdout.decode(errors="replace")

    def check(self):
        if self.status != 0 or self.timed_out:
            raise VmError(f"script ended with {self.status}{' (timeout)' if self.timed_out else ''}\n"
                          f"stdout: {self.text[-2000:]}\nstderr: {self.stderr.decode(errors='replace')[-2000:]}")
        return self


def tsc_khz():
    """What rdtsc counts per millisecond: the emulated counter is the host's, and a microvm has no
    other clock to measure it by."""
    try:
        code = bytes.fromhex("0f3148c1e2204809d0c3")  # rdtsc; shl rdx,32; or rax,rdx; ret
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        best = []
        for _ in range(3):
            start, ticks = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), read()
            time.sleep(0.02)
            end, more = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), read()
            best.append((more - ticks) * 1_000_000 / (end - start))
        return round(statistics.median(best))
    except (OSError, ValueError):
        text = Path("/proc/cpuinfo").read_text()  # Pages of our own may not be executable here.
        return round(float(re.search(r"^cpu MHz\s*: (\S+)", text, re.M)[1]) * 1000)


def _end_with_parent(parent):
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


class Vm:
    def __init__(self, files=None, *, build=BUILD, programs=PROGRAMS, presets=(), memory=1024, cpus=1,
                 machine="microvm", arguments=""):
        """files: {path in /opt/caisson: file or folder of this host}. programs: names in `build`.
        presets: other builds ("switches") whose programs go to /opt/caisson/PRESET. arguments: added to
        the kernel's command line."""
        self._process = None
        self._channel = None
        started = time.monotonic()
        everything = {f"build/{name}": Path(build) / name for name in programs}
        for preset in presets:
            everything.update({f"{preset}/{name}": Path(build).parent / preset / name for name in programs})
        everything.update(files or {})
        with vm_parts.cache_lock():
            kernel = vm_parts.kernel()
            disks = {"usr": vm_parts.usr_image(), "payload": vm_parts.payload_image(everything),
                     "root": vm_parts.root_image()}
            initrd = vm_parts.initrd(kernel)
        self.seconds_to_prepare = time.monotonic() - started
        self._boot(kernel, initrd, disks, memory, cpus, machine, arguments)

    def _command(self, kernel, initrd, disks, memory, cpus, machine, arguments, channel):
        pci = machine != "microvm"
        suffix = "pci" if pci else "device"
        machine = "q35" if pci else "microvm,acpi=on,isa-serial=on,x-option-roms=off,rtc=on"
        # tsc=reliable: a microvm has nothing but the timer's ticks to check the counter against, and on
        # a busy host ticks get lost; the kernel would then take the ticks for its clock, which goes slow.
        append = ("console=ttyS0 quiet panic=-1 reboot=t cgroup_no_v1=all mitigations=off "
                  f"random.trust_cpu=on tsc=reliable tsc_early_khz={tsc_khz()} {arguments}")
        command = [vm_parts.require("qemu-system-x86_64", "qemu-system-x86"),
                   "-M", machine, "-accel", "tcg,thread=multi" if cpus > 1 else "tcg", "-cpu", "max",
                   "-m", str(memory), "-smp", str(cpus), "-nodefaults", "-no-user-config", "-no-reboot",
                   "-display", "none", "-serial", "stdio", "-kernel", str(kernel / "vmlinuz"),
                   "-initrd", str(initrd), "-append", append]
        if not pci:
            command += ["-global", "virtio-mmio.force-legacy=false"]
        for name, path in disks.items():
            mode = "snapshot=on" if name == "root" else "readonly=on"
            command += ["-drive", f"id={name},file={path},format=raw,if=none,{mode}",
                        "-device", f"virtio-blk-{suffix},drive={name},serial={name}"]
        return command + ["-device", f"virtio-serial-{suffix}", "-chardev", f"socket,id=run,fd={channel}",
                          "-device", "virtserialport,chardev=run,name=caisson.vm"]

    def _boot(self, *how):
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        self._console = []
        started = time.monotonic()
        self._process = subprocess.Popen(
            self._command(*how, theirs.fileno()), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=[theirs.fileno()],
            preexec_fn=lambda: _end_with_parent(parent))
        theirs.close()
        self._channel = ours
        atexit.register(self.close)
        self._reader = threading.Thread(target=self._read_console, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            kind, payload = self._receive(time.monotonic() + BOOT_TIMEOUT)
            if kind != b"H":
                raise self._error(f"the machine began with {kind!r} instead of saying that it is ready")
        except BaseException:
            self.close()
            raise
        self.release = payload.decode()
        self.seconds_to_ready = time.monotonic() - started

    def _read_console(self, stream):
        with stream:
            for line in stream:
                self._console.append(line.decode(errors="replace").rstrip())

    @property
    def console(self):
        return "\n".join(self._console)

    def _error(self, what):
        return VmError(f"{what}\nconsole:\n" + "\n".join(self._console[-30:]))

    def _read(self, size, deadline):
        data = b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._error("the machine does not answer")
            self._channel.settimeout(left)
            try:
                more = self._channel.recv(size - len(data))
            except TimeoutError:
                continue
            except OSError as error:
                raise self._error(f"the machine is gone: {error}") from error
            if not more:
                self._reader.join(2)  # For its last words.
                raise self._error("the machine is gone")
            data += more
        return data

    def _receive(self, deadline):
        head = self._read(5, deadline)
        return head[4:], self._read(struct.unpack("<I", head[:4])[0], deadline)

    def _send(self, kind, payload):
        self._channel.settimeout(GRACE)
        self._channel.sendall(struct.pack("<I", len(payload)) + kind + payload)

    def run(self, script, *, user="root", group=None, timeout=60.0):
        """Runs a bash script; ends everything that it leaves behind."""
        if self._process is None:
            raise VmError("the machine is closed")
        group = group or ("system" if user == "root" else "delegated")
        fields = [user, group, str(int(timeout * 1000)), script]
        started = time.monotonic()
        try:
            self._send(b"R", b"\0".join(field.encode() for field in fields))
            out, err = [], []
            while True:
                kind, payload = self._receive(started + timeout + GRACE)
                if kind == b"O":
                    out.append(payload)
                elif kind == b"E":
                    err.append(payload)
                elif kind in b"FX":
                    break
                else:
                    raise self._error(f"unknown frame {kind!r}")
        except BaseException:
            self.close()  # Whatever it says later would be taken for the answer to another run.
            raise
        if kind == b"F":
            raise VmError(payload.decode())
        status, timed_out, survivors = struct.unpack("<III", payload)
        return RunResult(os.waitstatus_to_exitcode(status), b"".join(out), b"".join(err), bool(timed_out),
                         survivors, time.monotonic() - started)

    def close(self):
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.close)
        try:
            self._send(b"Q", b"")
            process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        self._reader.join(5)
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=["microvm", "q35"], default="microvm")
    parser.add_argument("--memory", type=int, default=1024)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--bare", action="store_true", help="without the programs under test")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("facts")
    run = commands.add_parser("run")
    run.add_argument("--user", default="root")
    run.add_argument("--group")
    run.add_argument("--timeout", type=float, default=60)
    run.add_argument("script")
    boot = commands.add_parser("boot")
    boot.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    keywords = {"machine": options.machine, "memory": options.memory, "cpus": options.cpus}
    if options.bare:
        keywords["programs"] = []
    if options.command == "boot":
        times = []
        for _ in range(options.rounds):
            with Vm(**keywords) as vm:
                times.append(vm.seconds_to_ready)
        print(f"{vm.release} {options.machine}, {options.cpus} cpus, {options.memory} MiB: ready after "
              f"{min(times):.2f} s at best, {statistics.median(times):.2f} s in the median of {len(times)}")
        return 0
    with Vm(**keywords) as vm:
        if options.command == "facts":
            import facts
            print(facts.table(facts.collect(vm)))
            return 0
        result = vm.run(options.script, user=options.user, group=options.group, timeout=options.timeout)
    sys.stdout.buffer.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(result.stderr)
    return result.status if result.status >= 0 else 128 - result.status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (VmError, PartsError) as error:
        sys.exit(f"vm: {error}")
