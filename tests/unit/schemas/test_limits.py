import pytest

from schemas.errors import BadSettings
from schemas.limits import RANGES, TIME_MS_MAX, check_range, wrong


@pytest.mark.parametrize("key", RANGES)
def test_both_ends_of_a_range_are_allowed_and_nothing_beyond(key):
    least, most = RANGES[key]
    assert least < most
    assert check_range(key, least) == least
    assert check_range(key, most) == most
    for value in (least - 1, most + 1):
        with pytest.raises(BadSettings) as caught:
            check_range(key, value)
        expected = f"{key} = {value}: must be a whole number from {least} to {most}"
        assert str(caught.value) == expected


@pytest.mark.parametrize("value", [True, 5.0, "5", None, [5]])
def test_only_a_whole_number_is_a_number(value):
    with pytest.raises(BadSettings, match="must be a whole number"):
        check_range("log.shards", value)


def test_the_sentence_names_where_the_value_came_from():
    assert wrong("a.b", "x", "a y", origin="FARPOST_A_B") == (
        "a.b = 'x' (from FARPOST_A_B): must be a y"
    )


def test_a_long_value_is_cut():
    sentence = wrong("a.b", "x" * 1_000, "short")
    assert "…" in sentence
    assert len(sentence) < 120


def test_the_last_time_is_the_end_of_the_year_9999():
    assert TIME_MS_MAX == 253_402_300_799_999
