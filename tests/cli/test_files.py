"""Grants, copies and results: what may go in and out, and what a hostile sandbox cannot make us do."""
import os
import socket

import support


class Grants(support.CallerTest):
    def setUp(self):
        self.folder = self.caller.mkdir(f"files-{self.id().rsplit('.', 1)[1]}")
        self.caller.write(self.folder / "script.py", "print('ran')\n", 0o644)

    def test_ro_of_a_folder_is_the_workspace(self):
        done = self.run_in("--ro", ".", "--", "python3", "script.py", cwd=self.folder)
        self.assertEqual((done.returncode, done.out), (0, "ran\n"), done)
        done = self.run_in("--ro", ".", "--", "sh", "-c", "pwd; echo x > new", cwd=self.folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(os.listdir(self.folder), ["script.py"])

    def test_rw_writes_belong_to_the_caller(self):
        done = self.run_in("--rw", ".", "--", "sh", "-c", "echo new > new; mkdir d; rm script.py", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(sorted(os.listdir(self.folder)), ["d", "new"])
        self.assertEqual((self.folder / "new").stat().st_uid, self.caller.uid)

    def test_copy_leaves_the_source_alone(self):
        done = self.run_in("--copy", f"{self.folder}:/home/user/work", "--", "sh", "-c",
                           "cd work && python3 script.py && rm script.py && ls")
        self.assertEqual((done.returncode, done.out), (0, "ran\n"), done)
        self.assertEqual(os.listdir(self.folder), ["script.py"])

    def test_copy_keeps_links_modes_and_trees(self):
        os.symlink("/etc/hostname", self.folder / "link")
        self.caller.own(self.folder / "link")
        for path in ("a", "a/b"):
            (self.folder / path).mkdir()
            self.caller.own(self.folder / path)
        self.caller.write(self.folder / "a/b/tool", "#!/bin/sh\necho tool\n", 0o755)
        for i in range(100):
            self.caller.write(self.folder / f"a/{i}", f"{i}\n" * 1000, 0o644)
        done = self.run_in("--copy", self.folder, "--", "sh", "-c", "a/b/tool; readlink link; cat a/[0-9]* | wc -l; echo x > y")
        self.assertEqual((done.returncode, done.out.split()), (0, ["tool", "/etc/hostname", "100000"]), done)

    def test_copies_and_results_keep_times(self):
        (self.folder / "d").mkdir()
        self.caller.own(self.folder / "d")
        self.caller.write(self.folder / "d/f", "x", 0o644)
        then = 1_600_000_000_123_456_789
        home = self.caller.mkdir("times-" + self.kind)
        times = {"d/f": then, "d": then - 10**9, "script.py": -5 * 10**9, ".": then + 10**9}
        for name, time in times.items():  # what lies in a folder before the folder
            os.utime(self.folder / name, ns=(time, time))
        done = self.run_in("--copy", f"{self.folder}:/home/user/in", "--out", "/home/user/in:out",
                           "--out", "/home/user/in/d/f:single", "--", "find", "in", "-printf", "%P %T@\n",
                           cwd=home)
        self.assertEqual(done.returncode, 0, done)
        seen = dict(line.split(" ") for line in done.out.splitlines() if line[0] != " ")
        self.assertEqual(seen["d/f"], "1600000000.1234567890")
        self.assertEqual(seen["d"], "1599999999.1234567890")
        self.assertEqual(seen["script.py"], "-5.0000000000")
        self.assertIn(" 1600000001.1234567890\n", done.out)
        for name, time in times.items():
            self.assertEqual((home / "out" / name).stat().st_mtime_ns, time, name)
        self.assertEqual((home / "single").stat().st_mtime_ns, then)

    def test_a_copy_into_a_folder_of_somebody_elses_leaves_its_time(self):
        os.utime(self.folder / "script.py", (1_500_000_000, 1_500_000_000))
        os.utime(self.folder, (10**9, 10**9))
        done = self.run_in("--copy", f"{self.folder}:/tmp", "--", "stat", "-c", "%Y", "/tmp", "/tmp/script.py")
        self.assertEqual(done.returncode, 0, done)
        folder, file = map(int, done.out.split())
        self.assertEqual(file, 1_500_000_000)
        # As an ordinary user what the wall made is the command's own.
        (self.assertGreater if self.kind == "root" else self.assertEqual)(folder, 10**9)

    def test_copy_that_does_not_fit_is_an_error(self):
        self.caller.write(self.folder / "big", b"x" * 3_000_000)
        done = self.run_in("--disk", "1MiB", "--copy", self.folder, "--", "true")
        self.assert_refused(done, "copy", "No space left")

    def test_single_files(self):
        done = self.run_in("--ro", f"{self.folder}/script.py:/opt/tool.py", "--", "python3", "/opt/tool.py")
        self.assertEqual((done.returncode, done.out), (0, "ran\n"), done)

    def test_what_cannot_be_granted(self):
        self.assert_refused(self.run_in("--ro", "/no/such/path", "--", "true"), "/no/such/path")
        self.assert_refused(self.run_in("--ro", "/dev/null", "--", "true"), "/dev")
        self.assert_refused(self.run_in("--rw", "/proc/self", "--", "true"), "/proc")
        os.mkfifo(self.folder / "pipe")
        self.caller.own(self.folder / "pipe")
        self.assert_refused(self.run_in("--ro", self.folder / "pipe", "--", "true"), "is a pipe")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.folder / "socket"))
        self.caller.own(self.folder / "socket")
        self.assert_refused(self.run_in("--ro", self.folder / "socket", "--", "true"), "is a socket")
        listener.close()
        os.symlink("/etc", self.folder / "link")
        self.caller.own(self.folder / "link")
        self.assert_refused(self.run_in("--ro", self.folder / "link", "--", "true"), "symbolic link", "/etc")
        self.assert_refused(self.run_in("--ro", self.folder / "link" / "hosts", "--", "true"), "symbolic link")

    def test_the_hint_names_the_file_that_was_not_visible(self):
        done = self.run_in("--", "python3", "script.py", cwd=self.folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("add --ro .\n", done.err)
        self.assertNotIn("add --ro", self.run_in("--ro", ".", "--", "sh", "-c", "exit 1", "script.py", cwd=self.folder).err)
        self.assertNotIn("add --ro", self.run_in("--", "ls", "/nothing/here", cwd=self.folder).err)
        self.assertNotIn("add --ro", self.run_in("--", "true", "script.py", cwd=self.folder).err)


class Results(support.CallerTest):
    def setUp(self):
        self.folder = self.caller.mkdir(f"out-{self.id().rsplit('.', 1)[1]}")

    def out(self, mapping, script, *more):
        return self.run_in("--out", mapping, *more, "--", "sh", "-c", script, cwd=self.folder)

    def test_a_file_comes_home(self):
        done = self.out("/home/user/report.html:./report.html", "echo done > report.html")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual((self.folder / "report.html").read_text(), "done\n")
        self.assertEqual((self.folder / "report.html").stat().st_uid, self.caller.uid)

    def test_a_file_into_a_folder_and_a_tree(self):
        self.assertEqual(self.out("/home/user/f:.", "echo 1 > f").returncode, 0)
        self.assertEqual((self.folder / "f").read_text(), "1\n")
        done = self.out("/home/user/d:tree", "mkdir -p d/e; echo 2 > d/e/g; ln -s e/g d/l")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual((self.folder / "tree/l").read_text(), "2\n")

    def test_a_result_that_is_not_there(self):
        done = self.out("/home/user/none:x", "true")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("/home/user/none", done.err)
        # A program that failed keeps its own status.
        self.assertEqual(self.out("/home/user/none:x", "exit 9").returncode, 9)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_destination_that_cannot_be_is_found_before_the_run(self):
        self.assert_refused(self.out("/home/user/x:no/such/folder", "echo ran"), "no/such")

    def test_links_are_neither_followed_nor_left_to_lead_away(self):
        victim = self.caller.write(self.folder / "victim", "safe")
        os.symlink("victim", self.folder / "r")
        self.caller.own(self.folder / "r")
        self.assertEqual(self.out("/home/user/r:r", "echo evil > r").returncode, 0)
        self.assertEqual(victim.read_text(), "safe")
        self.assertFalse((self.folder / "r").is_symlink())
        done = self.out("/home/user/l:l", "ln -s /etc/passwd l")
        self.assertEqual(done.returncode, 125, done)
        self.assertIn("symbolic link", done.err)
        done = self.out("/home/user/d:d", "mkdir d; ln -s /etc/passwd d/a; ln -s ../.. d/b; echo ok > d/c")
        self.assertEqual(sorted(os.listdir(self.folder / "d")), ["c"], done)

    def test_a_link_of_the_host_below_the_destination_is_no_way_out(self):
        elsewhere = self.caller.mkdir("elsewhere-" + self.kind)
        (self.folder / "d").mkdir()
        self.caller.own(self.folder / "d")
        os.symlink(elsewhere, self.folder / "d" / "sub")
        self.caller.own(self.folder / "d" / "sub")
        done = self.out("/home/user/d:d", "mkdir -p d/sub; echo evil > d/sub/f")
        self.assertEqual(done.returncode, 125, done)
        self.assertEqual(os.listdir(elsewhere), [])

    def test_odd_files_are_refused_and_set_id_bits_dropped(self):
        self.assertEqual(self.out("/home/user/p:p", "mkfifo p").returncode, 125)
        done = self.out("/home/user/x:x", "echo x > x; chmod 6755 x")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual((self.folder / "x").stat().st_mode & 0o7000, 0)

    def test_a_sparse_giant_costs_the_host_nothing(self):
        done = self.out("/home/user/x:x", "truncate -s 100M x")
        self.assertEqual(done.returncode, 0, done)
        info = (self.folder / "x").stat()
        self.assertEqual(info.st_size, 100 << 20)
        self.assertLess(info.st_blocks * 512, 1 << 20)
        done = self.out("/home/user/y:y", "truncate -s 4G y")
        self.assertEqual(done.returncode, 125, done)
        self.assertEqual(sorted(os.listdir(self.folder)), ["x"])


support.main()
