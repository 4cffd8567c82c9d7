import pytest

from pipelines import inputs
from pipelines.inputs import Ticked


@pytest.mark.parametrize("name", ["Arrived", "Acked", "Taken", "Cancelled", "CounterPassed"])
def test_inputs_cannot_be_changed_by_a_rule(name):
    assert getattr(inputs, name).__struct_config__.frozen


def test_every_input_about_a_mailbox_names_it():
    for kind in inputs.MailboxInput.__args__:
        assert "mailbox" in kind.__struct_fields__


def test_two_ticks_are_the_same():
    assert Ticked() == Ticked()
