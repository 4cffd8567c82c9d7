"""Options of the Spark session, without a Spark session."""

from pathlib import Path

import pytest

from pipelines.session import jvm_options, session_options
from schemas.settings import Settings

SOCKETS = "spark.python.unix.domain.socket.enabled"


def effective(data):
    """Every option of a job that starts its own JVM."""
    return session_options(Settings(), data, ()) | jvm_options(Settings(), data, "owner")


@pytest.mark.parametrize(
    ("bytes_long", "enabled"), [(20, "true"), (50, "true"), (51, "false"), (200, "false")]
)
def test_unix_sockets_are_used_only_where_their_path_fits_a_socket_address(bytes_long, enabled):
    data = Path("/" + "d" * (bytes_long - 1))
    assert effective(data)[SOCKETS] == enabled


def test_the_length_of_a_path_is_counted_in_bytes():
    assert effective(Path("/" + "ü" * 26))[SOCKETS] == "false"


def test_a_jvm_that_runs_out_of_memory_ends():
    assert "-XX:+ExitOnOutOfMemoryError" in effective(Path("/d"))["spark.driver.extraJavaOptions"]


def test_everything_spark_writes_is_in_the_data_directory():
    options = effective(Path("/data"))
    assert options["spark.local.dir"] == "/data/spark-tmp"
    assert options["spark.sql.warehouse.dir"].startswith("/data/")
    assert '"-Djava.io.tmpdir=/data/spark-tmp" ' in options["spark.driver.extraJavaOptions"]
