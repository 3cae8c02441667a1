"""A person at a terminal, for the tests of what is done on one; not a test itself."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

import lib
from lib import check, rattan

LIMIT = 120  # seconds; for what must come
os.makedirs("work", exist_ok=True)
with open("rc", "w") as f:
    f.write("PS1='HOST> '\nPS2=\nset +o history\nbind 'set enable-bracketed-paste off'\nunset PROMPT_COMMAND\n")


class Terminal:
    """A person at a terminal with bash, whose prompt is 'HOST> '."""

    def __init__(self, size=(30, 100)):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir("work")
            os.execvpe("bash", ["bash", "--noprofile", "--rcfile", "../rc", "-i"], {**os.environ, "TERM": "dumb", "R": rattan})
        self.seen, self.at = "", 0
        self.resize(*size)
        self.expect("HOST> ")

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        self.type(text + "\r")

    def expect(self, what, why=None):
        """Until @what, a text or a pattern, is shown after what was last expected; the match."""
        end = time.monotonic() + LIMIT
        what = re.compile(re.escape(what)) if isinstance(what, str) else what
        while not (m := what.search(self.seen, self.at)):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                break
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                break
        check(m, why or f"shows {what.pattern}", repr(self.seen[self.at:][-300:]))
        if not m:
            lib.done()
        self.at = m.end()
        return m

    def command(self, text, why=None):
        """Runs it to the next prompt; what it has shown."""
        at = self.at
        self.line(text)
        self.expect("HOST> ", why or text)
        return self.seen[at:self.at]

    def modes(self):
        return termios.tcgetattr(self.fd)[:4]

    def end(self):
        self.line("exit")
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def until(cond, what):
    end = time.monotonic() + LIMIT
    while not cond():
        if time.monotonic() > end:
            check(False, what)
            lib.done()
        time.sleep(0.02)
