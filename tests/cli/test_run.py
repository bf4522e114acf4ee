"""caisson run: what the program is, sees and gives back; exit statuses; what is refused."""
import json
import os

import support


class Run(support.CallerTest):
    def test_output_and_status_are_the_programs(self):
        done = self.run_in("--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((done.returncode, done.out, done.err), (7, "out\n", "err\n"), done)

    def test_json_is_one_line_with_the_result(self):
        result = self.verdict("--", "python3", "-c", "print(6*7)")
        self.assert_ended(result, "exited", 0, code=0)
        self.assertEqual(result["stdout"], "42\n")
        self.assertEqual(result["stderr"], "")
        self.assertEqual(result["wall"], "namespace")
        self.assertEqual(set(result["held"]), {"cpus", "memory", "pids", "disk", "inodes", "open_files", "output",
                                               "timeout", "cpu_time", "io_read", "io_write", "io_read_ops", "io_write_ops"})
        self.assertEqual(result["usage"]["bytes_out"], 3)
        self.assertGreater(result["usage"]["elapsed_us"], 0)

    def test_status_of_a_signal(self):
        result = self.verdict("--", "sh", "-c", "kill -SEGV $$")
        self.assert_ended(result, "signaled", 128 + 11, signal=11, name="SIGSEGV")
        self.assertIn("SIGSEGV", self.run_in("--", "sh", "-c", "kill -SEGV $$").err)

    def test_no_descriptor_of_ours_is_a_way_out(self):
        # What the command's process had in hand must be gone before its directory is entered.
        for number in range(3, 40):
            done = self.run_in("--workdir", f"/proc/self/fd/{number}", "--", "stat", "/")
            self.assertIn(done.returncode, (126, 127), done)
            self.assertEqual(done.out, "")
            self.assertIn(f"working directory /proc/self/fd/{number}", done.err)

    def test_a_program_that_is_not_there(self):
        done = self.run_in("--", "no-such-program")
        self.assertEqual(done.returncode, 127, done)
        self.assertIn("no-such-program", done.err)

    def test_a_program_that_cannot_be_started(self):
        done = self.run_in("--", "/etc/hosts")
        self.assertEqual(done.returncode, 126, done)
        self.assertIn("/etc/hosts", done.err)

    def test_arguments_arrive_as_they_are(self):
        words = ["", "a b", "*", "--json", "-x", "--", "\u00e4", "'\"\\"]
        done = self.run_in("--json", "--", "python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
        self.assertEqual(json.loads(done.json()["stdout"]), words)

    def test_options_end_where_the_program_begins(self):
        self.assertEqual(self.run_in("echo", "--json", "-d").out, "--json -d\n")

    def test_nothing_of_the_callers_environment_is_inherited(self):
        done = self.run_in("--env", "GIVEN=yes=no", "--", "env", env={"SECRET": "sesame"})
        self.assertNotIn("sesame", done.out)
        self.assertIn("GIVEN=yes=no\n", done.out)
        self.assertIn("PATH=", done.out)

    def test_input_from_a_pipe_reaches_the_program(self):
        data = os.urandom(3_000_000)
        done = self.run_in("--", "sha256sum", input=data)
        import hashlib
        self.assertEqual(done.out.split()[0], hashlib.sha256(data).hexdigest(), done)

    def test_input_that_is_never_read(self):
        self.assertEqual(self.run_in("--", "true", input=b"x" * 5_000_000).returncode, 0)

    def test_input_from_a_file_option(self):
        path = self.caller.write("in.txt", "from a file")
        self.assertEqual(self.run_in("--input", path, "--", "cat", input=b"not this").out, "from a file")

    def test_much_output_arrives_whole(self):
        done = self.run_in("--", "sh", "-c", "head -c 12000000 /dev/zero")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(len(done.stdout), 12_000_000)

    def test_output_that_is_no_text_is_base64(self):
        result = self.verdict("--", "printf", r"\377\376")
        self.assertEqual((result["stdout"], result["stdout_encoding"]), ("//4=", "base64"))

    def test_a_reader_that_has_enough(self):
        process = self.caller.popen("run", "--", "yes", stdout=-1, stderr=-1, stdin=-3)
        process.stdout.read(10)
        process.stdout.close()
        self.assertEqual(process.wait(20), 141)
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()

    def test_user_workdir_and_hostname(self):
        script = "id -u; pwd; hostname 2>/dev/null || cat /etc/hostname"
        done = self.run_in("--workdir", "/tmp", "--hostname", "box", "--", "sh", "-c", script)
        uid, workdir, hostname = done.out.split()
        self.assertEqual((uid, workdir, hostname), ("1000", "/tmp", "box"), done)

    def test_nothing_of_the_host_is_there(self):
        # Where the caller has one id alone the image's own shadow is readable: it has no passwords.
        done = self.run_in("--", "cat", "/etc/shadow")
        if done.returncode == 0:
            self.assertTrue(all(line.split(":")[1] in ("*", "!") for line in done.out.splitlines()), done)
        self.assertEqual(self.run_in("--", "ls", "/home").out.split(), ["user"])
        done = self.run_in("--", "python3", "-c", "import socket; socket.create_connection(('1.1.1.1', 80), 2)")
        self.assertNotEqual(done.returncode, 0)

    def test_the_verdict_file_is_beside_a_normal_run(self):
        path = self.caller.folder / "home" / "verdict.json"
        done = self.run_in("--verdict-file", path, "--", "sh", "-c", "echo hi; exit 3")
        self.assertEqual((done.returncode, done.out), (3, "hi\n"))
        verdict = json.loads(path.read_text())
        self.assertEqual(verdict["verdict"], {"kind": "exited", "code": 3})
        self.assertNotIn("stdout", verdict)

    def test_the_host_image_is_named(self):
        self.assertEqual(self.verdict("--image", "host", "--", "true")["image"], "host")

    def test_the_remark_about_the_host_image_is_for_terminals_alone(self):
        self.assertEqual(self.run_in("--", "true").err, "")
        self.assertIn(b"using the host image", self.caller.on_pty("run", "--", "true").stdout)


class Refusals(support.CallerTest):
    def test_wrong_options_are_named_and_a_near_one_suggested(self):
        self.assert_refused(self.run_in("--memroy", "1", "--", "true"), "--memroy", "did you mean '--memory'")
        self.assert_refused(self.run_in("--frobnicate", "--", "true"), "--frobnicate", "caisson run --help")
        self.assert_refused(self.run_in("--memory"), "--memory needs a value")
        self.assert_refused(self.run_in("--detach=yes", "--", "true"), "--detach takes no value")

    def test_wrong_values_name_the_key_what_was_found_and_what_is_allowed(self):
        for arguments, words in (
            (["--memory", "lots"], ["--memory", "lots", "512MiB"]),
            (["--memory", "1KiB"], ["limits.memory", "8MiB"]),
            (["--pids", "0"], ["--pids", "0"]),
            (["--timeout", "5"], ["--timeout", "5"]),
            (["--disk", "1GiB"], ["limits.disk", "limits.memory"]),
            (["--user", "a b"], ["user", "a b"]),
            (["--workdir", "relative"], ["workdir", "relative"]),
            (["--env", "=2"], ["--env", "=2"]),
            (["--env", "NOVALUE"], ["--env", "NOVALUE"]),
            (["--privileges", "root"], ["--privileges", "root", "sudo"]),
            (["--wall", "brick"], ["--wall", "brick", "namespace"]),
            (["--wall", "gvisor"], ["wall"]),
            (["--net", "allow:*"], ["--net", "allow-public"]),
            (["--net", "example.com"], ["--net", "deny", "allow:HOST"]),
            (["--image", "NOT AN IMAGE"], ["image"]),
            (["--image", "no-such-image"], ["no-such-image"]),
            (["--profile", "mine"], ["--profile", "browser"]),
            (["--on-refusal", "log"], ["--on-refusal", "continue or kill"]),
            (["--ro", "/tmp:relative"], ["--ro", "relative"]),
            (["--ro", "/tmp:/proc/x"], ["--ro", "/proc/x"]),
            (["--out", "/home/user/x"], ["--out", "PATH:DEST"]),
            (["-d", "--out", "/home/user/x:y"], ["--out", "--detach"]),
        ):
            with self.subTest(arguments=arguments):
                self.assert_refused(self.run_in(*arguments, "--", "true"), *words)

    def test_nothing_to_run(self):
        self.assert_refused(self.run_in(), "no program")
        self.assert_refused(self.run_in("--"), "no program")

    def test_with_json_the_refusal_is_one_line_too(self):
        done = self.run_in("--json", "--memory", "1KiB", "--", "true")
        self.assertEqual(done.returncode, 125)
        self.assertEqual(done.json()["verdict"]["kind"], "sandbox_error")
        self.assertIn("limits.memory", done.json()["verdict"]["message"])

    def test_a_verdict_file_that_cannot_be(self):
        self.assert_refused(self.run_in("--verdict-file", "/no/such/folder/v", "--", "true"), "--verdict-file")

    def test_unknown_commands(self):
        self.assert_refused(self.caller.caisson("rnu"), "did you mean 'run'")
        self.assert_refused(self.caller.caisson("image"), "pull, import, export, build, ls, inspect, tag, rm, gc")
        self.assertEqual(self.caller.caisson().returncode, 125)

    def test_the_run_directory_must_be_the_callers_own(self):
        folder = self.caller.mkdir("open-run", 0o777)
        self.assert_refused(self.run_in("--", "true", env={"CAISSON_RUN_DIR": str(folder)}), "CAISSON_RUN_DIR")


class Spec(support.CallerTest):
    SPEC = """
command: [sh, -c, 'echo "$GREETING" $(pwd)']
env: {GREETING: hello}
workdir: /tmp
limits: {memory: 128MiB, disk: 16MiB, timeout: 5s, cpus: 0.5}
"""

    def test_a_spec_file_runs(self):
        path = self.caller.write("spec.yaml", self.SPEC)
        self.assertEqual(self.run_in("--spec", path).out, "hello /tmp\n")
        self.assertEqual(self.run_in("-f", "-", input=self.SPEC.encode()).out, "hello /tmp\n")

    def test_options_win_over_the_file(self):
        path = self.caller.write("spec.yaml", self.SPEC)
        self.assertEqual(self.run_in("-f", path, "--env", "GREETING=bye", "-w", "/").out, "bye /\n")
        self.assertEqual(self.run_in("-f", path, "--", "echo", "other").out, "other\n")

    def test_printing_and_reading_gives_the_same(self):
        arguments = ["--memory", "100MiB", "--disk", "1MiB", "--env", "A=b c", "--ro", self.caller.home,
                     "--timeout", "unlimited", "--cpus", "0.25", "--on-refusal", "kill", "--", "echo", "x: y", "#"]
        first = self.run_in("--print-spec", *arguments)
        self.assertEqual(first.returncode, 0, first)
        path = self.caller.write("printed.yaml", first.stdout)
        self.assertEqual(self.run_in("--print-spec", "-f", path).out, first.out)

    def test_json_is_read_by_its_name(self):
        path = self.caller.write("spec.json", json.dumps({"command": ["echo", "from json"]}))
        self.assertEqual(self.run_in("-f", path).out, "from json\n")

    def test_a_small_memory_takes_the_default_disk_with_it(self):
        self.assertIn("disk: 32MiB", self.run_in("--print-spec", "--memory", "64MiB", "--", "true").out)

    def test_faults_name_file_key_found_and_allowed(self):
        for text, words in (
            ("commnd: [x]", ["commnd", "command"]),
            ("limits: {memory: 12 bananas}", ["limits.memory", "12 bananas"]),
            ("limits: {disk: 1GiB, memory: 512MiB}", ["limits.disk"]),
            ("command: 5", ["command"]),
            ("network: {rules: [{hosts: [\"*\"]}]}", ["network.rules[0].hosts[0]", "allow-public"]),
            ("files: [{from: /tmp, to: ../x}]", ["files", "../x"]),
            ("a: [", ["spec.yaml"]),
        ):
            with self.subTest(text=text):
                path = self.caller.write("spec.yaml", text)
                self.assert_refused(self.run_in("-f", path, "--", "true"), *words)
        self.assert_refused(self.run_in("-f", "/no/such.yaml"), "--spec", "/no/such.yaml")


support.main()
