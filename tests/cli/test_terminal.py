"""Commands on a terminal: the shell, its size, raw mode and back; output that is made safe."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import support


class Terminal:
    """caisson on a terminal of its own, typed to and read from step by step."""

    def __init__(self, test, *arguments, size=(80, 24), env=None):
        self.test = test
        caller = test.caller
        full = {**caller.env, "TERM": "xterm-test", **(env or {})}
        command = caller.command(*arguments)
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(caller.home)
                os.execvpe(command[0], command, full)
            finally:
                os._exit(127)
        self.resize(*size)
        self.seen = b""
        self.status = None

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern, seconds=15):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen.decode(errors="replace")):
            left = end - time.monotonic()
            if left <= 0 or not self.read(left):
                self.test.fail(f"{pattern!r} did not come; seen: {self.seen!r}")
        text = self.seen.decode(errors="replace")
        match = re.search(pattern, text)
        self.seen = text[match.end():].encode()  # what came with it belongs to the next
        return match

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def local_modes(self):
        return termios.tcgetattr(self.master)[3]

    def finish(self, seconds=15):
        """The exit status; what is written until then is read."""
        end = time.monotonic() + seconds
        while self.status is None:
            while self.read(0.05):
                pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                os.close(self.master)
                self.test.fail(f"did not end; seen: {self.seen!r}")
        while self.read(0):
            pass
        modes = self.local_modes()
        os.close(self.master)
        return self.status, modes


class Shell(support.CallerTest):
    def test_a_shell_with_size_resize_and_status(self):
        terminal = Terminal(self, "shell", size=(91, 33))
        before = terminal.local_modes()
        terminal.type("stty size; echo T=$TERM; tty\n")
        terminal.expect(r"33 91")
        terminal.expect(r"T=xterm-test")
        terminal.resize(70, 20)
        os.kill(terminal.pid, signal.SIGWINCH)
        for _ in range(20):
            terminal.type("stty size\n")
            terminal.read(0.3)
            if b"20 70" in terminal.seen:
                break
        terminal.expect(r"20 70")
        terminal.type("exit 5\n")
        status, modes = terminal.finish()
        self.assertEqual(status, 5)
        self.assertEqual(modes, before, "the terminal's modes were not restored")

    def test_ctrl_c_goes_to_the_program_inside(self):
        terminal = Terminal(self, "shell", "--", "sh", "-c", "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.1; done")
        terminal.expect("up")
        self.assertFalse(terminal.local_modes() & termios.ISIG, "raw mode: the terminal must not make signals")
        terminal.type("\x03")
        terminal.expect("caught")
        self.assertEqual(terminal.finish()[0], 3)

    def test_escape_sequences_pass_because_the_terminal_is_the_users(self):
        terminal = Terminal(self, "shell", "--", "printf", r"\033]0;title\007\033[?1049hX")
        terminal.expect(r"\x1b\]0;title\x07\x1b\[\?1049hX")
        self.assertEqual(terminal.finish()[0], 0)

    def test_a_time_limit_restores_the_terminal(self):
        terminal = Terminal(self, "shell", "--timeout", "700ms")
        before = terminal.local_modes()
        status, modes = terminal.finish()
        self.assertEqual((status, modes), (124, before))

    def test_term_restores_the_terminal(self):
        terminal = Terminal(self, "shell", "--", "sh", "-c", "echo up; sleep 50")
        before = terminal.local_modes()
        terminal.expect("up")
        os.kill(terminal.pid, signal.SIGTERM)
        status, modes = terminal.finish()
        self.assertEqual(status, 130)
        self.assertTrue(modes & termios.ISIG and modes & termios.ECHO, (before, modes))

    def test_without_a_terminal_it_is_refused(self):
        self.assert_refused(self.caller.caisson("shell"), "needs a terminal", "caisson run")

    def test_a_strange_term_is_not_passed_on(self):
        terminal = Terminal(self, "shell", "--", "sh", "-c", "echo T=$TERM", env={"TERM": "x;$(id)"})
        terminal.expect("T=dumb")
        self.assertEqual(terminal.finish()[0], 0)

    def test_exec_with_a_terminal(self):
        name = self.run_in("-d", "--timeout", "1m", "--", "sleep", "50").out.strip()
        terminal = Terminal(self, "exec", "-t", name, "--", "sh", "-c", "stty size; exit 4", size=(66, 22))
        terminal.expect("22 66")
        self.assertEqual(terminal.finish()[0], 4)
        self.assertEqual(self.caller.caisson("kill", name).returncode, 0)


class RunOnTerminal(support.CallerTest):
    def test_dangerous_sequences_are_dropped_and_colours_kept(self):
        text = r"\033[31mred\033[0m \033]52;c;aGk=\007\033]0;title\007\033[6n\033[?1049hplain \302\23352nx"
        done = self.caller.on_pty("run", "--", "printf", text)
        self.assertIn(b"\x1b[31mred\x1b[0m ", done.stdout)
        self.assertIn(b"plain 52nx", done.stdout)
        for bad in (b"]52", b"]0;", b"[6n", b"1049", b"\xc2\x9b"):
            self.assertNotIn(bad, done.stdout)

    def test_in_a_pipe_output_is_as_it_was(self):
        self.assertEqual(self.run_in("--", "printf", r"\033]0;t\007").stdout, b"\x1b]0;t\x07")

    def test_input_from_the_terminal_only_when_asked(self):
        self.assertEqual(self.caller.on_pty("run", "--", "sh", "-c", "cat; echo end").returncode, 0)
        terminal = Terminal(self, "run", "-i", "--", "head", "-n", "1")
        terminal.type("typed\n")
        terminal.expect(r"typed\r\n[^$]*typed\r\n")
        self.assertEqual(terminal.finish()[0], 0)

    def test_ctrl_c_on_the_terminal_cancels(self):
        terminal = Terminal(self, "run", "--", "sh", "-c", "echo up; sleep 50")
        terminal.expect("up")
        terminal.type("\x03")
        self.assertEqual(terminal.finish()[0], 130)


support.main()
