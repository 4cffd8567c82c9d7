"""A supervisor in a process of its own, to be killed; without the driver unless asked for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from farpost.parts import kill_leftovers
from farpost.places import Layout
from farpost.state import read_state, running_pid

ROOT = Path(__file__).parents[2]
MAIN = """
import sys
from pathlib import Path
from farpost.places import load_settings
from farpost.stack import Wish, up
from schemas.errors import DeliveryError
try:
    up(load_settings(), Path(sys.argv[1]),
       Wish(ports={"broker": int(sys.argv[2])}, parts=sys.argv[3].split(",")),
       report=lambda text: print(text, flush=True))
except DeliveryError as error:
    print(f"error: {error}", flush=True)
    sys.exit(1)
"""


class StackProcess:
    """Starts the stack on a directory and knows all of its processes and ports."""

    def __init__(self, data, *, parts="broker", broker_port=0, environ=None):
        self.data = data
        self.layout = Layout(data)
        data.mkdir(exist_ok=True)
        self.output = data.with_suffix(".out")
        before = read_state(self.layout).run_id
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN, str(data), str(broker_port), parts],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
            )
        self._before = before

    def said(self):
        return self.output.read_text()

    def state(self):
        return read_state(self.layout)

    def until(self, happened, seconds=60):
        deadline = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < deadline, f"it did not happen; said: {self.said()}"
            time.sleep(0.05)

    def until_ready(self, seconds=120):
        def ready():
            assert self.process.poll() is None, f"it ended: {self.said()}"
            state = self.state()
            return state.run_id != self._before and state.state == "ready"

        self.until(ready, seconds)
        return self

    def bootstrap(self):
        return f"127.0.0.1:{self.state().ports['broker']}"

    def end(self, number=signal.SIGTERM):
        """Send a signal and wait for the supervisor; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=90)

    def remains(self):
        """Every process that names the directory, in its arguments or its mark, except this one."""
        found = []
        for process in psutil.process_iter():
            try:
                words = " ".join([*process.cmdline(), process.environ().get("FARPOST_RUN", "")])
                if str(self.data) in words and process.status() != psutil.STATUS_ZOMBIE:
                    found.append((process.pid, words[:120]))
            except psutil.Error:
                continue
        return found

    def sockets(self):
        """The ports of the stack on which somebody still listens."""
        listening = {
            one.laddr.port for one in psutil.net_connections("tcp") if one.status == "LISTEN"
        }
        return listening & set(self.state().ports.values())

    def clean(self):
        """For the end of a test, whatever it did."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        kill_leftovers(self.data)
        assert running_pid(self.layout) is None
