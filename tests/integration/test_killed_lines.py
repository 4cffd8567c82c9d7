import pytest

from tests.unit.pipelines.killing import kill_at_lines


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_a_driver_killed_at_a_hundred_lines_loses_and_repeats_nothing(tmp_path, seed):
    kill_at_lines(tmp_path, seed, kills=100)
