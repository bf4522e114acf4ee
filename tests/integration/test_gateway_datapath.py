#!/usr/bin/env python3
"""A sandbox behind a gateway: where its packets end, and that they end nowhere else.

For every kind of caller on the host image, with a gateway (gateway_tool.cpp) that writes down what
comes and lets nothing out. Everything stays within network namespaces of the sandboxes' own. What a
program inside meets is tried with the sockets of Python.
"""
import json
import os
import shutil
import subprocess
import sys

import frame

import harness

PYTHON = "/usr/bin/python3"
# What every script inside may use. attempt() is what became of a try and how many milliseconds it took.
PRELUDE = r"""
import errno, json, os, socket, struct, sys, time
def family(address): return socket.AF_INET6 if ":" in address else socket.AF_INET
def attempt(what):
    began = time.monotonic()
    try:
        result = what()
    except OSError as error:
        result = errno.errorcode.get(error.errno, type(error).__name__)
    return [result, round(1000 * (time.monotonic() - began))]
held = []
def tcp(address, port):
    made = socket.socket(family(address), socket.SOCK_STREAM)
    made.settimeout(5)
    made.connect((address, port))
    held.append(made)
    return made.recv(200).decode().strip()
def udp(address, port, data=b"question"):
    with socket.socket(family(address), socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        made.connect((address, port))
        made.send(data)
        return made.recv(200).decode()
def tell(value): print(json.dumps(value))
"""
ADDRESSES = ("192.0.2.1", "8.8.8.8", "169.254.169.254", "168.63.129.16", "10.0.0.1", "100.64.0.1",
             "2001:db8::1", "fd00:ec2::254", "fd00:5a::99")
PORTS = (22, 80, 443, 853, 8080, 65535)
AT_ONCE = 900  # milliseconds; a second is what TCP waits before it tries again
# By the kernel's tables for ICMP errors of that kind, and the sandbox's own filter.
REFUSED = ("EHOSTUNREACH", "EACCES")


class Tool(frame.ModeTest):
    modes = ("root", "user", "range")

    def tool(self, *arguments, preset="release", env=None, wrapper=(), **options):
        """A process of the tool as the caller, in a copy where the build is closed to that one."""
        programs = self.caller.programs(preset)
        mine = programs / "caisson_gateway_tool"
        theirs = harness.build_dir(preset) / "tests" / "caisson_gateway_tool"
        if programs != harness.build_dir(preset) and not mine.exists():
            shutil.copy(theirs, mine)
        command = [*self.caller._prefix, *wrapper, str(mine if mine.exists() else theirs), *map(str, arguments)]
        return subprocess.Popen(command, env={**self.caller.env, **(env or {})}, cwd=self.caller.home, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def finish(self, process, status=0):
        """(what the script told, what arrived, stderr) of a tool that ends with `status`."""
        out, err = process.communicate(timeout=120)
        err = err.decode(errors="replace")
        self.assertEqual(process.returncode, status, err + out.decode(errors="replace"))
        told = [json.loads(line) for line in out.splitlines()] if status == 0 else []
        arrived = [next(iter(json.loads(line).items())) for line in err.splitlines() if line.startswith("{")]
        return told, arrived, err

    def inside(self, script, *arguments):
        return self.finish(self.tool(*arguments, "--", PYTHON, "-c", PRELUDE + script))

    def assert_at_once(self, attempt, *results):
        self.assertIn(attempt[0], results, attempt)
        self.assertLess(attempt[1], AT_ONCE, attempt)


class Datapath(Tool):
    def test_every_connection_ends_in_the_gateway_that_knows_where_it_was_to(self):
        told, arrived, _ = self.inside(f"tell([attempt(lambda: tcp(a, p)) for a in {ADDRESSES} for p in {PORTS}])")
        expected = [f"{address} {port}" for address in ADDRESSES for port in PORTS]
        for place, attempt in zip(expected, told[0]):
            self.assert_at_once(attempt, f"tcp {place}")
        self.assertEqual(arrived, [("tcp", place) for place in expected])

    def test_what_is_no_tcp_is_refused_at_once(self):
        script = f"""
def ping(address, protocol, kind):
    with socket.socket(family(address), socket.SOCK_DGRAM, protocol) as made:
        made.settimeout(5)
        made.connect((address, 0))
        made.send(bytes([kind, 0, 0, 0, 0, 1, 0, 1]))
        return made.recv(200).hex()
tell([attempt(lambda: udp(a, p)) for a in {ADDRESSES} for p in (443, 123, 4500, 54)])
tell([attempt(lambda: ping("8.8.8.8", 1, 8)), attempt(lambda: ping("2001:db8::1", 58, 128)),
      attempt(lambda: ping("10.200.0.1", 1, 8))])
"""
        told, arrived, _ = self.inside(script)
        for attempt in told[0] + told[1]:
            self.assert_at_once(attempt, *REFUSED)
        self.assertEqual(arrived, [])

    def test_no_program_makes_packets_of_its_own(self):
        script = """
kinds = [(socket.AF_INET, socket.SOCK_STREAM, 132), (socket.AF_INET, socket.SOCK_SEQPACKET, 132), (socket.AF_INET, socket.SOCK_DCCP if hasattr(socket, "SOCK_DCCP") else 6, 33),
         (socket.AF_PACKET, socket.SOCK_RAW, 0x300), (socket.AF_PACKET, socket.SOCK_DGRAM, 0x300), (socket.AF_INET, socket.SOCK_RAW, 1),
         (socket.AF_INET, socket.SOCK_RAW, 255), (socket.AF_INET6, socket.SOCK_RAW, 58), (socket.AF_NETLINK, socket.SOCK_RAW, 12)]
tell([attempt(lambda: socket.socket(*kind) and "made") for kind in kinds])
"""
        told, _, _ = self.inside(script)
        for attempt in told[0]:
            self.assertIn(attempt[0], ("EPERM", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"), told)

    def test_dns_is_answered_by_whom_it_was_asked(self):
        script = """
def ask(address):
    with socket.socket(family(address), socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        made.sendto(b"question", (address, 53))
        data, sender = made.recvfrom(200)
        return [data.decode(), sender[0], sender[1]]
servers = ("8.8.8.8", "9.9.9.9", "10.200.0.1", "2001:db8::53")
tell([attempt(lambda: ask(a)) for a in servers])
tell([attempt(lambda: udp(a, 53)) for a in servers])
tell([attempt(lambda: tcp(a, 53)) for a in servers])
"""
        told, arrived, _ = self.inside(script)
        servers = ("8.8.8.8", "9.9.9.9", "10.200.0.1", "2001:db8::53")
        for server, unconnected, connected, stream in zip(servers, *told):
            self.assert_at_once(unconnected, ["echo question", server, 53])
            self.assert_at_once(connected, "echo question")
            self.assert_at_once(stream, f"dns-tcp {server} 53")
        self.assertEqual([kind for kind, _ in arrived], ["dns-udp"] * 8 + ["dns-tcp"] * 4)

    def test_the_listeners_own_ports_are_no_door(self):
        script = """
own = ("10.200.0.1", "fd00:5a::1")
tell([attempt(lambda: tcp(a, 15001)) for a in own])
tell([attempt(lambda: udp(a, p)) for a in own for p in (5353, 15001)])
tell([attempt(lambda: tcp(a, p)) for a in own for p in (22, 5353)])
"""
        told, arrived, _ = self.inside(script)
        for attempt in told[0]:
            self.assert_at_once(attempt, "ECONNREFUSED")
        for attempt in told[1]:
            self.assert_at_once(attempt, *REFUSED)
        # Nothing is there: these are connections like any other, whose destination says what they are.
        expected = [f"{address} {port}" for address in ("10.200.0.1", "fd00:5a::1") for port in (22, 5353)]
        self.assertEqual([attempt[0] for attempt in told[2]], [f"tcp {place}" for place in expected])
        self.assertEqual(arrived, [("tcp", place) for place in expected])

    def test_a_name_server_is_named(self):
        script = """
tell(open("/etc/resolv.conf").read())
tell(open("/etc/nsswitch.conf").read())
tell(sorted(socket.if_nameindex()))
"""
        told, _, _ = self.inside(script)
        self.assertIn("nameserver 10.200.0.1\n", told[0])
        self.assertIn("\nhosts: files dns\n", told[1])
        self.assertEqual([name for _, name in told[2]], ["lo", "eth0"])

    def test_the_loopback_is_the_sandboxs_own(self):
        script = """
server = socket.create_server(("127.0.0.1", 80))
client = socket.create_connection(("127.0.0.1", 80), 5)
server.accept()[0].sendall(b"mine")
tell(client.recv(10).decode())
tell([attempt(lambda: tcp(a, 15001)) for a in ("127.0.0.1", "::1", "10.200.0.2")])
"""
        told, arrived, _ = self.inside(script)
        self.assertEqual(told[0], "mine")
        for attempt in told[1]:
            self.assert_at_once(attempt, "ECONNREFUSED")
        self.assertEqual(arrived, [])

    def test_without_a_gateway_there_is_the_loopback_alone(self):
        done = self.run_in("--", PYTHON, "-c", PRELUDE + """
tell([name for _, name in socket.if_nameindex()])
tell([attempt(lambda: tcp(a, 80))[0] for a in ("192.0.2.1", "10.200.0.1")])
""")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual([json.loads(line) for line in done.out.splitlines()], [["lo"], ["ENETUNREACH"] * 2])

    def test_a_gateway_that_is_gone_refuses_and_ends_what_was_open(self):
        script = """
before = [tcp("192.0.2.1", 443), tcp("2001:db8::1", 443)]
connections = list(held)
tell(attempt(lambda: tcp("192.0.2.1", 1)))
tell([attempt(lambda: made.recv(1).decode()) for made in connections])
tell([attempt(lambda: tcp(a, p)) for a in ("192.0.2.1", "2001:db8::1", "10.200.0.1") for p in (443, 53, 22)])
tell([attempt(lambda: udp(a, 53)) for a in ("8.8.8.8", "2001:db8::1")])
"""
        told, arrived, _ = self.inside(script)
        for attempt in told[1]:
            self.assert_at_once(attempt, "", "ECONNRESET")
        for attempt in told[2] + told[3]:
            self.assert_at_once(attempt, "ECONNREFUSED")
        self.assertEqual(len(arrived), 3)

    def test_without_its_namespace_there_is_no_wire(self):
        script = """
tell(attempt(lambda: tcp("192.0.2.1", 2)))
end = time.monotonic() + 20
while "eth0" in [name for _, name in socket.if_nameindex()] and time.monotonic() < end:
    for made in held: made.close()
    time.sleep(0.01)
tell([name for _, name in socket.if_nameindex()])
tell([attempt(lambda: tcp(a, 443)) for a in ("192.0.2.1", "2001:db8::1")])
"""
        told, _, _ = self.inside(script)
        self.assertEqual(told[1], ["lo"])
        for attempt in told[2]:
            self.assert_at_once(attempt, "ENETUNREACH")

    def test_listeners_can_be_made_again_in_its_namespace(self):
        script = """
tell(attempt(lambda: tcp("192.0.2.1", 3)))
def again():
    end = time.monotonic() + 20
    while True:
        try: return tcp("192.0.2.7", 443)
        # Reset: it was still in the old listener's queue.
        except (ConnectionRefusedError, ConnectionResetError):
            if time.monotonic() > end: raise
tell(attempt(again))
"""
        told, arrived, err = self.inside(script)
        self.assertEqual(told[1][0], "tcp 192.0.2.7 443", err)
        self.assertEqual(arrived, [("tcp", "192.0.2.1 3"), ("tcp", "192.0.2.7 443")])

    def test_nobody_inside_changes_the_wire(self):
        """Not as root of the sandbox, with capabilities over its own user namespace, either."""
        script = r"""
import ctypes, fcntl
tell(os.getuid())
tell([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0])
def flags(up):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        fcntl.ioctl(made, 0x8914, struct.pack("16sh14x", b"eth0", up))
    return "done"
def netlink(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as made:
        made.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        answer = made.recv(4096)
        error = -struct.unpack_from("i", answer, 16)[0]
    if error: raise OSError(error, "netlink")
    return "done"
address = struct.pack("BBBBI", socket.AF_INET, 24, 0, 0, socket.if_nametoindex("eth0")) + struct.pack("HH4s", 8, 2, bytes([10, 0, 0, 9]))
route = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0)
link = struct.pack("BxHiII", 0, 0, socket.if_nametoindex("eth0"), 0, 1)
def leave():
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0: raise OSError(ctypes.get_errno(), "unshare")
    return "done"
def settings():
    open("/proc/sys/net/ipv4/conf/eth0/forwarding", "w").write("1")
    return "done"
def bound():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made: made.bind(("10.0.0.9", 0))
    return "done"
tell([attempt(what)[0] for what in (lambda: flags(0), lambda: netlink(20, address), lambda: netlink(25, route), lambda: netlink(19, link), lambda: netlink(17, link),
                                    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) and "made", leave, settings, bound)])
tell(attempt(lambda: tcp("192.0.2.1", 80)))
"""
        for arguments in ([], ["--user", "0"], ["--user", "0", "--sudo"]):
            if self.kind == "user" and "--sudo" in arguments:
                continue  # there is no range of ids for it
            with self.subTest(arguments=arguments):
                told, _, _ = self.inside(script, *arguments)
                self.assertEqual(told[0] == 0, "--user" in arguments, told)
                self.assertEqual(int(told[1], 16) != 0, "--sudo" in arguments, told)
                for result in told[2]:
                    self.assertIn(result, ("EPERM", "EROFS", "EPROTONOSUPPORT", "EADDRNOTAVAIL"), told)
                self.assertEqual(told[3][0], "tcp 192.0.2.1 80")

    def test_two_sandboxes_are_told_apart_by_their_sockets(self):
        """Their addresses are the same, and at the same time."""
        script = """
tell(tcp("192.0.2.1", {port}))
tell(attempt(lambda: socket.create_server(("10.200.0.2", 8080)) and "made"))
sys.stdout.flush()
tell([tcp("192.0.2.1", {port}) for _ in range(50)][-1])
"""
        running = [self.tool("--", PYTHON, "-c", PRELUDE + script.replace("{port}", str(port))) for port in (1001, 1002)]
        for port, process in zip((1001, 1002), running):
            told, arrived, _ = self.finish(process)
            self.assertEqual(told[1][0], "made")
            self.assertEqual(arrived, [("tcp", f"192.0.2.1 {port}")] * 51)

    def test_new_connections_come_at_a_rate(self):
        """What is above it waits for a second; the kernel remembers no more than that."""
        # Each of another destination, and so a connection of its own to whoever keeps count of them.
        script = """
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
began = time.monotonic()
for i in range(12000):
    made.sendto(b"x", ("11.0.%d.%d" % (i >> 8, i & 255), 53))
    if i % 50 == 0: time.sleep(0.01)
tell(time.monotonic() - began)
"""
        told, arrived, _ = self.inside(script)
        # As many as find room in a socket that is emptied at the same time.
        self.assertGreater(len(arrived), 100)
        self.assertLess(len(arrived), 4096 + 1000 * (told[0] + 0.5))

    def test_the_doctor_tried_it(self):
        done = self.caller.caisson("doctor", "--json")
        found = [f for f in done.json() if f["feature"] == "network gateway"]
        self.assertEqual([f["state"] for f in found], ["works"], found)


class Counted(Tool):
    modes = ("root",)

    def test_a_hundred_leave_no_namespace(self):
        """They make two hundred; what others of this host make and leave meanwhile is less."""
        before = network_namespaces()
        out, err = self.tool("--time", 100).communicate(timeout=300)
        self.assertEqual(len(out.split()), 100, err)
        self.assertTrue(harness.wait_until(lambda: network_namespaces() < before + 100, 30),
                        f"{before} network namespaces before, {network_namespaces()} after")


class Limited(Tool):
    modes = ("user",)

    def test_fifty_leave_no_namespace(self):
        """In a user namespace that may have sixty network namespaces at a time, and they make a hundred."""
        process = self.tool("--time", 50, wrapper=[PYTHON, "-c", LIMITED, str(self.caller.uid)])
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(len(out.split()), 50)

    def test_a_host_without_packet_rules_is_told_so(self):
        process = self.tool("--", "true", wrapper=[PYTHON, "-c", WITHOUT_NFTABLES])
        _, _, err = self.finish(process, 2)
        self.assertIn("gateway: a sandbox's gateway needs nftables", err)
        self.assertIn("sudo modprobe -a nf_tables", err)
        self.assertEqual(self.caller.sandboxes_left(), [])


def network_namespaces():
    """Those of the whole host, as the kernel counts them; root alone may look."""
    with open("/proc/slabinfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("net_namespace"))


# Runs what follows with a limit of network namespaces, as an ordinary user of a user namespace.
LIMITED = """
import ctypes, os, sys
uid, gid = os.geteuid(), os.getegid()
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) != 0: sys.exit("unshare")
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"{sys.argv[1]} {uid} 1")
open("/proc/self/gid_map", "w").write(f"{sys.argv[1]} {gid} 1")
open("/proc/sys/user/max_net_namespaces", "w").write("60")
os.execv(sys.argv[2], sys.argv[2:])
"""

# Runs what follows where socket(AF_NETLINK, …, NETLINK_NETFILTER) is not supported.
WITHOUT_NFTABLES = """
import ctypes, os, struct, sys
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
program = (op(0x20, 0, 0, 0) + op(0x15, 0, 5, 41) + op(0x20, 0, 0, 16) + op(0x15, 0, 3, 16)
           + op(0x20, 0, 0, 32) + op(0x15, 0, 1, 12) + op(0x06, 0, 0, 0x50000 | 93) + op(0x06, 0, 0, 0x7fff0000))
libc = ctypes.CDLL(None, use_errno=True)
kept = ctypes.create_string_buffer(program, len(program))
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, struct.pack("HxxxxxxQ", 8, ctypes.addressof(kept)), 0, 0) != 0: sys.exit("prctl")
os.execv(sys.argv[1], sys.argv[1:])
"""


class Switched(Tool):
    """With the test build's faults: no gateway is made of less than all of it."""

    def test_a_rule_that_is_not_there_makes_no_sandbox(self):
        process = self.tool("--", "true", preset="switches", env={"CAISSON_OFF": "gateway_rules"})
        _, _, err = self.finish(process, 1)
        self.assertIn("gateway: the kernel does not have the gateway's rules as they were given to it: 12 rules instead of 13", err)

    def test_a_step_that_fails_or_is_killed_makes_no_sandbox(self):
        for how, words in (("fail", "gateway: fault injected"), ("kill", "the namespaces' maker died")):
            with self.subTest(how=how):
                process = self.tool("--", "true", preset="switches", env={"CAISSON_FAULT": f"gateway:{how}"})
                _, _, err = self.finish(process, 1)
                self.assertIn(words, err)
                self.assertEqual(self.caller.sandboxes_left(), [])


if __name__ == "__main__":
    frame.main()
