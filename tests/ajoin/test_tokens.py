"""The token file: what `ajoin token` writes, the service reads; what is wrong with it is said."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ajoin.cli import app
from ajoin.platform.tenancy import Quota
from ajoin.service.tokens import Caller, Role, TokenFile, create_token, digest, read_tokens
from optimizer.errors import AJoinError

HASH = "sha256:" + "0" * 64


def ajoin(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_a_created_token_is_found_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "tokens.toml"
    token = ajoin("token", "create", "--role", "write", "--tenant", "a", "--name", "etl", "--file", str(file)).strip()
    assert token.startswith("ajoin_") and len(token) > 40
    assert token not in file.read_text() and digest(token) in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert TokenFile(file).find(token) == Caller("etl", Role.write, "a")
    assert TokenFile(file, Quota(7)).find(token) == Caller("etl", Role.write, "a", Quota(7))
    assert TokenFile(file).find(token + "x") is None
    made = json.loads(ajoin("token", "create", "--role", "admin", "--file", str(file), "--json"))
    assert TokenFile(file).find(made["token"]).role is Role.admin
    assert TokenFile(file).find(token) is not None, "what was there stays"
    listed = json.loads(ajoin("token", "list", "--file", str(file), "--json"))
    assert [(t["name"], t["role"], t["tenant"]) for t in listed] == [("etl", "write", "a"), (made["name"], "admin", "")]
    assert "etl" in ajoin("token", "list", "--file", str(file))


def test_comments_and_quotas_survive_a_new_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text("# ours\n[tenant.a]\nmax_queries = 0\n")
    token = create_token(file, "x", Role.read, "a")
    assert file.read_text().startswith("# ours\n")
    assert TokenFile(file).find(token) == Caller("x", Role.read, "a", Quota(0))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--role", "admin", "--tenant", "a"), "ADMIN_WITH_TENANT"),
        (("--role", "read", "--tenant", "a/b"), "INVALID_NAME"),
        (("--role", "read", "--name", "taken"), "TOKEN_EXISTS"),
    ],
)
def test_what_cannot_be_created(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    file = tmp_path / "tokens.toml"
    create_token(file, "taken", Role.read)
    before = file.read_text()
    assert reason in ajoin("token", "create", *arguments, "--file", str(file), code=1)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("token = 1", "[[token]]"),
        ("tokens = []", "'tokens'"),
        ("[[token]]\nrole = 'read'", "hash"),
        (f"[[token]]\nhash = '{HASH}'\nrole = 'root'", "'root'"),
        (f"[[token]]\nhash = '{HASH}'\nrole = 'read'\nrol = 'x'", "only name"),
        (f"[[token]]\nhash = '{HASH}'\nrole = 'read'\ntenant = 1", "texts"),
        (f"[[token]]\nhash = '{HASH}'\nrole = 'read'\ntenant = '../x'", "tenant"),
        (f"[[token]]\nhash = '{HASH}'\nrole = 'admin'\ntenant = 'a'", "an admin has none"),
        (2 * f"[[token]]\nhash = '{HASH}'\nrole = 'read'\n", "another"),
        ("[tenant.a]\nmax_queries = -1", "max_queries"),
        ("[tenant.a]\nmax_streams = true", "max_streams"),
        ("[tenant.a]\nmax = 1", "max_queries"),
        ("tenant = 1", "'tenant'"),
        ("= =", "TOML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(AJoinError) as refused:
        read_tokens(file)
    assert words in str(refused.value)


def test_serving_elsewhere_without_protection_ends_before_anything_starts(tmp_path: Path) -> None:
    flags = ["serve", "--listen", "0.0.0.0:0", "--state-dir", str(tmp_path / "state"), "--set", "executor=local"]
    assert "CONFIG_INSECURE" in ajoin(*flags, code=2)
    assert "CONFIG_TLS" in ajoin(*flags, "--tls-cert", "cert.pem", code=2)
    assert "CONFIG_TLS" in ajoin(*flags, "--tls-cert", "none.pem", "--tls-key", "none.key", code=2)
    assert "CONFIG_NOT_FOUND" in ajoin(*flags, "--token-file", str(tmp_path / "none.toml"), code=2)
    assert not (tmp_path / "state").exists()
