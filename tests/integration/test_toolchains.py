"""Toolchains run unchanged: what works on the host works in a sandbox with its default settings.

Each test gives a program of the kind people write and a script that builds and runs it; only sizes
and times are raised where the tool needs more than the default. The host image is tried as root and
as an ordinary user; python, node and git also on the base image.
"""
import glob
import io
import json
import os
import zipfile

import frame

ROOM = ("--memory", "2GiB", "--disk", "1GiB", "--pids", "512", "--timeout", "4m", "--cpu-time", "4m")


# The long tier (CAISSON_LONG=1) also runs as root on the host image; the other tier keeps to the
# strictest caller and to the image that root's runs use.
ALSO_ROOT = ("root",) if os.environ.get("CAISSON_LONG") else ()


class Toolchain(frame.ModeTest):
    modes = ()

    def build(self, files, script, *, room=(), wants=()):
        """Runs the bash script beside a copy of the files; it succeeds, and prints all of `wants`."""
        folder = self.given(files)
        done = self.run_in(*room, "--copy", f"{folder}:/home/user/work", "-w", "/home/user/work", "--",
                           "bash", "-euo", "pipefail", "-c", script, timeout=280)
        self.assertEqual(done.returncode, 0, done)
        for text in wants:
            self.assertIn(text, done.out, done)
        return done


class OnBothImages(Toolchain):
    modes = (*ALSO_ROOT, "user", "base")

    def test_python_multiprocessing(self):
        self.build({"main.py": """
import concurrent.futures, multiprocessing as mp, multiprocessing.shared_memory as shm, os, sys, threading

def square(x):
    return x * x

def child(queue, lock, value, name):
    memory = shm.SharedMemory(name)
    with lock:
        value.value += 1
        memory.buf[0] += 1
    queue.put(os.getpid())
    memory.close()

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        mp.set_start_method(method, force=True)
        with mp.Pool(4) as pool:
            assert sum(pool.map(square, range(1000))) == 332833500
        queue, lock, value = mp.Queue(), mp.Lock(), mp.Value("i", 0)
        memory = shm.SharedMemory(create=True, size=1 << 20)
        workers = [mp.Process(target=child, args=(queue, lock, value, memory.name)) for _ in range(5)]
        for w in workers: w.start()
        pids = {queue.get() for _ in workers}
        for w in workers: w.join()
        assert (value.value, memory.buf[0], len(pids)) == (5, 5, 5)
        memory.close(); memory.unlink()
        with mp.Manager() as manager:
            shared = manager.dict()
            shared["x"] = 1
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            assert list(pool.map(square, [1, 2])) == [1, 4]
        print(method, "works")
    threads = [threading.Thread(target=square, args=(i,)) for i in range(50)]
    for t in threads: t.start()
    for t in threads: t.join()
"""}, "python3 main.py", wants=["fork works", "spawn works", "forkserver works"])

    def test_python_asyncio_and_subprocess(self):
        self.build({"main.py": """
import asyncio, signal, socket, subprocess, sys

async def main():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    v6 = await asyncio.start_server(serve, "::1", 0)
    unix = await asyncio.start_unix_server(serve, "/tmp/s")
    for connect in (asyncio.open_connection(*server.sockets[0].getsockname()),
                    asyncio.open_connection(*v6.sockets[0].getsockname()[:2]), asyncio.open_unix_connection("/tmp/s")):
        reader, writer = await connect
        writer.write(b"hello\\n")
        assert await reader.read() == b"HELLO\\n"
    process = await asyncio.create_subprocess_exec("sleep", "100")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM

asyncio.run(main())
assert subprocess.run(["cat"], input=b"x" * 1_000_000, capture_output=True).stdout == b"x" * 1_000_000
a, b = socket.socketpair()
socket.send_fds(a, [b"f"], [1]); assert len(socket.recv_fds(b, 1, 1)[1]) == 1
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.bind(("127.0.0.1", 0)); udp.sendto(b"u", udp.getsockname()); assert udp.recv(1) == b"u"
print("done")
"""}, "python3 main.py", wants=["done"])

    def test_python_sqlite_wal(self):
        self.build({"main.py": """
import multiprocessing as mp, sqlite3

def insert(n):
    db = sqlite3.connect("t.db", timeout=30)
    for i in range(50):
        with db: db.execute("insert into t values (?, ?)", (n, i))

if __name__ == "__main__":
    db = sqlite3.connect("t.db")
    assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    db.execute("create table t (a, b)")
    workers = [mp.Process(target=insert, args=(n,)) for n in range(4)]
    for w in workers: w.start()
    for w in workers: w.join()
    print(db.execute("select count(*) from t").fetchone()[0], db.execute("pragma integrity_check").fetchone()[0])
"""}, "python3 main.py", wants=["200 ok"])

    def test_python_inotify(self):
        self.build({"main.py": """
import ctypes, os, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
os.mkdir("watched")
assert libc.inotify_add_watch(fd, b"watched", 0x100 | 0x8 | 0x200) > 0
open("watched/new", "w").close()
os.unlink("watched/new")
seen = b""
while len(seen) < 96: seen += os.read(fd, 4096)
masks = [struct.unpack_from("iIII", seen, at)[1] for at in range(0, 96, 32)]
print(masks)
"""}, "python3 main.py", wants=[str([0x100, 0x8, 0x200])])

    def test_loopback_server_and_curl(self):
        self.need("curl")
        self.build({"page.txt": "the page\n"}, """
python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &
for i in $(seq 100); do curl -sf http://127.0.0.1:8000/page.txt && break; sleep 0.1; done
curl -sf http://localhost:8000/page.txt
kill %1
python3 -m http.server --bind :: 80 >/dev/null 2>&1 &
for i in $(seq 100); do curl -sf 'http://[::1]/page.txt' && break; sleep 0.1; done
""", wants=["the page\nthe page\nthe page\n"])

    def test_node_workers(self):
        self.need("node")
        self.build({"main.js": """
const { Worker, isMainThread, workerData } = require('worker_threads');
const { fork, execFileSync } = require('child_process');
const fs = require('fs'), http = require('http'), net = require('net'), crypto = require('crypto'), zlib = require('zlib');
if (process.send) { process.on('message', (m) => { process.send(m * 2); process.disconnect(); }); }
else if (!isMainThread) { Atomics.add(new Int32Array(workerData), 0, 1); }
else (async () => {
  const shared = new SharedArrayBuffer(4);
  await Promise.all([...Array(4)].map(() => new Promise((done, fail) =>
    new Worker(__filename, { workerData: shared }).on('exit', done).on('error', fail))));
  console.log('workers', Atomics.load(new Int32Array(shared), 0));
  console.log('child', await new Promise((done) => { const c = fork(__filename); c.on('message', done); c.send(21); }));
  console.log('exec', execFileSync('echo', ['text']).toString().trim());
  const server = http.createServer((q, r) => r.end('served')).listen(0, '127.0.0.1');
  await new Promise((d) => server.on('listening', d));
  console.log('http', await (await fetch(`http://127.0.0.1:${server.address().port}`)).text());
  server.close();
  const local = net.createServer((s) => s.end('local')).listen('/tmp/node.sock');
  await new Promise((d) => local.on('listening', d));
  console.log('unix', await new Promise((d) => net.connect('/tmp/node.sock').on('data', (x) => d(x.toString()))));
  local.close();
  const seen = new Promise((d) => { const w = fs.watch('.', () => { w.close(); d('seen'); }); });
  fs.writeFileSync('touched', 'x');
  console.log('watch', await seen);
  crypto.scryptSync('a', 'b', 32); zlib.gunzipSync(zlib.gzipSync('x'));
  await fs.promises.writeFile('big', Buffer.alloc(1 << 20)); await fs.promises.cp('big', 'copy');
})();
"""}, "node main.js", wants=["workers 4", "child 42", "exec text", "http served", "unix local", "watch seen"])

    def test_npm_pack_and_install_offline(self):
        self.need("node", "npm")
        self.build({
            "lib/package.json": '{"name": "lib", "version": "1.2.3", "main": "index.js", "bin": {"lib": "cli.js"}}',
            "lib/index.js": "module.exports = () => 'from the library';\n",
            "lib/cli.js": "#!/usr/bin/env node\nconsole.log('ran ' + require('.')());\n",
            "app/package.json": '{"name": "app", "version": "1.0.0", "scripts": {"start": "node main.js", "tool": "lib"}}',
            "app/main.js": "console.log('app has ' + require('lib')());\n",
        }, """
(cd lib && npm pack --silent)
cd app
npm install --offline --no-audit --no-fund ../lib/lib-1.2.3.tgz
npm run --silent start
npm run --silent tool
npx --offline lib
npm ls
""", wants=["app has from the library", "ran from the library", "lib@1.2.3"], room=("--memory", "1GiB"))

    def test_git(self):
        self.need("git")
        self.build({"file": "one\n"}, """
git config --global user.email someone@example.com; git config --global user.name Someone
git init -q -b main .; git add file; git commit -q -m first
for i in $(seq 20); do echo $i > file; git commit -q -a -m "change $i"; done
git checkout -q -b side HEAD~5; echo side > other; git add other; git commit -q -m side
git checkout -q main; git merge -q --no-edit side; git rebase -q HEAD~2
git gc -q --prune=now; git fsck --full; git stash list; git worktree add -q ../tree side
git clone -q . ../clone; git -C ../clone log --oneline | wc -l
git bundle create -q ../b.bundle --all; git clone -q ../b.bundle ../from-bundle
git daemon --listen=127.0.0.1 --port=9418 --reuseaddr --export-all --base-path=/home/user --detach /home/user/work
for i in $(seq 50); do git clone -q git://127.0.0.1/work ../net 2>/dev/null && break; sleep 0.1; done
cat ../net/file ../net/other
git grep -n side; git blame file | cut -c60-; git archive HEAD | tar -t
""", wants=["22\n20\nside\n", "other:1:side"])

    def test_bash_job_control(self):
        with self.terminal("shell", "--image", self.image, "--", "bash", "--norc", "-i") as screen:
            screen.say("PS1='>'; bind 'set enable-bracketed-paste off'; stty -echo; tty", "/dev/pts/0")
            screen.say("set -o | tr -d ' \\t'", "monitoron")
            screen.say("sleep 100 & jobs", "Running")
            # A program that speaks is in the foreground: what is typed from then on is its own.
            screen.say("sh -c 'echo at-$((1 + 1)); exec cat'", "at-2")
            screen.say(b"\x1a", "Stopped")
            screen.say("bg %2; kill %1 %2; wait; echo left-$(jobs -r | wc -l)", "left-0")
            screen.say("(exit 7) & wait $!; echo got-$?", "got-7")
            screen.say("sh -c 'echo at-$((1 + 2)); exec sleep 100'", "at-3")
            screen.say(b"\x03", ">")
            screen.say("echo status-$?", "status-130")
            screen.say("sh -c 'sleep 0.1; echo at-$((2 + 2)); exec sleep 100' & fg", "at-4")
            screen.say(b"\x03", ">")
            screen.say("stty size", "24 80")
            screen.resize(31, 77)
            screen.say("stty size", "31 77")
            screen.say("python3 -c 'import os; print(os.tcgetpgrp(0) == os.getpgrp() != os.getsid(0))'", "True")
            screen.say("exit 3")
            self.assertEqual(screen.wait(), 3, screen.seen)

    def test_tar_with_links_sparse_files_and_attributes(self):
        self.need("tar")
        self.build({"main.py": "import os; os.setxattr('t/a', 'user.note', b'kept'); print(os.getxattr('out/t/a', 'user.note')) if os.path.exists('out') else None\n"}, """
mkdir -p t/deep/er out2; echo a > t/a; ln t/a t/hard; ln -s ../a t/deep/soft; mkfifo t/pipe; chmod 4751 t/deep/er
truncate -s 100M t/sparse; echo end >> t/sparse; touch -d 2001-02-03T04:05:06Z t/a
python3 main.py
tar --xattrs --sparse -czf t.tgz t; mkdir out; tar --xattrs -xpzf t.tgz -C out
python3 main.py
cmp t/sparse out/t/sparse; [ $(du -k out/t/sparse | cut -f1) -lt 1000 ]
[ out/t/a -ef out/t/hard ]; readlink out/t/deep/soft; [ -p out/t/pipe ]
stat -c '%a %Y' out/t/deep/er out/t/a
tar --zstd -cf t.tar.zst t 2>/dev/null || true; tar -cJf t.txz t/a; tar -xJf t.txz -C out2; cat out2/t/a
""", wants=["b'kept'", "../a", "4751", "644 981173106"])


class Sizes(Toolchain):
    """Runtimes that size themselves by their control group find our limits, or do so when told."""

    modes = ("root", "user", "base")

    def test_node_sizes_its_heap_by_the_limit(self):
        self.need("node")
        script = "console.log(JSON.stringify([process.constrainedMemory(), require('v8').getHeapStatistics().heap_size_limit]))"
        for mebibytes in (512, 2048):  # V8 takes 256 MiB at least
            done = self.run_in("--memory", f"{mebibytes}MiB", "--disk", "32MiB", "--", "node", "-e", script)
            self.assertEqual(done.returncode, 0, done)
            constrained, heap = json.loads(done.out)
            self.assertEqual(constrained, mebibytes << 20)
            self.assertLess(heap, mebibytes << 20)

    def test_node_ends_by_its_own_limit_first(self):
        # Its own message names the cause; without the stand-in the kernel would end it.
        self.need("node")
        done = self.run_in("--memory", "512MiB", "--disk", "32MiB", "--", "node", "-e", "const a = []; for (;;) a.push({x: a.length})")
        self.assertIn("heap out of memory", done.err, done)

    def test_java_sizes_itself_when_told(self):
        # It looks for a mount of the kernel's control group file system in /proc/self/mountinfo, which
        # a sandbox never has, and takes the whole machine's memory; -XX:MaxRAM says what to take.
        if self.image == "base":
            return  # has no Java
        self.need("java", "javac")
        folder = self.given({"M.java": "public class M { public static void main(String[] a) { Runtime r = Runtime.getRuntime();\n"
                                       "System.out.println(r.maxMemory() + \" \" + r.availableProcessors()); } }\n"})
        done = self.run_in(*ROOM[:6], "--copy", f"{folder}:/home/user/w", "-e",
                           "JAVA_TOOL_OPTIONS=-XX:MaxRAM=400m -XX:ActiveProcessorCount=1", "--", "java", "w/M.java")
        self.assertEqual(done.returncode, 0, done)
        memory, processors = map(int, done.out.split())
        self.assertLess(memory, 400 << 20)
        self.assertEqual(processors, 1)


class OnTheHostImage(Toolchain):
    modes = (*ALSO_ROOT, "user")

    def test_gcc(self):
        self.need("gcc", "g++")
        self.build({
            "a.c": "#include <pthread.h>\n#include <stdio.h>\nstatic void *run(void *x) { return x; }\n"
                   "int main(void) { pthread_t t; void *r; pthread_create(&t, 0, run, \"thread\"); pthread_join(t, &r); puts(r); }\n",
            "b.cpp": "#include <future>\n#include <iostream>\n#include <vector>\nint main() { std::vector<std::future<int>> f;\n"
                     "for (int i = 0; i < 20; ++i) f.push_back(std::async(std::launch::async, [i] { return i; }));\n"
                     "int s = 0; for (auto& x : f) s += x.get(); try { throw s; } catch (int v) { std::cout << v << '\\n'; } }\n",
            "u.c": "int main(int c, char **v) { int x[2] = {0}; return x[c * 7]; }\n",
        }, """
gcc -O2 -pthread -o a a.c; ./a
g++ -O2 -flto -pthread -o b b.cpp; ./b
gcc -static -o s a.c; ./s
gcc -g -fsanitize=undefined -o u u.c; ./u 2>&1 | grep 'out of bounds'
ar rcs lib.a a.c; nm b >/dev/null; objdump -d a | grep -c main >/dev/null; strip b; ./b
""", room=ROOM, wants=["thread\n190\nthread\n", "out of bounds", "190\n"])

    def test_sanitizers(self):
        # The leak checker traces its own process, which the debug profile opens.
        self.need("gcc")
        self.build({"u.c": "#include <stdlib.h>\nchar *volatile p;\n"
                           "int main(int c, char **v) { p = malloc(3); if (c > 1) free(p); if (c > 2) return p[0]; p = 0; return 0; }\n"}, """
gcc -g -fsanitize=address -o u u.c; ./u freed
(./u 2>&1 || true) | grep 'detected memory leaks'; (./u freed used 2>&1 || true) | grep ERROR
""", room=(*ROOM, "--profile", "debug"), wants=["detected memory leaks", "heap-use-after-free"])

    def test_make_with_jobs(self):
        self.need("make", "gcc")
        files = {f"f{i}.c": f"int f{i}(void) {{ return {i}; }}\n" for i in range(40)}
        files["main.c"] = "".join(f"int f{i}(void);" for i in range(40)) + "\n#include <stdio.h>\nint main(void) { printf(\"%d\\n\", " + \
            "+".join(f"f{i}()" for i in range(40)) + "); }\n"
        files["Makefile"] = ("objects := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(objects)\n\t$(CC) -o $@ $^\n"
                             "sub: ; $(MAKE) program\n%.o: %.c\n\t$(CC) -MMD -c -o $@ $<\n.PHONY: sub\n-include *.d\n")
        self.build(files, "make -s -j8 sub; ./program; make -j8 | tail -1; touch f3.c; make -sj8; ./program", wants=["780\n", "up to date"])

    def test_cmake(self):
        self.need("cmake", "ninja", "g++")
        self.build({
            "CMakeLists.txt": "cmake_minimum_required(VERSION 3.16)\nproject(p C CXX)\nfind_package(Threads REQUIRED)\n"
                              "add_library(l SHARED l.cpp)\nadd_executable(m m.cpp)\ntarget_link_libraries(m l Threads::Threads)\n"
                              "enable_testing()\nadd_test(NAME t COMMAND m)\ninstall(TARGETS m l)\n",
            "l.cpp": "#include <string>\nstd::string f() { return \"library\"; }\n",
            "m.cpp": "#include <iostream>\n#include <string>\nstd::string f();\nint main() { std::cout << f() << '\\n'; }\n",
        }, """
cmake -S . -B b1 -G 'Unix Makefiles' >/dev/null; cmake --build b1 -j4 >/dev/null; b1/m
cmake -S . -B b2 -G Ninja -DCMAKE_INSTALL_PREFIX=$HOME/p >/dev/null; cmake --build b2 >/dev/null
ctest --test-dir b2 | grep tests; cmake --install b2 >/dev/null; LD_LIBRARY_PATH=$HOME/p/lib $HOME/p/bin/m
""", room=ROOM, wants=["library\n100% tests passed", "library\n"])

    def test_sqlite(self):
        self.need("sqlite3")
        self.build({}, """
sqlite3 t.db 'pragma journal_mode=wal; pragma mmap_size=10000000; create table t(a integer primary key, b text); create index i on t(b);'
(for i in $(seq 2000); do echo "insert into t(b) values('row $i');"; done) | (echo 'begin;'; cat; echo 'commit;') | sqlite3 t.db
sqlite3 t.db 'vacuum; pragma integrity_check; select count(*) from t; select json_object(\'\\'\'x\'\\'\', 1);'
sqlite3 t.db '.backup copy.db'; cmp <(sqlite3 t.db .dump) <(sqlite3 copy.db .dump)
""", wants=["wal", "ok\n2000\n", '{"x":1}'])

    def test_go(self):
        self.need("go")
        self.build({
            "go.mod": "module example.com/m\n\ngo 1.19\n",
            "main.go": """package main

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
)

func main() {
	var group sync.WaitGroup
	total, lock := 0, sync.Mutex{}
	for i := 0; i < 100; i++ {
		group.Add(1)
		go func(i int) { defer group.Done(); lock.Lock(); total += i; lock.Unlock() }(i)
	}
	group.Wait()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		connection, _ := listener.Accept()
		io.WriteString(connection, "served")
		connection.Close()
	}()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(connection)
	out, _ := exec.Command("echo", "-n", "ran").Output()
	fmt.Println(total, string(body), string(out))
}
""",
            "main_test.go": 'package main\n\nimport "testing"\n\nfunc TestIt(t *testing.T) { t.Parallel() }\n',
        }, 'export PATH="$PATH:/usr/local/go/bin"; go build -o m .; ./m; go test ./...', room=(*ROOM, "--cpus", "2"),
            wants=["4950 served ran", "ok"])

    def test_java(self):
        self.need("java", "javac", "jar")
        self.build({"Main.java": """
import java.net.*; import java.nio.file.*; import java.util.concurrent.*; import java.util.stream.*;
public class Main {
  public static void main(String[] args) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(20);
    int sum = 0;
    for (Future<Integer> f : pool.invokeAll(IntStream.range(0, 100).mapToObj(i -> (Callable<Integer>) () -> i).collect(Collectors.toList()))) sum += f.get();
    pool.shutdown();
    System.out.println(sum + " " + IntStream.range(0, 100000).parallel().filter(i -> i % 3 == 0).count());
    try (ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress())) {
      Thread t = new Thread(() -> { try (Socket s = server.accept()) { s.getOutputStream().write("socket".getBytes()); } catch (Exception e) { throw new RuntimeException(e); } });
      t.start();
      try (Socket s = new Socket(server.getInetAddress(), server.getLocalPort())) { System.out.println(new String(s.getInputStream().readAllBytes())); }
      t.join();
    }
    Files.writeString(Path.of("f"), "x"); System.gc();
    System.out.println(new String(new ProcessBuilder("echo", "process").start().getInputStream().readAllBytes()).trim());
  }
}
"""}, """
javac -d classes Main.java; java -cp classes Main
jar --create --file m.jar --main-class Main -C classes .; java -XX:+UseG1GC -jar m.jar; java -XX:+UseZGC -Xmx256m -jar m.jar
jshell -s - <<< 'System.out.println("jshell " + 6 * 7)'
""", room=ROOM, wants=["4950 33334\nsocket\nprocess\n" * 3, "jshell 42"])

    def test_postgres(self):
        self.need("psql")
        if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
            frame.left_out("there is no initdb below /usr/lib/postgresql; the group test of tools/packages.txt has it")
        self.build({}, """
for folder in /usr/lib/postgresql/*/bin; do PATH=$folder:$PATH; done
initdb -D data -A trust >log 2>&1 || { cat log; exit 1; }
mkdir s
pg_ctl -D data -w -l server.log -o "-k $PWD/s -h 127.0.0.1" start >/dev/null || { cat server.log; exit 1; }
createdb -h $PWD/s shop
psql -qtA -h $PWD/s shop -c 'create table t as select generate_series(1,10000) as n; create index on t(n); analyze t'
psql -qtA -h 127.0.0.1 shop -c 'select sum(n) from t'
for i in 1 2 3 4; do psql -qtA -h 127.0.0.1 shop -c 'set max_parallel_workers_per_gather=2; select count(*) from t a join t b using (n)' & done; wait
psql -qtA -h $PWD/s shop -c 'vacuum full t' -c checkpoint
pg_dump -h 127.0.0.1 shop | grep -c '^[0-9]'
pg_ctl -D data -m fast stop >/dev/null; grep -i 'fatal\\|panic' server.log && exit 1; echo clean
""", room=ROOM, wants=["50005000\n" + "10000\n" * 5 + "clean"])

    def test_cargo_offline(self):
        for tool in ("cargo", "rustc"):
            self.need(tool)
        self.build({
            "Cargo.toml": '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nl = { path = "l" }\n',
            "src/main.rs": "use std::{sync::mpsc, thread};\nfn main() { let (s, r) = mpsc::channel();\n"
                           "for i in 0..20u32 { let s = s.clone(); thread::spawn(move || s.send(l::twice(i)).unwrap()); }\n"
                           "drop(s); println!(\"{}\", r.iter().sum::<u32>()); }\n",
            "l/Cargo.toml": '[package]\nname = "l"\nversion = "0.1.0"\nedition = "2021"\n',
            "l/src/lib.rs": "pub fn twice(x: u32) -> u32 { x * 2 }\n#[test]\nfn doubles() { assert_eq!(twice(2), 4); }\n",
        }, "cargo build --offline -q; target/debug/m; cargo run --release --offline -q; cargo test --offline -p l 2>&1 | grep 'test result' | head -1",
            room=ROOM, wants=["380\n380\n", "1 passed"])

    def test_python_venv_and_wheel(self):
        self.need("python3")
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tool/__init__.py", "def main(): print('the tool ran')\n")
            archive.writestr("tool-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n")
            archive.writestr("tool-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("tool-1.0.dist-info/entry_points.txt", "[console_scripts]\ntool = tool:main\n")
            archive.writestr("tool-1.0.dist-info/RECORD", "")
        self.build({"tool-1.0-py3-none-any.whl": wheel.getvalue()}, """
python3 -m venv v; . v/bin/activate
pip install -q --no-index ./tool-1.0-py3-none-any.whl; tool; pip list --format=freeze 2>/dev/null | grep tool
""", room=ROOM, wants=["the tool ran", "tool==1.0"])


if __name__ == "__main__":
    frame.main()
