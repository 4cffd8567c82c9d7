"""What all tests share: a test's directory says what it costs."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Mark by directory, so that no file has to repeat where it is."""
    for item in items:
        tier = item.path.relative_to(TESTS).parts[0]
        if tier in ("spark", "integration"):
            item.add_marker(getattr(pytest.mark, tier))
