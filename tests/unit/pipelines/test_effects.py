import pytest

from pipelines import effects
from pipelines.effects import Record


@pytest.mark.parametrize("effect", effects.Effect.__args__)
def test_effects_are_data_that_nobody_changes(effect):
    assert effect.__struct_config__.frozen


def test_a_record_needs_little_and_is_no_security_event_by_itself():
    record = Record(kind="gap", sender=b"s", recipient=b"r", at_ms=1)
    assert (record.message_id, record.security, record.known) == (b"", False, None)


def test_two_effects_that_say_the_same_are_equal():
    one = Record(kind="gap", sender=b"s", recipient=b"r", at_ms=1)
    assert one == Record(kind="gap", sender=b"s", recipient=b"r", at_ms=1)
    assert one != Record(kind="gap", sender=b"s", recipient=b"r", at_ms=2)
