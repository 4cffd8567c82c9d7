"""A Spark session for tests, as the job has it with the sink for clusters."""

from contextlib import contextmanager

from farpost.jars import jars
from pipelines.session import start_session
from schemas.settings import Settings

CONF = """
[job]
sink = "spark"
master = "local[2]"
driver_memory_mb = 1024
"""


@contextmanager
def spark_session(data):
    """Once in the life of a process; when it ends, its JVM is gone."""
    session = start_session(Settings.parse(CONF, {}), data, jars("spark"), "tests")
    session.sparkContext.setLogLevel("ERROR")
    gateway = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
