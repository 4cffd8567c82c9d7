"""Kill drivers and look at what they leave."""

import random
import signal
import subprocess
import sys

import msgspec

from pipelines.manifest import ManifestStore
from tests.batches import actual, expected, order_of

LINES = 4_000  # of a start, about 1,400; the rest is in a commit or two


def orders(records):
    return {record for record in records if as_json(record)["kind"] == "order"}


def orders_below(next_offsets):
    places = [(p, offset) for p, last in enumerate(next_offsets) for offset in range(last)]
    return {order for place in places if (order := order_of(*place)) is not None}


def as_json(record):
    return msgspec.json.decode(record)


def run_victim(data, seed, goal, kill=""):
    """True if it reached the goal, False if it was killed on the way."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.unit.pipelines.victim",
            str(data),
            str(seed),
            str(goal),
            kill,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0


def check_end(data, goal):
    assert actual(data) == expected([goal, goal])
    manifest = ManifestStore(data / "manifests").newest()
    assert manifest.totals["records"] == 2 * goal
    sent = (data / "dispatch").read_bytes().splitlines()
    assert orders(sent) == orders_below([goal, goal])
    assert as_json(sent[-1])["manifest"] == manifest.number


def kill_at_lines(data, seed, kills):
    rng = random.Random(seed)
    goal = killed = 0
    while killed < kills:
        goal += 10
        line = rng.randrange(1, LINES)
        killed += not run_victim(data, rng.randrange(1_000_000), goal, f"line {line}")
    assert run_victim(data, 99, goal + 10)
    check_end(data, goal + 10)
