#!/usr/bin/env python3
"""Seventy-two doors that a sandbox may leave open: which are open in ours, compared with those that are
meant to be, for the default of the command line and for `privileges: sudo`, as root and as an ordinary
user.

    doors.py --check    fail where another door is open than ALLOWED says (or one of those is shut), or
                        where SECURITY.md's table is not this one
    doors.py --write    write the table into SECURITY.md, between its two marks
"""
import re
import sys

import suite
from suite import harness

LIMIT = 6
# What is meant to be open by default, and why.
ALLOWED = {
    "memfd_create": "runtimes (JIT compilers, .NET, Java) and Wayland use it; a file in /tmp gives the same",
    "af_unix": "pipes between a program's own processes; none of the host's sockets is in reach",
    "af_inet": "programs talk to themselves on 127.0.0.1; the network namespace has nothing else",
    "netlink_route": "the C library lists addresses with it; it shows the own loopback device alone",
}
# What `privileges: sudo` opens besides.
SUDO = {
    "no_new_privs_off": "sudo is a set-id program: it changes ids inside the user namespace alone",
}
TITLES = {
    "cap_eff_nonzero": "capabilities in effect", "no_new_privs_off": "set-id programs work",
    "w_core_pattern": "write /proc/sys/kernel/core_pattern", "w_sysrq_trigger": "write /proc/sysrq-trigger",
    "w_drop_caches": "write /proc/sys/vm/drop_caches", "w_cgroup_memory": "write the own memory limit",
    "r_kcore": "read /proc/kcore", "r_kallsyms": "read /proc/kallsyms", "r_keys": "read /proc/keys",
    "r_sys": "/sys", "r_vda": "read the disk", "r_kmsg": "read /dev/kmsg", "rw_kvm": "/dev/kvm", "rw_fuse": "/dev/fuse",
    "r_etc_shadow": "read /etc/shadow", "w_etc": "write /etc", "r_root": "read /root",
    "see_host_procs": "see other ids' processes", "r_init_environ": "read PID 1's environment",
    "userns_unshare": "user namespace by unshare", "userns_clone3": "user namespace by clone3",
    "userns_tmpfs": "user namespace and mount", "mount_tmpfs": "mount", "nested_nftables": "nftables in a namespace",
    "mknod_block": "make a block device", "setns_self": "setns", "bpf_map": "bpf", "userfaultfd_user": "userfaultfd, user-only",
    "process_vm_readv": "read another process's memory", "personality_no_randomize": "personality ADDR_NO_RANDOMIZE",
    "i386_int80": "32-bit system calls", "x32_abi": "x32 system calls", "syslog_read": "read the kernel's log",
    "clock_settime": "set the clock", "rlimit_raise_nofile": "raise RLIMIT_NOFILE", "core_dumps": "core files",
    "nice_minus_20": "nice -20", "af_vsock": "AF_VSOCK, to the hypervisor", "af_packet": "AF_PACKET", "raw_icmp": "raw ICMP",
    "netlink_route": "AF_NETLINK route", "netlink_netfilter": "AF_NETLINK netfilter", "netlink_audit": "AF_NETLINK audit",
    "af_alg": "AF_ALG", "af_xdp": "AF_XDP", "af_unix": "AF_UNIX", "af_inet": "AF_INET",
    "host_abstract_socket": "the host's abstract sockets", "host_loopback_port": "the host's loopback ports",
    "tiocsti": "TIOCSTI on an own terminal", "tiocsti_64_bit": "TIOCSTI with bits above 32",
    "fork_4000": "more than 4000 processes",
}
BEGIN, END = "<!-- doors:begin -->", "<!-- doors:end -->"
DOOR = re.compile(r"^door (\S+) (open|shut) ?(.*)$", re.M)


def try_doors(host, *flags):
    """{name: (open, detail)} of a sandbox with these flags."""
    done = host.caller.caisson("run", *host.flags(), "--timeout", "120s", *flags, "--", "/attacks/doors",
                               env=host.caller_environment(), timeout=150)
    found = {name: (state == "open", detail) for name, state, detail in DOOR.findall(done.out)}
    if len(found) != 72:
        sys.exit(f"{len(found)} of 72 doors were tried: {done}")
    return found


def table(default, sudo):
    """SECURITY.md's part: each open door with its reason; the rest by name."""
    def count(doors):
        return sum(opened for opened, _ in doors.values())

    lines = [BEGIN, "", f"Of {len(default)} doors, {count(default)} are open by default and {count(sudo)} with "
             "`privileges: sudo`:", "", "| open door | default | `sudo` | why |", "|---|---|---|---|"]
    for name in default:
        if default[name][0] or sudo[name][0]:
            reason = ALLOWED.get(name) or SUDO.get(name) or "NOT MEANT TO BE OPEN"
            marks = ["open" if doors[name][0] else "·" for doors in (default, sudo)]
            lines.append(f"| {TITLES.get(name, name)} | {marks[0]} | {marks[1]} | {reason} |")
    shut = [TITLES.get(name, name) for name in default if not default[name][0] and not sudo[name][0]]
    lines += ["", "Shut in both: " + ", ".join(shut) + ".", "", END]
    return "\n".join(lines)


def compare(kind, what, doors, allowed):
    faults = []
    for name, (opened, detail) in doors.items():
        if opened and name not in allowed:
            faults.append(f"{kind}, {what}: {name} is open: {detail}")
        if not opened and name in allowed:
            faults.append(f"{kind}, {what}: {name} is meant to be open and is shut: {detail}")
    return faults


def main():
    if sys.argv[1:] not in (["--check"], ["--write"], ["--list"]):
        sys.exit(__doc__)
    harness.require_programs()
    harness.subreaper()
    suite.enter_own_host()
    faults, text = [], None
    for kind in harness.callers():
        with suite.Host(kind) as host:
            default = try_doors(host)
            faults += compare(kind, "default", default, ALLOWED)
            # sudo needs a range of ids: an ordinary user without one is refused.
            sudo = try_doors(host, "--privileges", "sudo") if kind != "user" else default
            if kind != "user":
                faults += compare(kind, "sudo", sudo, {**ALLOWED, **SUDO})
            faults += [f"{kind}: left behind: {thing}" for thing in host.left()]
            text = text or table(default, sudo)
            opened = [name for name in default if default[name][0]]
            print(f"{kind}: {len(opened)} of {len(default)} open: {', '.join(opened)}; sudo: "
                  f"{sum(is_open for is_open, _ in sudo.values())}")
            if "--list" in sys.argv:
                for name, (is_open, detail) in default.items():
                    print(f"  {name:26} {'open' if is_open else 'shut'} {detail}")
    if len(ALLOWED) > LIMIT:
        faults.append(f"{len(ALLOWED)} doors are allowed, the limit is {LIMIT}")
    path = harness.ROOT / "SECURITY.md"
    before = path.read_text()
    if BEGIN not in before or END not in before:
        faults.append(f"SECURITY.md lacks {BEGIN} and {END}")
    else:
        start, end = before.index(BEGIN), before.index(END) + len(END)
        if "--write" in sys.argv:
            path.write_text(before[:start] + text + before[end:])
        elif "--check" in sys.argv and before[start:end] != text and harness.callers()[0] == "root":
            faults.append("SECURITY.md's table differs: run tests/escape/doors.py --write")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
