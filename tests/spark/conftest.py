"""One Spark session for all tests of this directory: it takes seconds to start."""

import pytest

from tests.sessions import spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session
