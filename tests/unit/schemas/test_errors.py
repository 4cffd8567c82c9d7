import inspect

import pytest

from schemas import errors
from schemas.errors import BadEnvelope, BadInput, DeliveryError, ECode, TooLarge

# Programs outside read these: a change of any line breaks somebody.
CODES = {
    "internal": (500, None),
    "bad_input": (400, None),
    "bad_envelope": (400, None),
    "too_large": (413, "E006"),
    "bad_ack": (400, None),
    "bad_signal": (400, None),
    "bad_ttl": (400, None),
    "bad_record": (400, None),
    "bad_signature": (401, None),
    "bad_address": (400, None),
    "bad_settings": (400, None),
    "bad_query": (400, None),
    "not_found": (404, None),
    "unavailable": (503, None),
    "broker_unavailable": (503, "E004"),
    "disk_full": (503, "E004"),
    "operator_error": (500, None),
    "already_running": (500, None),
    "port_busy": (500, None),
    "missing_tool": (500, None),
    "start_failed": (500, None),
    "log_changed": (500, None),
    "table_damaged": (500, None),
    "state_damaged": (500, None),
    "checkpoint_damaged": (500, None),
    "manifest_damaged": (500, None),
    "core_version_changed": (500, None),
    "fenced": (500, None),
    "conflict": (409, None),
}
CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, DeliveryError)
]


def test_codes_and_statuses_are_stable():
    assert {c.code: (c.http_status, c.e_code) for c in CLASSES} == CODES
    assert len(CLASSES) == len(CODES)


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_the_docstring_shows_the_tree(error):
    line = next(line for line in errors.__doc__.splitlines() if f" {error.__name__} " in f" {line}")
    assert error.code in line.split()
    assert str(error.http_status) in line.split()
    assert error.e_code is None or error.e_code in line.split()


def test_an_envelope_that_is_too_large_is_a_bad_envelope():
    assert issubclass(TooLarge, BadEnvelope)
    assert issubclass(BadEnvelope, BadInput)


def test_device_codes_are_e001_to_e010():
    assert [code.value for code in ECode] == [f"E{n:03}" for n in range(1, 11)]
    assert ECode.SESSION_INVALID == "E009"
    assert ECode.TTL_EXPIRED == "E010"
