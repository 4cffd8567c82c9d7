"""Only maximal envelopes, queued while no driver runs: one driver must get through all of them."""

import random
import threading
import time

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from farpost.answers import open_answers
from farpost.local import local_hub
from schemas.envelope import ENVELOPE_MAX, HEADER_SIZE, SIGNATURE_SIZE
from schemas.records import Kind
from schemas.settings import Settings
from tests import factories as make
from tests.integration.rig import Rig

SENDERS = 5
RECIPIENTS = 125
RSS_MAX_MB = 6_000
IN_FLIGHT = 64  # sends that wait for the log


class Memory:
    """The largest memory that a driver's processes had together, by kind, while it was watched."""

    def __init__(self, driver):
        self._driver = driver
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most_mb = {"all": 0, "driver": 0, "java": 0, "workers": 0}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.2):
            now = self._look()
            self.most_mb = {name: max(most, now[name]) for name, most in self.most_mb.items()}

    def _look(self):
        found = dict.fromkeys(self.most_mb, 0)
        for process in self._driver.tree():
            try:
                # What is shared does not count: a fork of the JVM has all of its pages at first.
                mb = process.memory_full_info().uss >> 20
                name = "java" if process.name() == "java" else "workers"
            except psutil.NoSuchProcess:
                continue
            name = "driver" if process.pid == self._driver.pid else name
            found[name] += mb
            found["all"] += mb
        return found


def envelopes(count):
    """In order in their lanes, each as large as one may be."""
    rng = random.Random(7)
    now_s = int(time.time())
    noise = rng.randbytes(2 * ENVELOPE_MAX)
    for number in range(count):
        lane, counter = number % (SENDERS * RECIPIENTS), 1 + number // (SENDERS * RECIPIENTS)
        start = rng.randrange(ENVELOPE_MAX)
        yield make.envelope(
            sender=make.device(1 + lane % SENDERS),
            recipient=make.device(100 + lane // SENDERS),
            n=number,
            counter=counter,
            created_at_s=now_s,
            expires_at_s=now_s + 5 * make.DAY_S,
            payload=noise[start : start + ENVELOPE_MAX - HEADER_SIZE - SIGNATURE_SIZE],
        )


def fill(hub, count):
    waiting = []
    with hub.feed() as feed:
        for data in envelopes(count):
            assert len(data) == ENVELOPE_MAX == 262_144
            waiting.append(feed.send(Kind.ENVELOPE, data))
            if len(waiting) >= IN_FLIGHT:
                waiting.pop(0).get(timeout=60)
        for future in waiting:
            future.get(timeout=60)


@pytest.mark.parametrize(
    "count", [2_500, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])]
)
def test_a_backlog_of_maximal_envelopes_is_caught_up_by_one_driver(count, tmp_path, capsys):
    with local_hub(Settings(), tmp_path / "broker", parts=("broker",)) as hub:
        began = time.monotonic()
        fill(hub, count)
        filled = time.monotonic()
        rig = Rig(tmp_path, tmp_path / "data", hub.bootstrap, conf="")
        try:
            driver = rig.driver
            ready = time.monotonic()
            with Memory(driver) as memory:
                rig.until_caught_up(count / 2)
            done = time.monotonic()
            assert rig.driver is driver
            assert rig.drivers == 1
            assert "the query ended" not in driver.said()
            rig.check(refold=False)
            checked = time.monotonic()
        finally:
            rig.clean()
    with capsys.disabled():
        print(
            f"\n{count} of 256 KB: queued in {filled - began:.0f} s, driver ready in"
            f" {ready - filled:.0f} s, caught up in {done - ready:.0f} s, checked in"
            f" {checked - done:.0f} s, MB at most {memory.most_mb}"
        )
    answers = open_answers(rig.data)
    [found] = answers.query(
        "select count(*) as stored, count(distinct message_id) as different,"
        " count(distinct recipient) as recipients from inbox where kind = 'stored'"
    ).to_pylist()
    assert found == {"stored": count, "different": count, "recipients": RECIPIENTS}
    sizes = {
        size
        for batch in answers.stream("select envelope from inbox")
        for size in pc.binary_length(batch.column("envelope").cast(pa.large_binary())).to_pylist()
    }
    assert sizes == {ENVELOPE_MAX}
    assert memory.most_mb["all"] < RSS_MAX_MB
