"""Ports: the same again if possible, another if not, a sentence if one was asked for."""

import socket

import pytest

from farpost import ports
from schemas.errors import PortBusy


@pytest.fixture
def busy():
    with socket.socket() as holder:
        holder.bind((ports.HOST, 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_chosen_port_is_free_and_below_those_of_outgoing_connections():
    port = ports.choose("broker")
    assert ports.FIRST <= port <= ports.LAST
    assert ports.is_free(port)


def test_a_remembered_port_is_taken_again():
    port = ports.choose("broker")
    assert ports.choose("broker", remembered=port) == port


def test_a_remembered_port_that_is_busy_gives_way_to_another(busy):
    assert ports.choose("broker", remembered=busy) != busy


def test_a_port_that_was_asked_for_and_is_busy_is_refused_with_its_number(busy):
    with pytest.raises(PortBusy, match=f"port {busy} for the broker"):
        ports.choose("broker", asked=busy)


def test_a_port_that_was_asked_for_wins_over_the_remembered_one():
    asked, remembered = ports.choose("broker"), ports.choose("broker")
    assert ports.choose("broker", asked=asked, remembered=remembered) == asked


def test_no_port_is_given_out_twice():
    port = ports.choose("broker")
    assert ports.choose("driver", remembered=port, taken={port}) != port
    with pytest.raises(PortBusy):
        ports.choose("driver", asked=port, taken={port})
