"""Runs a command in a terminal of its own and types answers to its questions.

Arguments: a JSON list of [question, answer] pairs, then the command. Prints everything the terminal showed, and exits as the
command did."""

import json
import os
import pty
import select
import sys
import time

answers = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])

shown = b""
seen = 0
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    ready, _, _ = select.select([terminal], [], [], 0.1)
    if ready:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    if answers and answers[0][0].encode() in shown[seen:]:
        seen = len(shown)
        # Whoever asks has turned echoing off by then.
        time.sleep(0.05)
        os.write(terminal, answers.pop(0)[1].encode() + b"\n")
else:
    os.kill(pid, 9)

_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(shown)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(status) & 255)
