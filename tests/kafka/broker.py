"""A real Apache Kafka broker on loopback, in KRaft mode: one process that is broker and controller.

Maven brings its jars (pom.xml); the broker's own main class runs them.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from tests.tools import maven
from tests.tools.ports import free_port

POM = Path(__file__).with_name("pom.xml")
CLUSTER = "ajoinTestsClusterIdAAA"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
START_S = 300.0
USER, PASSWORD = "ajoin", "only-for-tests"


def jars() -> Path:
    """The directory with the broker's jars (about 50 MB)."""
    return maven.jars(POM, "ajoin-kafka")


class Broker:
    """Keeps its ports and its data over `stop` and `start`."""

    def __init__(self, classpath: Path, directory: Path) -> None:
        self._java = ["java", *JVM, "-cp", f"{classpath}/*"]
        self._directory = directory
        self._log = directory / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"127.0.0.1:{free_port()}"
        self.secure_address = f"127.0.0.1:{free_port()}"
        self.certificate = directory / "broker.pem"
        self._make_certificate(directory / "broker.p12")
        settings = _settings(self.address, free_port(), directory / "data")
        settings |= _secure_settings(self.secure_address, directory / "broker.p12")
        settings["listeners"] += f",LOGIN://{self.secure_address}"
        settings["advertised.listeners"] += f",LOGIN://{self.secure_address}"
        self._properties = directory / "server.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._java_run("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(self._properties))

    def _make_certificate(self, store: Path) -> None:
        """A key and a certificate for 127.0.0.1 that signs itself, made by Java's own tool."""
        keytool = ["keytool", "-storepass", PASSWORD, "-keystore", str(store), "-alias", "broker"]
        make = [
            "-genkeypair",
            "-keyalg",
            "EC",
            "-storetype",
            "PKCS12",
            "-dname",
            "CN=broker",
            "-ext",
            "san=ip:127.0.0.1",
        ]
        for command in ([*keytool, *make], [*keytool, "-exportcert", "-rfc", "-file", str(self.certificate)]):
            subprocess.run(command, check=True, capture_output=True, timeout=START_S)

    def _java_run(self, *command: str) -> None:
        done = subprocess.run([*self._java, *command], capture_output=True, text=True, timeout=START_S)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Returns when the broker answers."""
        with open(self._log, "ab") as out:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while True:
            try:
                self.admin().close()
                return
            except KafkaError as why:
                ended = self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    self.stop()
                    raise AssertionError(f"the broker did not start: {why}\n{self._log.read_text()[-3000:]}") from why

    def stop(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # -- what tests do with it --

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(
            bootstrap_servers=self.address, bootstrap_timeout_ms=2_000, reconnect_backoff_max_ms=200
        )

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        with self.admin() as admin:
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
            admin.wait_for_topics([name])
        return name

    def producer(self, **settings: Any) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self.address, **settings)

    def send(self, topic: str, *values: bytes | None, partition: int = 0, timestamp_ms: int | None = None) -> None:
        with self.producer(linger_ms=5) as producer:
            sent = [
                producer.send(topic, v, key=b"" if v is None else None, partition=partition, timestamp_ms=timestamp_ms)
                for v in values
            ]
            producer.flush()
            for future in sent:
                future.get(START_S)

    def messages(self, topic: str) -> list[Any]:
        """Everything committed, partition by partition."""
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "group_id": None}
        with KafkaConsumer(bootstrap_servers=self.address, **settings) as consumer:
            places = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            consumer.assign(places)
            ends = consumer.end_offsets(places)
            messages: list[Any] = []
            while any(consumer.position(p) < ends[p] for p in places):
                for records in consumer.poll(200).values():
                    messages += records
        return sorted(messages, key=lambda r: (r.partition, r.offset))

    def wait_for(self, topic: str, count: int) -> list[Any]:
        """The first messages of a topic that somebody is about to write."""
        settings = {"auto_offset_reset": "earliest", "group_id": None}
        messages: list[Any] = []
        with KafkaConsumer(topic, bootstrap_servers=self.address, metadata_max_age_ms=500, **settings) as consumer:
            while len(messages) < count:
                for records in consumer.poll(500).values():
                    messages += records
        return messages


def _secure_settings(address: str, store: Path) -> dict[str, str]:
    """TLS and a login on a listener of their own."""
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL",
        "listener.name.login.ssl.keystore.location": str(store),
        "listener.name.login.ssl.keystore.password": PASSWORD,
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": login,
        "sasl.enabled.mechanisms": "PLAIN",
    }


def _settings(address: str, controller_port: int, data: Path) -> dict[str, str]:
    controller = f"127.0.0.1:{controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "log.dirs": str(data),
        "log.index.size.max.bytes": "65536",
        "log.retention.ms": "-1",  # tests write messages of 1970
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "1000",  # a killed broker may come back under its name only after that
        "broker.heartbeat.interval.ms": "250",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "log.cleaner.dedupe.buffer.size": "2097152",
    }
