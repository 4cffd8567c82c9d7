import pytest
from click.testing import CliRunner

from farpost.cli import main
from pipelines.policies import put_policy, read_policy
from schemas.policy import Policy


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.delenv("FARPOST_DATA", raising=False)

    def run(text):
        conf = tmp_path / "conf.toml"
        conf.write_text(text)
        words = ["config", "apply", "--data", str(tmp_path), "--conf", str(conf)]
        return CliRunner().invoke(main, words)

    return run


def test_a_changed_policy_gets_the_next_number(tmp_path, call):
    put_policy(tmp_path, Policy())
    result = call("[policy]\ngap_timeout_ms = 5000\n")
    assert result.exit_code == 0
    assert "policy.gap_timeout_ms: 300000 → 5000" in result.output
    applied = read_policy(tmp_path)
    assert (applied.number, applied.policy) == (2, Policy(gap_timeout_ms=5_000))


def test_the_same_policy_changes_nothing(tmp_path, call):
    put_policy(tmp_path, Policy())
    assert "in force already" in call("").output
    assert read_policy(tmp_path).number == 1


def test_out_of_range_is_refused_with_a_sentence(tmp_path, call):
    put_policy(tmp_path, Policy())
    result = call("[policy]\ngap_max = 0\n")
    assert result.exit_code == 1
    assert "policy.gap_max = 0: must be a whole number from 1 to 10000" in result.output


def test_without_a_hub_there_is_nothing_to_apply_to(call):
    result = call("")
    assert result.exit_code == 1
    assert "farpost up" in result.output
