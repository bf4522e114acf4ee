"""Runs a command in a network namespace of its own where a registry has the address 192.0.2.7 (port 5000).

usage: unshare --net -- registry_elsewhere.py REDIRECT COMMAND…

The registry has the image a:1 and wants a login; with REDIRECT its layer is said to be there. Another server listens
on 127.0.0.1:5001. Prints how the command ended and what the servers saw, as JSON.
"""
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys

import registry_lab as lab

SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8914, 0x8916, 1


def configure():
    """Raises lo and gives it the second address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
        address = struct.pack("H2x4s8x", socket.AF_INET, socket.inet_aton("192.0.2.7"))
        fcntl.ioctl(control, SIOCSIFADDR, struct.pack("16s16s8x", b"lo:1", address))


def guarded(answer):
    def check(handler):
        if "Authorization" in handler.headers:
            lab.reply(handler, *answer)
        else:
            lab.reply(handler, 401, b"", {"WWW-Authenticate": 'Basic realm="x"'})
    return check


def main():
    redirect, command = sys.argv[1], sys.argv[2:]
    configure()
    layer = lab.tar_of({"f": b"content"})
    answers, _, _ = lab.image_answers("a", [layer])
    answers["/v2/"] = (200, b"{}", {})
    if redirect:
        answers[f"/v2/a/blobs/{lab.digest(layer)}"] = (307, b"", {"Location": redirect})
    registry = lab.Scripted({path: guarded(answer) for path, answer in answers.items()}, address="192.0.2.7", port=5000)
    registry.answers["/v2/"] = guarded(answers["/v2/"])
    inside = lab.Scripted({}, port=5001)
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=dict(os.environ), timeout=100)
    print(json.dumps({
        "code": done.returncode, "out": done.stdout, "err": done.stderr, "seen": len(registry.seen),
        "authorized": sum("Authorization" in headers for _, headers in registry.seen), "inside": len(inside.seen)}))


main()
