"""The jars: what the locks say, and what happens if a jar is not as they say."""

import hashlib
import re

import pytest

from farpost import jars, places
from schemas.errors import MissingTool, StartFailed

MAVEN = """#!/bin/sh
case "$1" in -version) echo "Apache Maven 3.9.9"; exit 0;; esac
echo called >> {calls}
for word in "$@"; do case "$word" in -DoutputDirectory=*) out="${{word#*=}}";; esac; done
cp {source}/*.jar "$out"/
"""


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """Two sets of one made-up jar each, a Maven that copies them, and an empty cache."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.jar").write_bytes(b"jar a")
    digest = hashlib.sha256(b"jar a").hexdigest()
    for name in jars.SETS:
        directory = tmp_path / "conf" / "jars" / name
        directory.mkdir(parents=True)
        (directory / "pom.xml").write_text("<project/>")
        (directory / "lock.sha256").write_text(f"{digest}  a.jar\n")
    _program(tmp_path / "bin" / "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"'\n")
    _program(tmp_path / "bin" / "mvn", MAVEN.format(source=source, calls=tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "conf_dir", lambda: tmp_path / "conf")
    return tmp_path


def _program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def calls(conf):
    path = conf / "calls"
    return path.read_text().count("called") if path.exists() else 0


def silent(text):
    pass


def test_installed_jars_are_found_and_nothing_else_is_in_the_cache(conf):
    said = []
    jars.install(said.append)
    assert said == ["1 jars of the spark, by Maven", "1 jars of the broker, by Maven"]
    assert [path.name for path in jars.jars("spark")] == ["a.jar"]
    found = sorted(path.name for path in (conf / "cache/farpost/jars").iterdir())
    assert found == sorted(jars.jar_dir(name).name for name in jars.SETS)


def test_a_second_set_up_needs_no_maven(conf):
    jars.install(silent)
    (conf / "bin" / "mvn").unlink()
    said = []
    jars.install(said.append)
    assert said == []


@pytest.mark.parametrize("damage", ["flip", "remove", "add"])
def test_a_damaged_set_is_fetched_again(conf, damage):
    jars.install(silent)
    directory = jars.jar_dir("spark")
    match damage:
        case "flip":
            (directory / "a.jar").write_bytes(b"jar b")
        case "remove":
            (directory / "a.jar").unlink()
        case "add":
            (directory / "b.jar").write_bytes(b"")
    assert jars.wrong_jars("spark", directory)
    jars.install(silent)
    assert calls(conf) == 3
    assert not jars.wrong_jars("spark", directory)


def test_what_maven_brings_is_not_installed_if_its_hash_is_another(conf):
    (conf / "source" / "a.jar").write_bytes(b"not that jar")
    with pytest.raises(StartFailed, match=r"a\.jar of the spark jars is not the file"):
        jars.install(silent)
    assert list((conf / "cache/farpost/jars").iterdir()) == []


def test_another_pom_is_another_directory(conf):
    before = jars.jar_dir("spark")
    (conf / "conf/jars/spark/pom.xml").write_text("<project>2</project>")
    assert jars.jar_dir("spark") != before


def test_jars_that_are_not_installed_are_asked_for_with_the_command(conf):
    with pytest.raises(MissingTool, match=r"a\.jar is missing\): run `make setup`.*farpost setup"):
        jars.jars("broker")


def test_what_maven_says_when_it_fails_is_told_in_one_line(conf):
    failing = "#!/bin/sh\n[ $1 = -version ] && echo Apache Maven 3.9.9 && exit 0\n"
    _program(conf / "bin" / "mvn", failing + "echo '[ERROR] no route to host'; exit 1\n")
    with pytest.raises(StartFailed, match=r"could not fetch the spark jars: \[ERROR\] no route"):
        jars.install(silent)


def test_the_lock_can_be_written_from_what_maven_brings(conf):
    (conf / "source" / "a.jar").write_bytes(b"newer")
    for name in jars.SETS:
        jars.write_lock(name)
    jars.install(silent)
    assert jars.jars("spark")


@pytest.mark.parametrize("name", jars.SETS)
def test_the_committed_locks_are_sorted_lines_that_sha256sum_reads(name):
    lines = (places.conf_dir() / "jars" / name / "lock.sha256").read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line) for line in lines)
    names = [line.split()[1] for line in lines]
    assert names == sorted(names)


def test_the_broker_and_spark_have_kafka_clients_of_their_own():
    locks = {
        name: (places.conf_dir() / "jars" / name / "lock.sha256").read_text() for name in jars.SETS
    }
    assert "kafka-clients-3.9.2.jar" in locks["spark"]
    assert "kafka-clients-4.1.0.jar" in locks["broker"]
