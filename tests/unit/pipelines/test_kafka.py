"""Clients of the log: their configuration, and a log that is not there."""

import pytest

from pipelines import kafka
from schemas.errors import BrokerUnavailable
from schemas.settings import Settings

SASL = Settings.parse(
    """
    [kafka]
    bootstrap = "k1:9093,k2:9093"
    security_protocol = "SASL_SSL"
    sasl_mechanism = "SCRAM-SHA-512"
    sasl_username = "hub"
    sasl_password = 'a"b\\c'
    ssl_cafile = "/ca.pem"
    """,
    {},
)


def test_a_plain_log_needs_no_secrets():
    config = kafka.client_config(Settings(), "127.0.0.1:9092")
    assert config["bootstrap_servers"] == ["127.0.0.1:9092"]
    assert config["security_protocol"] == "PLAINTEXT"
    assert not [key for key in config if key.startswith(("sasl", "ssl"))]


def test_the_security_block_reaches_the_python_clients():
    config = kafka.client_config(SASL, SASL.kafka.bootstrap)
    assert config["bootstrap_servers"] == ["k1:9093", "k2:9093"]
    assert config["sasl_mechanism"] == "SCRAM-SHA-512"
    assert config["sasl_plain_username"] == "hub"
    assert config["sasl_plain_password"] == 'a"b\\c'
    assert config["ssl_cafile"] == "/ca.pem"


def test_the_security_block_reaches_spark_with_the_password_quoted():
    options = kafka.spark_options(SASL, SASL.kafka.bootstrap)
    assert options["kafka.bootstrap.servers"] == "k1:9093,k2:9093"
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.ssl.truststore.location"] == "/ca.pem"
    jaas = options["kafka.sasl.jaas.config"]
    assert jaas.startswith("org.apache.kafka.common.security.scram.ScramLoginModule required ")
    assert jaas.endswith('password="a\\"b\\\\c";')


def test_plain_sasl_has_its_own_login_module():
    text = '[kafka]\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n'
    options = kafka.spark_options(Settings.parse(text, {}), "k:1")
    assert "plain.PlainLoginModule" in options["kafka.sasl.jaas.config"]
    assert "kafka.ssl.truststore.location" not in options


def test_every_key_of_the_configuration_is_known_to_the_client():
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    for client in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
        assert set(kafka.client_config(SASL, "k:1")) <= set(client.DEFAULT_CONFIG)


@pytest.mark.parametrize("make", [kafka.producer, kafka.consumer, kafka.admin])
@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:1,127.0.0.1:2"])
def test_a_log_that_is_away_is_one_sentence(make, bootstrap):
    with pytest.raises(BrokerUnavailable, match=rf"nothing answers at {bootstrap}: start"):
        make(Settings(), bootstrap)


def test_what_the_library_raises_becomes_our_error():
    from kafka.errors import KafkaTimeoutError

    with pytest.raises(BrokerUnavailable, match="KafkaTimeoutError"), kafka.translated():
        raise KafkaTimeoutError
