import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.policies import PolicyFile, put_policy, read_policy
from schemas.errors import BadSettings
from schemas.policy import Policy


def test_before_the_first_policy_there_is_none(tmp_path):
    assert read_policy(tmp_path) is None


def test_the_first_policy_has_number_one(tmp_path):
    assert put_policy(tmp_path, Policy()) == PolicyFile(1, Policy())
    assert read_policy(tmp_path) == PolicyFile(1, Policy())


def test_the_number_grows_only_with_another_policy(tmp_path):
    put_policy(tmp_path, Policy())
    assert put_policy(tmp_path, Policy()).number == 1
    assert put_policy(tmp_path, Policy(gap_max=5)).number == 2
    assert put_policy(tmp_path, Policy()).number == 3
    assert read_policy(tmp_path) == PolicyFile(3, Policy())


def test_no_half_written_file_is_left(tmp_path):
    put_policy(tmp_path, Policy())
    assert [path.name for path in tmp_path.iterdir()] == ["policy.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b'{"number":1}',
        b'{"number":1,"policy":{"gap_max":0}}',
        b'{"number":1,"policy":{"gap_max":"many"}}',
        b"\xff\xfe",
        b'{"number":1,"policy":"\xff"}',
        b"[" * 100_000,
    ],
)
def test_a_broken_file_says_what_to_do(tmp_path, content):
    (tmp_path / "policy.json").write_bytes(content)
    with pytest.raises(BadSettings, match=r"policy\.json cannot be read .* config apply"):
        read_policy(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_hostile_bytes_only_ever_raise_bad_settings(tmp_path, content):
    (tmp_path / "policy.json").write_bytes(content)
    with pytest.raises(BadSettings):
        read_policy(tmp_path)
