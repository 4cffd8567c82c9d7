import pytest

from farpost.places import Layout
from farpost.rebuild import set_aside
from farpost.state import StackLock
from schemas.errors import AlreadyRunning, NotFound
from schemas.settings import Settings

SETTINGS = Settings()


@pytest.fixture
def layout(tmp_path):
    for name in ("checkpoints", "tables", "manifests", "broker"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "run.json").write_text("{}")
    return Layout(tmp_path)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_state_alone_is_set_aside(layout):
    aside = set_aside(layout, SETTINGS, tables=False)
    assert names(aside) == ["checkpoints"]
    assert (layout.data / "tables" / "file").exists()


def test_with_tables_all_that_the_log_can_make_again_is_set_aside(layout):
    aside = set_aside(layout, SETTINGS, tables=True)
    assert names(aside) == ["checkpoints", "manifests", "run.json", "tables"]
    assert (layout.data / "broker" / "file").exists()


def test_a_running_hub_is_left_alone(layout):
    with StackLock(layout), pytest.raises(AlreadyRunning, match="farpost down"):
        set_aside(layout, SETTINGS, tables=False)
    assert (layout.data / "checkpoints" / "file").exists()


def test_there_must_be_a_hub(tmp_path):
    with pytest.raises(NotFound):
        set_aside(Layout(tmp_path / "no"), SETTINGS, tables=False)
