"""Configuration: which layer wins, what is refused, and that the printed form can be read back."""

import tomllib
from pathlib import Path

import pytest

from ajoin.config import Settings, load, parse_assignments
from optimizer.errors import AJoinError


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in ["config", *Settings.model_fields]:
        monkeypatch.delenv(f"AJOIN_{name.upper()}", raising=False)
    return tmp_path


def test_each_layer_beats_the_ones_below(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().settings.epoch_interval == 0.5
    (nowhere / "ajoin.toml").write_text("epoch_interval = 2\nbatch_interval = 3\npartitions = 5\n")
    assert load().settings.epoch_interval == 2
    monkeypatch.setenv("AJOIN_EPOCH_INTERVAL", "4")
    monkeypatch.setenv("AJOIN_PARTITIONS", "6")
    assert load().settings.epoch_interval == 4
    config = load({"epoch_interval": 8.0, "batch_interval": None})
    assert (config.settings.epoch_interval, config.settings.partitions, config.settings.batch_interval) == (
        8,
        6,
        3,
    )
    assert config.origins["epoch_interval"] == "flag"
    assert config.origins["partitions"] == "environment AJOIN_PARTITIONS"
    assert config.origins["batch_interval"] == "ajoin.toml"
    assert config.origins["listen"] == "default"


def test_the_file_can_be_named_by_flag_or_environment(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "ajoin.toml").write_text("partitions = 3\n")
    (nowhere / "other.toml").write_text("partitions = 7\n")
    assert load(file=Path("other.toml")).settings.partitions == 7
    monkeypatch.setenv("AJOIN_CONFIG", "other.toml")
    assert load().settings.partitions == 7
    assert load().origins["partitions"] == "other.toml"


def test_the_printed_form_is_toml_that_loads_to_the_same_settings(nowhere: Path) -> None:
    config = load({"state_dir": 'with "quotes" \\ and ünicode', "verbose": True})
    printed = config.to_toml()
    assert "# flag" in printed
    assert tomllib.loads(printed) == config.to_json()["settings"]
    (nowhere / "again.toml").write_text(printed)
    assert load(file=Path("again.toml")).settings == config.settings


def test_a_token_is_not_shown() -> None:
    config = load({"token": "ajoin_secret"})
    assert config.settings.token == "ajoin_secret"
    assert "secret" not in config.to_toml() + str(config.to_json())
    assert 'token = ""' in load().to_toml()


def test_assignments_are_flags() -> None:
    flags = parse_assignments(["partitions=4", "spark-master = local[1]", "state_dir=a=b"])
    settings = load(flags).settings
    assert (settings.partitions, settings.spark_master, settings.state_dir) == (4, "local[1]", Path("a=b"))


def test_an_empty_variable_is_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AJOIN_PARTITIONS", "")
    assert load({"partitions": None}).origins["partitions"] == "default"


@pytest.mark.parametrize(
    ("file", "reason", "words"),
    [
        (
            "epoch_intervall = 1",
            "CONFIG_UNKNOWN_KEY",
            ["'epoch_intervall'", "ajoin.toml", "'epoch_interval'"],
        ),
        ("[serve]\nlisten = 'x'", "CONFIG_UNKNOWN_KEY", ["'serve'", "server"]),
        ("partitions = 0", "CONFIG_INVALID", ["'partitions'", "ajoin.toml", "greater than or equal to 1"]),
        ("partitions = 'many'", "CONFIG_INVALID", ["'partitions'", "integer"]),
        ("listen = 'nowhere'", "CONFIG_INVALID", ["'listen'", "host:port"]),
        ("listen = 'host:99999'", "CONFIG_INVALID", ["'listen'", "host:port"]),
        ("executor = 'flink'", "CONFIG_INVALID", ["'executor'", "spark"]),
        ("log_level = 'loud'", "CONFIG_INVALID", ["'log_level'"]),
        ("epoch_interval = -1", "CONFIG_INVALID", ["'epoch_interval'"]),
        ("partitions = = 3", "CONFIG_INVALID", ["ajoin.toml", "not valid TOML"]),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(nowhere: Path, file: str, reason: str, words: list[str]) -> None:
    (nowhere / "ajoin.toml").write_text(file)
    with pytest.raises(AJoinError) as refused:
        load()
    assert refused.value.reason == reason
    for word in words:
        assert word in str(refused.value)


def test_a_named_file_must_exist() -> None:
    with pytest.raises(AJoinError) as refused:
        load(file=Path("missing.toml"))
    assert refused.value.reason == "CONFIG_NOT_FOUND"
    assert "missing.toml" in str(refused.value)


@pytest.mark.parametrize("text", ["partitions", "=4", ""])
def test_an_assignment_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(AJoinError, match="key=value"):
        parse_assignments([text])


def test_a_wrong_variable_names_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AJOIN_PARTITIONS", "lots")
    with pytest.raises(AJoinError, match="environment AJOIN_PARTITIONS"):
        load()
