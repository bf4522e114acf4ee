"""What the images of images/ promise is there and runs as their users run it."""
import os

import frame

# Imports of numpy with its threads, several at a time on a busy machine.
ROOM = ("--memory", "2GiB", "--pids", "256", "--timeout", "4m", "--cpu-time", "4m")


class Image(frame.ModeTest):
    modes = ()

    def sh(self, script, *options):
        done = self.run_in(*ROOM, *options, "--", "bash", "-euo", "pipefail", "-c", script, timeout=280)
        self.assertEqual(done.returncode, 0, done)
        return done.out

    def python(self, script, *options):
        done = self.run_in(*ROOM, *options, "--", "python3", "-c", script, timeout=280)
        self.assertEqual(done.returncode, 0, done)
        return done.out.strip()


class Base(Image):
    # code-interpreter is all of base and more.
    modes = ("base", *(("code-interpreter",) if os.environ.get("CAISSON_LONG") else ()))

    def test_programs(self):
        self.sh("for p in python python3 pip node npm npx git curl bash zstd; do $p --version; done; unzip -v; ps -e; tput -V; tar --version")
        self.assertEqual(self.sh("python -c 'import sys; print(sys.version_info.major)'"), "3\n")
        self.assertEqual(self.sh("tput -T xterm-256color colors; tput -T xterm cols"), "256\n80\n")

    def test_git_daemon_serves(self):
        out = self.sh("""
test -x "$(git --exec-path)/git-daemon"
git init -q --bare served.git; git init -q work; cd work
git -c user.name=n -c user.email=n@example.com commit -q --allow-empty -m first
git push -q ../served.git HEAD:refs/heads/main; cd ..
git daemon --base-path=. --export-all --listen=127.0.0.1 --port=9418 --reuseaddr --detach --pid-file=pid
while ! git ls-remote git://127.0.0.1/served.git; do [ ! -s pid ] || kill -0 "$(cat pid)"; sleep 0.05; done 2>/dev/null
git clone -q --branch main git://127.0.0.1/served.git cloned; git -C cloned log --format=%s; kill "$(cat pid)"
""")
        self.assertEqual(out.splitlines()[-1], "first", out)

    def test_sudo_asks_for_no_password(self):
        self.assertEqual(self.sh("sudo -n true; sudo -n id -u; sudo -n -u user id -un", "--privileges", "sudo"), "0\nuser\n")

    def test_where_everybody_may_write(self):
        self.assertEqual(self.sh("for d in /code /usr/local /usr/local/bin /usr/local/lib; do stat -c %a:%u $d; echo x > $d/made; rm $d/made; done"),
                         "777:0\n" * 4)
        self.assertEqual(self.sh("""
mkdir tool; cd tool; echo '{"name": "tool", "version": "1.0.0", "bin": "tool.js"}' > package.json
printf '#!/usr/bin/env node\\nconsole.log("the tool ran")\\n' > tool.js; chmod +x tool.js
npm install --global --offline --no-audit --silent . >&2; tool
"""), "the tool ran\n")

    def test_attributes_of_the_user_are_kept(self):
        # Where neither this kernel's tmpfs has them nor a layer on disk can be made, there are none.
        script = """
import os
for name in (os.path.expanduser('~/file'), os.path.expanduser('~'), '/tmp/other'):
    if not os.path.exists(name): open(name, 'w').close()
    os.setxattr(name, 'user.of.mine', b'value')
    assert os.getxattr(name, 'user.of.mine') == b'value'
    assert 'user.of.mine' in os.listxattr(name)
# A file of the image, which is copied up for it.
os.setxattr(os.path.expanduser('~/.bashrc'), 'user.of.mine', b'other')
print(os.getxattr(os.path.expanduser('~/.bashrc'), 'user.of.mine').decode())
"""
        probe = os.memfd_create("probe")
        self.addCleanup(os.close, probe)
        try:
            os.setxattr(probe, "user.probe", b"")
        except OSError:
            self.skipTest("this kernel's tmpfs keeps no attributes of users")
        self.assertEqual(self.python(script), "other")

    def test_who_is_there(self):
        self.assertEqual(self.sh("id -un; echo ~; getent passwd user; test -s /etc/ssl/certs/ca-certificates.crt; ls -A /home"),
                         "user\n/home/user\nuser:x:1000:1000::/home/user:/bin/bash\nuser\n")


class CodeInterpreter(Image):
    modes = ("code-interpreter",) if os.environ.get("CAISSON_LONG") else ()

    def test_it_computes(self):
        self.assertEqual(self.python("""
import numpy, pandas, scipy.optimize, scipy.linalg
frame = pandas.DataFrame({'a': [1, 2, 3], 'b': numpy.arange(3.0)})
root = scipy.optimize.brentq(lambda x: x * x - 4, 0, 5)
matrix = numpy.arange(9.0).reshape(3, 3) + numpy.eye(3)
print(frame['a'].sum(), frame.describe().loc['mean', 'b'], round(root, 6), round(float(scipy.linalg.det(matrix)), 6))
"""), "6 1.0 2.0 -5.0")
        # The reference BLAS would take minutes over what this one does in a second.
        self.assertIn("openblas", self.python("import numpy; print(open('/proc/self/maps').read())"))

    def test_it_draws(self):
        self.assertEqual(self.python("""
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plot
figure, axes = plot.subplots()
axes.plot([1, 2, 3], [2, 4, 1], label='grün')
axes.set_title('two $\\\\alpha$'); axes.legend()
figure.savefig('drawn.png')
import PIL.Image
image = PIL.Image.open('drawn.png')
print(open('drawn.png', 'rb').read(8) == b'\\x89PNG\\r\\n\\x1a\\n', image.size, len(image.convert('RGB').getcolors(1 << 20)) > 2)
"""), "True (640, 480) True")

    def test_fonts_are_not_looked_for(self):
        self.assertEqual(self.python("""
import glob, logging, os
before = {path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.expanduser('~/.cache/matplotlib/fontlist-*.json'))}
import matplotlib.font_manager
after = {path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.expanduser('~/.cache/matplotlib/fontlist-*.json'))}
print(len(before), before == after)
"""), "1 True")

    def test_a_kernel_answers(self):
        self.assertEqual(self.python("""
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(startup_timeout=120)
try:
    said = []
    reply = client.execute_interactive('x = 6 * 7; print(x)', timeout=120,
                                       output_hook=lambda m: said.append(m['content'].get('text', '')))
    print(reply['content']['status'], ''.join(said).strip())
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""), "ok 42")


if __name__ == "__main__":
    frame.main()
