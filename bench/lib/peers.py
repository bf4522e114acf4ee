"""The commands that are measured, each as "run this program in your sandbox", and the OCI bundle that
runc and crun take."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

PLAIN = "plain"
OURS = "caisson"
YARDSTICK = "bwrap"


@dataclass
class Peer:
    name: str
    what: str  # how it was called, for the table
    prefix: list  # the command before the program and its arguments
    bundle: object = None  # a function that makes the command from the program, in place of prefix
    missing: str = ""  # why it cannot run here; empty: it can
    environment: dict = field(default_factory=dict)

    def command(self, program):
        return self.bundle(program) if self.bundle else [*self.prefix, *program]


def find(program):
    return shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def bundle_config(spec, program):
    """runc's own default specification, with this host's /usr as its read-only root and no terminal."""
    spec = json.loads(json.dumps(spec))
    spec["process"]["terminal"] = False
    spec["process"]["args"] = program
    spec["process"]["cwd"] = "/"
    spec["root"] = {"path": "rootfs", "readonly": True}
    spec["mounts"].append({"destination": "/usr", "type": "none", "source": "/usr", "options": ["rbind", "ro"]})
    return spec


def make_bundle(folder, runtime, program):
    """One bundle for each program; the runtime reads it anew on each run."""
    name = "-".join(Path(part).name.strip("-") or "x" for part in program)[:40]
    bundle = folder / f"{Path(runtime).name}-{name}"
    if not bundle.exists():
        root = bundle / "rootfs"
        for path in ("usr", "proc", "dev", "sys", "etc", "tmp"):
            (root / path).mkdir(parents=True)
        for link in ("bin", "sbin", "lib", "lib64"):
            (root / link).symlink_to(f"usr/{link}")
        subprocess.run([runtime, "spec", *(["--rootless"] if os.geteuid() != 0 else [])], cwd=bundle, check=True)
        path = bundle / "config.json"
        path.write_text(json.dumps(bundle_config(json.loads(path.read_text()), program)))
    return bundle


def peers(build, folder):
    """All that are measured; `missing` tells of those that cannot be run here."""
    caisson = Path(build) / "caisson"
    found = [Peer(PLAIN, "fork, exec and wait, no sandbox", []),
             Peer(OURS, "caisson run --", [str(caisson), "run", "--"])]
    if not os.access(caisson, os.X_OK):
        found[-1].missing = "not built: the build folder has no caisson"
    bwrap = find("bwrap")
    found.append(Peer(YARDSTICK, "bwrap --unshare-all --ro-bind / /",
                      [bwrap or "bwrap", "--unshare-all", "--ro-bind", "/", "/"],
                      missing="" if bwrap else "not installed: package bubblewrap"))
    for name in ("runc", "crun"):
        path = find(name)
        state = folder / f"{name}-state"

        def command(program, path=path, state=state):
            bundle = make_bundle(folder, path, program)
            return [path, "--root", str(state), "run", "--bundle", str(bundle), "bench%n"]

        found.append(Peer(name, f"{name} run, /usr read-only, its default specification", [], bundle=command,
                          missing="" if path else f"not installed: package {name}"))
    for peer in found:
        if not peer.missing:
            peer.missing = refusal(peer, folder)
    return found


def refusal(peer, folder):
    """Runs /bin/true once: empty where that works, else what the command said."""
    try:
        command = [part.replace("%n", f"-{os.getpid()}-check") for part in peer.command(["/bin/true"])]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, env=environment())
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run here: {error}"
    if done.returncode == 0:
        return ""
    lines = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
    return f"does not run here: {lines[-1][:300]}"


def environment():
    kept = {name: value for name, value in os.environ.items()
            if name in ("HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME") or name.startswith("CAISSON_")}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", **kept}
