"""Configuration: flags > environment (AJOIN_*) > ajoin.toml > defaults, and where each value came from.

`Settings` is a plain validated value; it never looks at the world by itself. `load` is the only place that
reads the environment and the file, so a test (or a user with `ajoin serve --print-config`) can see exactly
which layer won. A setting has the same name everywhere: `epoch_interval` in the file, AJOIN_EPOCH_INTERVAL
in the environment, `--epoch-interval` as a flag. A key of the file that is no setting is an error, because a
misspelt setting must not be ignored in silence.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from ajoin.platform.catalog import Limits
from ajoin.sql import QueryLimits
from optimizer.errors import InvalidRequest, NotFound
from runtime.api import Budget
from runtime.control.steering import STEERABLE, Steering, check_name
from runtime.store.objects import shown as without_secret

DEFAULT_FILE = Path("ajoin.toml")
FILE_VARIABLE = "AJOIN_CONFIG"
HIDDEN = "(hidden)"


class Settings(BaseSettings):
    """Every setting of the platform. Times are seconds here; the wire and the engine speak milliseconds."""

    model_config = SettingsConfigDict(env_prefix="AJOIN_", env_ignore_empty=True, extra="forbid", frozen=True)

    listen: str = Field("127.0.0.1:7411", description="address the gRPC service listens on, host:port")
    server: str = Field(
        "127.0.0.1:7411",
        description="address client commands talk to, host:port; several with commas if others stand by",
    )
    tls_cert: str = Field("", description="file with the service's certificate chain (PEM); empty: no TLS")
    tls_key: str = Field("", description="file with the key of tls_cert (PEM)")
    tls_client_ca: str = Field("", description="file with the authority that signs clients (PEM); empty: not asked for")
    token_file: str = Field("", description="file with the tokens that are accepted; empty: none is asked for")
    insecure: bool = Field(False, description="listen beyond this machine without TLS or without asking who calls")
    token: str = Field("", description="token that client commands show")
    tls_ca: str = Field(
        "", description="file with the authority that client commands trust (PEM), or system; empty: no TLS"
    )
    client_cert: str = Field("", description="file with the certificate that client commands show (PEM)")
    client_key: str = Field("", description="file with the key of client_cert (PEM)")
    state_dir: Path = Field(Path(".ajoin/state"), description="everything that survives a restart")
    store: str = Field(
        "",
        description="URI or path (s3://, hdfs://, gs://, file://, ...), seen by all executors, that holds the state "
        "and what tasks exchange; empty: state_dir does, and everything runs on this machine",
    )
    cache_bytes: int = Field(
        0,
        ge=0,
        description="with a store that is no path: most bytes of it that each machine keeps; 0: half of its free disk",
    )
    standby: bool = Field(
        False, description="wait beside a running platform with the same store, and take over when it is gone"
    )
    standby_after_stop: bool = Field(
        True, description="a standby takes over at once from a platform that was stopped; else it waits for its return"
    )
    heartbeat_interval: float = Field(
        2.0,
        gt=0,
        description="with store: seconds between two signs of life; a standby takes over when 3 are missing",
    )
    advertise: str = Field(
        "", description="address of this platform that a standby tells callers; empty: listen, with the host's name"
    )
    executor: Literal["spark", "local"] = Field(
        "spark", description="where epochs run: Spark, or this process (for trying things out)"
    )
    spark_master: str = Field("local[*]", description="Spark master URL")
    spark_conf: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Spark's own settings as key=value (a list, or text with commas), e.g. spark.executor.memory=4g"
    )
    stage_timeout: float = Field(
        600.0, ge=0, description="seconds after which a stage of an epoch is ended and counts as failed; 0: never"
    )
    worker_memory: int = Field(
        0,
        ge=0,
        description="most bytes of memory that a Spark Python worker may take before its task fails; 0: its share of "
        "the machine",
    )
    partitions: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1, le=4096, description="join partitions")
    batch_interval: float = Field(1.0, ge=0, description="seconds in which requests are collected into one batch")
    epoch_interval: float = Field(0.5, ge=0, description="least seconds between two epoch starts")
    idle_interval: float = Field(2.0, ge=0, description="most seconds between two epoch starts without data")
    optimize_period: float = Field(10.0, ge=0, description="seconds between two optimizer runs; 0: only on request")
    optimize_full_after: float = Field(
        0.5, ge=0, description="created and deleted queries, as a share of those running, that make a run a full one"
    )
    optimize_full_gain: float = Field(
        0.15, ge=0, description="share of the cost that a full run must promise to save to be made"
    )
    optimize_full_drift: float = Field(
        0.1, ge=0, description="share of the queries whose statistics have changed that makes a run a full one"
    )
    optimize_full_every: int = Field(6, ge=0, description="runs after which one is a full one; 0: never for that")
    optimize_min_gain: float = Field(
        0.03, ge=0, le=1, description="gain below which nothing changes, as a share of what the changed queries cost"
    )
    optimize_slow_epoch: float = Field(
        1.0, ge=0, description="seconds of their work that a change is taken to cost, besides the state to be rebuilt"
    )
    optimize_confirmations: int = Field(
        2, ge=1, le=1000, description="runs in a row that must want a change of running queries"
    )
    optimize_calm: int = Field(
        6, ge=1, description="runs without a wish to move a query until it is held back half as long again"
    )
    optimize_max_doublings: int = Field(
        6, ge=0, le=20, description="times that optimize_confirmations is doubled at most for queries that flap"
    )
    max_latency: float = Field(
        5.0,
        gt=0,
        description="seconds from a tuple's arrival until its rows can be read, above which the platform scales; a "
        "query can say its own (latency in its budget)",
    )
    scale_above: float = Field(
        0.8, gt=0, description="busy share of the time above which a partition has too much to do"
    )
    scale_below: float = Field(
        0.3,
        ge=0,
        description="busy share below which a partition has little to do; above it, too much while a query is late",
    )
    scale_skew: float = Field(1.5, ge=1, description="times as busy as the average that a partition is called skewed")
    scale_patience: int = Field(3, ge=1, description="runs in a row with little to do before scaling down or in")
    scale_max_ways: int = Field(8, ge=1, le=64, description="most ways that a partition is split")
    scale_min_partitions: int = Field(
        1, ge=1, le=1024, description="fewest partitions that are left when there is little to do"
    )
    scale_max_partitions: int = Field(256, ge=1, le=1024, description="most partitions that ranges are cut into")
    retention_epochs: int = Field(10_000, ge=1, description="epochs a query's result log keeps")
    retention_bytes: int = Field(1 << 30, ge=1, description="bytes all result logs together may hold")
    epoch_rows: int = Field(
        10_000_000, ge=0, description="rows one query may make in an epoch before the rest is postponed; 0: any"
    )
    max_epochs_behind: int = Field(
        200, ge=0, description="epochs a query's rows may be postponed before it is suspended"
    )
    allowed_roots: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="folders that file sources and sinks may use, paths or URIs (a list, or text with commas); empty: "
        "any when listening on this machine only, else none",
    )
    max_sql_bytes: int = Field(65_536, ge=64, description="longest SQL text that is accepted")
    max_windows: int = Field(10_000, ge=1, description="most windows of a query that one tuple may be in")
    max_expression_nodes: int = Field(
        2_000, ge=1, description="most operators, columns and constants of a query; an IN list is one"
    )
    max_in_values: int = Field(10_000, ge=1, description="most values of one IN list")
    max_aggregates: int = Field(64, ge=1, description="most different aggregates of a query")
    max_groups: int = Field(32, ge=1, description="most GROUP BY items of a query")
    max_count_window: int = Field(1_000_000, ge=1, description="most tuples of one count window")
    max_like_characters: int = Field(1_000, ge=1, description="longest pattern of LIKE or REGEXP_LIKE")
    max_text_bytes: int = Field(
        1 << 20, ge=1, description="longest text that functions may make of columns with texts of 1,000 bytes"
    )
    max_columns: int = Field(2000, ge=1, description="most columns of a stream")
    max_queries: int = Field(4096, ge=1, description="most queries that are not deleted, suspended ones included")
    max_tenant_queries: int = Field(
        0, ge=0, description="most running queries of a tenant, unless the token file says otherwise; 0: any"
    )
    max_tenant_streams: int = Field(0, ge=0, description="most streams declared by a tenant, likewise; 0: any")
    max_tenant_subscribers: int = Field(0, ge=0, description="most open subscriptions of a tenant, likewise; 0: any")
    max_tenant_requests: int = Field(0, ge=0, description="most calls a second of a tenant, likewise; 0: any")
    max_query_rows: int = Field(
        0, ge=0, description="most rows an epoch of a query, unless the token file says otherwise; 0: any"
    )
    max_query_bytes: int = Field(0, ge=0, description="most bytes of results an epoch of a query, likewise; 0: any")
    max_query_retained_bytes: int = Field(
        0,
        ge=0,
        description="most bytes of a query's results in the retention, likewise; 0: a quarter of retention_bytes for "
        "tenants' queries, any for others",
    )
    max_query_seconds: float = Field(
        0.0, ge=0, description="most seconds of tasks an epoch that are a query's share, likewise; 0: any"
    )
    max_query_state_bytes: int = Field(
        0,
        ge=0,
        description="most bytes of state that are a query's share, likewise; 0: as many as retention_bytes for "
        "tenants' queries, any for others",
    )
    max_subscribers: int = Field(5000, ge=1, description="most open subscriptions of all callers together")
    max_subscriber_bytes: int = Field(
        1 << 30, ge=1 << 20, description="most bytes of memory that all subscribers together hold in the service"
    )
    max_answer_bytes: int = Field(
        64 << 20, ge=0, description="most bytes of answers that are kept for calls that are repeated"
    )
    max_mailbox_requests: int = Field(20_000, ge=1, description="most requests that wait for the running epoch to end")
    max_mailbox_bytes: int = Field(32 << 20, ge=1 << 16, description="most bytes of SQL in them")
    max_queries_bytes: int = Field(
        64 << 20, ge=1 << 16, description="most bytes of SQL of all queries that are not deleted"
    )
    min_executors: int = Field(1, ge=1, description="fewest executors that the platform gives back down to")
    max_executors: int = Field(
        0, ge=0, description="most executors that the platform asks Spark for as load grows; 0: it never asks"
    )
    max_cost: float = Field(
        0.0, ge=0, description="most estimated cost a second of all queries together, as explain tells it; 0: any"
    )
    max_streams: int = Field(1000, ge=1, description="most streams at the same time")
    max_ahead: float = Field(
        86_400.0,
        ge=0,
        le=1e12,
        description="seconds that the event time of a tuple may lie beyond the clock, in streams that say nothing "
        "else; tuples beyond are dead letters; 0: any",
    )
    max_message_bytes: int = Field(32 << 20, ge=1 << 16, description="largest request")
    max_metadata_bytes: int = Field(16 << 10, ge=1 << 12, description="largest metadata (headers) of a call")
    max_connections: int = Field(10_000, ge=1, description="most connections to the service at the same time")
    max_connection_streams: int = Field(1000, ge=1, description="most open calls of one connection")
    keepalive_interval: float = Field(
        60.0, ge=1, description="seconds of silence after which a client is asked for a sign"
    )
    keepalive_timeout: float = Field(20.0, ge=1, description="seconds it has to give one")
    handshake_timeout: float = Field(10.0, ge=1, description="seconds a new connection has to speak HTTP/2, and TLS")
    connection_idle: float = Field(
        1800.0, ge=0, description="seconds after which a connection without calls is closed; 0: never"
    )
    connection_age: float = Field(
        0.0, ge=0, description="seconds after which a connection is closed, its calls ended first; 0: never"
    )
    plugins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="modules that bring aggregate functions and windows (a list, or text with commas)"
    )
    control_topic: str = Field("", description="Kafka topic with requests to create and delete queries; empty: none")
    control_brokers: str = Field("", description="brokers of the control topic, host:port, several with commas")
    control_replies: str = Field("", description="topic for the replies; empty: <control_topic>.replies")
    control_options: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="security options of the control topic as key=value (a list, or text with commas)"
    )
    metrics_port: int = Field(0, ge=0, le=65535, description="port that serves metrics to Prometheus; 0: none")
    metrics_host: str = Field("127.0.0.1", min_length=1, description="address that metrics_port is opened on")
    verbose: bool = Field(False, description="show what Spark logs")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="this platform's own log")
    log_format: Literal["text", "json"] = Field("text", description="its lines: text, or one JSON object each")

    @model_validator(mode="after")
    def _bounds(self) -> Settings:
        if self.scale_below >= self.scale_above:
            raise ValueError(f"scale_below ({self.scale_below:g}) must be less than scale_above ({self.scale_above:g})")
        if self.scale_min_partitions > self.scale_max_partitions:
            raise ValueError(
                f"scale_min_partitions ({self.scale_min_partitions}) must not be more than scale_max_partitions "
                f"({self.scale_max_partitions})"
            )
        return self

    @property
    def steering(self) -> Steering:
        """What of it may be changed while the platform runs."""
        return Steering(**{name: getattr(self, name) for name in STEERABLE})

    @property
    def limits(self) -> Limits:
        return Limits(
            query=QueryLimits(
                sql_bytes=self.max_sql_bytes,
                windows=self.max_windows,
                expression_nodes=self.max_expression_nodes,
                in_values=self.max_in_values,
                like_characters=self.max_like_characters,
                aggregates=self.max_aggregates,
                groups=self.max_groups,
                count_window=self.max_count_window,
                text_bytes=self.max_text_bytes,
            ),
            columns=self.max_columns,
            queries=self.max_queries,
            streams=self.max_streams,
            ahead_ms=int(self.max_ahead * 1000) or None,
            queries_bytes=self.max_queries_bytes,
            mailbox_requests=self.max_mailbox_requests,
            mailbox_bytes=self.max_mailbox_bytes,
            budget=self.query_budget,
        )

    @property
    def query_budget(self) -> Budget:
        """What a query of a caller without a tenant may take at most."""
        return Budget(
            rows=self.max_query_rows or None,
            bytes=self.max_query_bytes or None,
            retained_bytes=self.max_query_retained_bytes or None,
            seconds=self.max_query_seconds or None,
            state_bytes=self.max_query_state_bytes or None,
        )

    @property
    def tenant_budget(self) -> Budget:
        """What a tenant's query may take at most. One query must not push everybody's results out of the retention, nor
        fill the disk with state: results and state have a bound even if nobody has set one."""
        whole = self.retention_bytes
        return replace(
            self.query_budget,
            retained_bytes=self.max_query_retained_bytes or max(whole // 4, 1),
            state_bytes=self.max_query_state_bytes or whole,
        )

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if not host or "," in host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{value!r} is not host:port")
        return value

    @field_validator("server")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for address in value.split(","):
            cls._address(address.strip())
        return value

    @field_validator("spark_conf")
    @classmethod
    def _assignments(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            key, equals, _ = text.partition("=")
            if not equals or not key.startswith("spark."):
                raise ValueError(f"{text!r} is not spark.key=value")
        return value

    @field_validator("control_options")
    @classmethod
    def _security(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not text.startswith(("security.", "ssl.", "sasl.")) or "=" not in text:
                name = text.partition("=")[0]  # what follows may be a password
                raise ValueError(f"{name!r} is not an option like security.protocol=SSL")
        return value

    @field_validator("allowed_roots", "spark_conf", "control_options", "plugins", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("allowed_roots", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return [str(root) for root in value]

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the caller passes: the layers are merged, with their origins, in `load`."""
        return (init_settings,)


@dataclass(frozen=True)
class Config:
    """The effective settings and, per setting, the layer that set it."""

    settings: Settings
    origins: Mapping[str, str]

    def to_toml(self) -> str:
        lines = [f"{name} = {_toml(value)}" for name, value in self.shown().items()]
        width = max(map(len, lines))
        return "".join(f"{line:<{width}}  # {self.origins[line.split(' ')[0]]}\n" for line in lines)

    def to_json(self) -> dict[str, Any]:
        return {"settings": self.shown(), "origins": dict(self.origins)}

    def shown(self) -> dict[str, Any]:
        """The settings without what must stay secret."""
        values = self.settings.model_dump(mode="json")
        for setting in ("control_options", "spark_conf"):
            values[setting] = [_masked(text) for text in values[setting]]
        values["store"] = without_secret(values["store"])
        return values | ({"token": HIDDEN} if values["token"] else {})


RENAMED = {
    "durable": "use store, which holds the whole state",
    "fast_bytes": "use cache_bytes",
    "exchange": "on one machine nothing is needed; executors on other machines need a store",
}
"""Settings of earlier versions, and what to use instead."""


def load(flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Config:
    """Merge the layers. A flag whose value is None was not given. `file` must exist; ajoin.toml need not."""
    path = file or (Path(os.environ[FILE_VARIABLE]) if os.environ.get(FILE_VARIABLE) else None)
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
        ("environment", EnvSettingsSource(Settings)()),
        (str(path or DEFAULT_FILE), _read(path)),
    ]
    for key in RENAMED:
        if f"AJOIN_{key.upper()}" in os.environ:
            raise _renamed(key, "environment")
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for origin, layer in layers:
        for key, value in layer.items():
            if key in RENAMED:
                raise _renamed(key, origin)
            if key not in Settings.model_fields:
                raise _unknown(key, origin)
            if key not in values:
                values[key] = value
                origins[key] = f"environment AJOIN_{key.upper()}" if origin == "environment" else origin
    try:
        return Config(Settings(**values), origins)
    except ValidationError as failure:
        first = failure.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        what = first["msg"].removeprefix("Value error, ")
        raise InvalidRequest(
            f"setting {key!r} (from {origins.get(key, '?')}): {what}" if key else what,
            reason="CONFIG_INVALID",
            hint=f"{key} is the {Settings.model_fields[key].description}" if key in origins else "",
        ) from None


def checked_setting(name: str, text: str, now: Steering) -> float:
    """The value that a text means for a setting which may be changed while the platform runs, and goes with the others
    as they are `now`."""
    check_name(name)
    values: dict[str, Any] = {n: getattr(now, n) for n in STEERABLE} | {name: text}
    try:
        value = float(getattr(Settings(**values), name))
        if math.isfinite(value):
            return value
        what = "it must be a finite number"
    except ValidationError as failure:
        what = failure.errors()[0]["msg"].removeprefix("Value error, ")
    raise InvalidRequest(
        f"setting {name!r} cannot be {text!r}: {what}",
        reason="SETTING_INVALID",
        hint=f"{name}: {Settings.model_fields[name].description}",
    )


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """`key=value` texts (the --set flag) as flags for `load`."""
    flags: dict[str, str] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest(
                f"--set {text!r} is not key=value",
                reason="CONFIG_INVALID",
                hint="for example --set partitions=4",
            )
        flags[key.strip().replace("-", "_")] = value.strip()
    return flags


def _read(path: Path | None) -> Mapping[str, Any]:
    if path is None and not DEFAULT_FILE.is_file():
        return {}
    try:
        with (path or DEFAULT_FILE).open("rb") as text:
            return tomllib.load(text)
    except FileNotFoundError:
        raise NotFound(f"there is no configuration file {path}", reason="CONFIG_NOT_FOUND") from None
    except OSError as failure:
        raise InvalidRequest(
            f"cannot read the configuration file {path}: {failure.strerror}", reason="CONFIG_INVALID"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise InvalidRequest(f"{path or DEFAULT_FILE} is not valid TOML: {failure}", reason="CONFIG_INVALID") from None


def _renamed(key: str, origin: str) -> InvalidRequest:
    return InvalidRequest(
        f"setting {key!r} (from {origin}) is gone",
        reason="CONFIG_UNKNOWN_KEY",
        hint=RENAMED[key],
    )


def _unknown(key: str, origin: str) -> InvalidRequest:
    near = difflib.get_close_matches(key, Settings.model_fields, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "settings are: " + ", ".join(Settings.model_fields)
    return InvalidRequest(f"unknown setting {key!r} (from {origin})", reason="CONFIG_UNKNOWN_KEY", hint=hint)


def _masked(option: str) -> str:
    """`key=value` of Kafka or Spark without its password; the name of a variable is no secret."""
    key, _, value = option.partition("=")
    hidden = "password" in key or key.endswith(".secret")
    return f"{key}={HIDDEN}" if hidden and not value.startswith("env:") else option


def _toml(value: Any) -> str:
    """One TOML value. JSON's strings, numbers and booleans are also TOML's."""
    return json.dumps(value, ensure_ascii=False)
