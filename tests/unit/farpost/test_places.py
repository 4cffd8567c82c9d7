"""Where things are, and what is said when they cannot be there."""

import os
from pathlib import Path

import pytest

from farpost.places import (
    ROOM_BYTES_MIN,
    cache_dir,
    conf_dir,
    data_dir,
    load_settings,
    make_data_dir,
)
from schemas.errors import BadSettings, DiskFull, StartFailed
from schemas.settings import Settings


def test_the_option_wins_over_the_environment_and_that_over_the_file(tmp_path):
    conf = tmp_path / "x.toml"
    conf.write_text('data = "/from/file"\n')
    assert data_dir(None, load_settings(conf, {}), {}) == Path("/from/file")
    settings = load_settings(conf, {"FARPOST_DATA": "/from/env"})
    assert data_dir(None, settings, {}) == Path("/from/env")
    assert data_dir("/from/option", settings, {}) == Path("/from/option")


def test_data_under_the_share_directory_follow_xdg_data_home():
    settings = Settings.parse('data = "~/.local/share/farpost"', {})
    assert data_dir(None, settings, {"XDG_DATA_HOME": "/share"}) == Path("/share/farpost")
    assert data_dir(None, settings, {}) == Path.home() / ".local/share/farpost"
    assert data_dir("~/x", settings, {"XDG_DATA_HOME": "/share"}) == Path.home() / "x"


def test_the_data_directory_is_absolute():
    assert data_dir("some/where", Settings(), {}) == Path.cwd() / "some/where"


def test_a_relative_cache_home_is_ignored():
    assert cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/farpost")
    assert cache_dir({"XDG_CACHE_HOME": "c"}) == Path.home() / ".cache/farpost"


def test_the_defaults_are_found_beside_the_package():
    assert (conf_dir() / "default.toml").is_file()
    assert load_settings(None, {}) == Settings()


@pytest.mark.parametrize(
    ("content", "said"), [(b"\xff", "not UTF-8"), (b"x = [", "not valid TOML"), (b"x = 1", "x")]
)
def test_settings_that_cannot_be_used_are_named_with_their_file(tmp_path, content, said):
    conf = tmp_path / "x.toml"
    conf.write_bytes(content)
    with pytest.raises(BadSettings, match=said) as refused:
        load_settings(conf, {})
    assert str(conf) in str(refused.value)


def test_a_settings_file_that_is_absent_is_named(tmp_path):
    with pytest.raises(BadSettings, match=r"none\.toml: No such file"):
        load_settings(tmp_path / "none.toml", {})


def test_the_data_directory_is_made_with_its_logs(tmp_path):
    layout = make_data_dir(tmp_path / "a" / "b")
    assert layout.logs.is_dir()
    assert [path.name for path in layout.data.iterdir()] == ["logs"]


def test_a_place_that_cannot_be_written_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match=r"cannot write to the data directory .*--data"):
        make_data_dir(tmp_path / "file" / "data")


def test_a_full_disk_is_refused_with_a_sentence(tmp_path, monkeypatch):
    room = os.statvfs(tmp_path)
    blocks = ROOM_BYTES_MIN // room.f_frsize - 1
    values = (*room[:3], blocks, blocks, *room[5:10])
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(values))
    with pytest.raises(DiskFull, match="64 MiB left: free some space"):
        make_data_dir(tmp_path)


def test_no_space_even_for_a_probe_is_a_full_disk(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DiskFull, match="is full"):
        make_data_dir(tmp_path)
