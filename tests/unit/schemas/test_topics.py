from schemas.records import VALUE_MAX
from schemas.topics import Topics, specs


def test_names_carry_the_prefix():
    topics = Topics("east.")
    names = (topics.inbound, topics.dispatch, topics.registry, topics.live)
    assert names == ("east.inbound", "east.dispatch", "east.registry", "east.live")
    assert Topics().inbound == "inbound"


def test_the_log_takes_the_brokers_time_and_loses_nothing_by_age_or_size():
    inbound, _ = specs(prefix="x-", partitions=4, replication=1)
    assert (inbound.name, inbound.partitions, inbound.replication) == ("x-inbound", 4, 1)
    assert inbound.configs == {
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "segment.bytes": "67108864",
        "segment.ms": "3600000",
        "max.message.bytes": "270336",
        "flush.messages": "1",
        "min.insync.replicas": "1",
    }


def test_the_largest_record_fits_the_log():
    inbound, _ = specs(prefix="", partitions=1, replication=1)
    assert int(inbound.configs["max.message.bytes"]) > VALUE_MAX + 1_024


def test_orders_are_kept_for_a_day_in_one_partition():
    _, dispatch = specs(prefix="", partitions=4, replication=1)
    assert (dispatch.name, dispatch.partitions) == ("dispatch", 1)
    assert dispatch.configs["retention.ms"] == "86400000"
    assert dispatch.configs["flush.messages"] == "1"


def test_copies_replace_the_flush_of_every_record():
    for replication, in_sync in ((2, "1"), (3, "2")):
        for topic in specs(prefix="", partitions=1, replication=replication):
            assert topic.replication == replication
            assert "flush.messages" not in topic.configs
            assert topic.configs["min.insync.replicas"] == in_sync
            assert topic.configs["unclean.leader.election.enable"] == "false"
