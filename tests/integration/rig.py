"""A broker that stays, drivers that come and go, and the proof after each of their deaths."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from farpost.local import local_hub
from farpost.parts import MARK, kill_all
from farpost.places import load_settings
from farpost.ports import choose
from farpost.proof import prove
from farpost.stack import driver_facts
from pipelines import kafka
from pipelines.manifest import ManifestStore
from schemas.settings import Settings
from schemas.topics import Topics
from tests.integration.dying_driver import set_trap
from tests.integration.traffic import Traffic

ROOT = Path(__file__).parents[2]
START_S = 120
CATCH_UP_S = 120

# Small numbers, so that timers fire while we look.
CONF = """
[log]
shards = 16
[policy]
expiry_remaining_min_s = 0
expiry_tolerance_s = 0
gap_timeout_ms = 1500
gap_max = 30
held_max = 20
recent_ids_max = 256
"""


@contextmanager
def rig_under_load(root, *, seed):
    """A broker with its own directory, so that all of `rig.data` is the driver's; and a load."""
    settings = Settings.parse(CONF, {})
    with local_hub(settings, root / "broker", parts=("broker",)) as hub:
        rig = Rig(root, root / "data", hub.bootstrap)
        rig.hub = hub
        rig.traffic = Traffic(rig, hub.log, seed=seed).start()
        try:
            yield rig
        finally:
            rig.clean()
            rig.traffic.stop()


class Driver:
    """One process of the job, with all that it starts."""

    def __init__(self, rig, *, take_over=False):
        self._rig = rig
        self.port = choose("driver")
        self.log = rig.root / f"driver-{rig.drivers:02d}.log"
        self._mark = f"faults-{os.getpid()} driver-{rig.drivers} {rig.data}"
        words = [str(rig.trap), str(rig.data), rig.bootstrap, str(self.port)]
        words += ["--conf", str(rig.conf)] + ["--take-over"] * take_over
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.dying_driver", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self._mark},
            )

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        return self.log.read_text(errors="replace")

    def status(self):
        return driver_facts(self.port)

    def until(self, happened, seconds=START_S):
        """Wait for something that this driver should do; it must not end before."""
        deadline = time.monotonic() + seconds
        while not happened():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"it did not happen (exit code {self.process.poll()}); {self.tail()}")
            time.sleep(0.05)
        return self

    def until_ready(self):
        return self.until(lambda: self.status().get("ready") is True)

    def until_ended(self, seconds=60):
        """The exit code, once it has ended by itself."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it goes on; {self.tail()}")

    def tail(self):
        return f"the end of {self.log}:\n{self.said()[-4000:]}"

    # -- its processes ------------------------------------------------------------------------

    def jvm(self):
        return next(p for p in self.tree() if p.name() == "java")

    def workers(self):
        """The Python processes under the JVM: the one that forks them first."""
        return [p for p in self.jvm().children(recursive=True) if p.name().startswith("python")]

    def tree(self):
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def kill(self):
        """Only the driver itself; what it had started must end without being told."""
        self.process.kill()
        self.process.wait()

    def pause(self):
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):  # an idle worker may end meanwhile
                process.suspend()

    def wake(self):
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def stop(self, seconds=60):
        self.process.terminate()
        return self.until_ended(seconds)

    def clean(self):
        """For the end of a test, whatever it did."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        kill_all(lambda mark: mark == self._mark)


class Rig:
    """One data directory and its drivers, on a broker that somebody else keeps running."""

    def __init__(self, root, data, bootstrap, *, conf=CONF):
        self.root = root
        self.data = data
        self.bootstrap = bootstrap
        self.hub = None
        self.traffic = None
        self._text = conf
        self.trap = root / "trap.json"
        self.store = ManifestStore(data / "manifests")
        self.drivers = 0
        self._started = []
        root.mkdir(exist_ok=True)
        self.cut(0)

    def cut(self, offsets):
        """From the next start on, batches have at most this many records; 0 = as usual."""
        self.conf = self.root / "farpost.toml"
        self.conf.write_text(
            f'kafka.bootstrap = "{self.bootstrap}"\njob.max_offsets_per_trigger = {offsets}\n'
            + self._text
        )
        self.settings = load_settings(self.conf, {})
        self._topics = Topics(self.settings.kafka.topic_prefix)

    def start(self, **options):
        """A driver that is on its way."""
        self.drivers += 1
        driver = Driver(self, **options)
        self._started.append(driver)
        return driver

    @property
    def driver(self):
        """The driver that runs; one is started if the last one died."""
        running = [one for one in self._started if one.process.poll() is None]
        return (running[-1] if running else self.start()).until_ready()

    def clean(self):
        for driver in self._started:
            driver.clean()

    # -- faults -------------------------------------------------------------------------------

    def spring(self, step, number=signal.SIGKILL):
        """Let the driver kill itself, or stop, at its next commit's `step`; returns it."""
        driver = self.driver
        set_trap(self.trap, step, number)
        if number == signal.SIGKILL:
            assert driver.until_ended() == -signal.SIGKILL
        else:
            root = psutil.Process(driver.pid)
            driver.until(lambda: root.status() == psutil.STATUS_STOPPED)
        return driver

    def batches(self, count):
        """Let the driver commit this many manifests more; returns it."""
        driver = self.driver
        goal = self.store.newest().number + count
        return driver.until(lambda: self.store.newest().number >= goal)

    def checkpoint(self):
        return self.data / "checkpoints" / self.store.newest().checkpoint / "spark"

    # -- proof --------------------------------------------------------------------------------

    def until_caught_up(self, seconds=CATCH_UP_S):
        """Wait until all that is in the log now is committed; a driver is started if none runs."""
        driver = self.driver
        ends = self.log_ends()
        driver.until(lambda: _reaches(self.store.newest(), ends), seconds)

    def check(self, *, refold=True):
        """All is committed, and right, row by row; every manifest was announced."""
        with self.traffic.paused() if self.traffic else nullcontext():
            self.until_caught_up()
            proof = prove(self.data, self.settings, refold=refold)
            self._check_marks(self.store.newest().number)
        figures = proof.verdict.figures()
        assert figures["problems"] == [], f"{figures}\n{self.driver.tail()}"
        assert figures["lost"] == figures["duplicate_positions"] == figures["inversions"] == 0
        assert proof.verdict.conserved
        assert proof.notes == ()
        names = {finding.name for finding in proof.verdict.findings}
        assert {"log", "refold"} - names == (set() if refold else {"refold"})

    def _check_marks(self, newest):
        records = (msgspec.json.decode(one.value) for one in self.read(self._topics.dispatch))
        marks = {said["manifest"] for said in records if said["kind"] == "committed"}
        assert set(range(1, newest)) <= marks, "a manifest was never announced"

    # -- the log ------------------------------------------------------------------------------

    def check_promises(self):
        """The log still holds everything that it had acknowledged when this was asked."""
        promised = self.traffic.promised()
        held = {
            (one.partition, one.offset): hashlib.sha256(one.value).digest()
            for one in self.read(self._topics.inbound)
        }
        assert promised
        assert {place: held.get(place) for place in promised} == promised

    def log_ends(self):
        client = kafka.consumer(self.settings, self.bootstrap)
        try:
            return kafka.end_offsets(client, self._topics.inbound)
        finally:
            client.close()

    def read(self, topic):
        """Every record of a topic, as an independent consumer has them."""
        from kafka import TopicPartition

        client = kafka.consumer(self.settings, self.bootstrap)
        try:
            missing = {
                TopicPartition(topic, partition): end
                for partition, end in kafka.end_offsets(client, topic).items()
                if end
            }
            client.assign(list(missing))
            client.seek_to_beginning(*missing)
            while missing:
                for place, records in client.poll(timeout_ms=1_000).items():
                    yield from records
                    if client.position(place) >= missing.get(place, 0):
                        missing.pop(place, None)
        finally:
            client.close()


def _reaches(manifest, ends):
    return manifest is not None and all(manifest.next_offsets[p] >= end for p, end in ends.items())
