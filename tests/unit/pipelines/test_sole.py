import os
import time

import pytest

from pipelines.sole import sole_driver
from schemas.errors import AlreadyRunning


def test_a_second_driver_is_refused_with_the_pid_of_the_first(tmp_path):
    with sole_driver(tmp_path):
        with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}"), sole_driver(tmp_path):
            pass
        (tmp_path / "driver.lock").write_text("")
        with pytest.raises(AlreadyRunning, match="pid unknown"), sole_driver(tmp_path):
            pass
    with sole_driver(tmp_path):
        assert (tmp_path / "driver.lock").read_text() == str(os.getpid())


def test_who_takes_over_gets_the_lock_once_the_other_is_gone(tmp_path):
    stuck = sole_driver(tmp_path)
    stuck.__enter__()
    with sole_driver(tmp_path, take_over=True):
        (tmp_path / "driver.lock").write_text("")
        stuck.__exit__(None, None, None)
        deadline = time.monotonic() + 10
        while (tmp_path / "driver.lock").read_text() != str(os.getpid()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(AlreadyRunning), sole_driver(tmp_path):
            pass
    with sole_driver(tmp_path):
        pass
