from __future__ import annotations

import hmac
import os
import stat
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from algorithm.config.schema import NetConfig
from algorithm.core.errors import StorageError, UsageError
from ds import certificates
from ds.protocol import TOKEN_HEADER, LearnerRefused, Unreachable
from ds.security import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    TOKEN,
    ActorSecurity,
    LearnerSecurity,
    actor_security,
    is_loopback,
    learner_security,
    make_token,
)
from ds.wire import encode
from tests.ds.samples import HELLO, WELCOME
from tests.ds.talking import HOST, actor, channel, learner, send

ELSEWHERE = "192.0.2.7"


def Net(secrets: str, insecure: bool = False) -> NetConfig:  # noqa: N802
    return NetConfig(secrets=secrets, insecure=insecure)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Token and certificates for this machine."""
    path = tmp_path_factory.mktemp("secrets")
    assert certificates.main([HOST, "localhost", "--folder", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def secured(folder: Path) -> tuple[LearnerSecurity, ActorSecurity]:
    """What both sides need beyond this machine."""
    net = Net(str(folder))
    return learner_security(net, ELSEWHERE), actor_security(net, ELSEWHERE)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(port: int, security: ActorSecurity, host: str = HOST) -> LearnerRefused:
    with actor(port, security, host=host) as client, pytest.raises(LearnerRefused) as caught:
        client.hello(HELLO)
    assert caught.value.exit_code == 3
    return caught.value


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_on_this_machine_nothing_is_needed(host: str, tmp_path: Path) -> None:
    net = Net(str(tmp_path / "none"))
    assert learner_security(net, host) == LearnerSecurity()
    assert actor_security(net, host) == ActorSecurity()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", "127.1"]
)
def test_anything_else_may_be_another_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.fault("F18")
def test_beyond_this_machine_a_learner_needs_certificates(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        learner_security(Net(str(tmp_path)), ELSEWHERE)
    assert f"python -m ds.certificates {ELSEWHERE} --folder {tmp_path}" in caught.value.fix
    assert "net_config.insecure=true" in caught.value.fix
    assert caught.value.where == str(tmp_path / CERTIFICATE)
    with pytest.raises(UsageError, match=r"python -m ds\.certificates HOST "):
        learner_security(Net(str(tmp_path)), "0.0.0.0")


@pytest.mark.fault("F18")
@pytest.mark.parametrize("missing", [TOKEN, AUTHORITY])
def test_beyond_this_machine_an_actor_needs_two_files(missing: str, tmp_path: Path) -> None:
    certificates.make(tmp_path, [HOST], days=1)
    (tmp_path / missing).unlink()
    with pytest.raises(UsageError) as caught:
        actor_security(Net(str(tmp_path)), ELSEWHERE)
    assert caught.value.where == str(tmp_path / missing)
    assert "copy it from the learner's machine" in caught.value.fix


def test_plain_text_by_an_explicit_flag_still_needs_the_token_and_says_so(tmp_path: Path) -> None:
    net = Net(str(tmp_path), insecure=True)
    security = learner_security(net, ELSEWHERE)
    assert security.banner is not None
    assert f"PLAIN TEXT: the learner listens at {ELSEWHERE} without TLS" in security.banner
    assert actor_security(net, ELSEWHERE) == ActorSecurity(token=security.token)
    assert actor_security(net, "127.0.0.1") == ActorSecurity(token=security.token), (
        "it may be asked for here too"
    )
    assert actor_security(Net(str(tmp_path)), "127.0.0.1") == ActorSecurity(), "not without saying so"
    with learner(security) as one, actor(one.port, actor_security(net, ELSEWHERE)) as client:
        assert client.hello(HELLO) == WELCOME


def test_the_token_is_drawn_once_and_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = make_token(tmp_path / "new" / "folder")
    finally:
        os.umask(old)
    path = tmp_path / "new" / "folder" / TOKEN
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert len(token) >= 32
    assert make_token(path.parent) == token
    assert make_token(tmp_path / "other") != token
    assert (path.parent / ".gitignore").read_text("ascii") == "*\n"


def test_a_token_is_never_written_over_a_file_or_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / TOKEN).symlink_to(target)
    with pytest.raises(UsageError):
        make_token(tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("content", ["", "\n", "two words", "käse", "a\x07b"])
def test_a_token_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    make_token(tmp_path)
    (tmp_path / TOKEN).write_text(content, "utf-8")
    with pytest.raises(UsageError, match="this is no token"):
        make_token(tmp_path)


@pytest.mark.parametrize("name", [TOKEN, KEY])
def test_a_secret_that_everybody_can_read_is_refused(name: str, tmp_path: Path) -> None:
    certificates.make(tmp_path, [HOST], days=1)
    (tmp_path / name).chmod(0o644)
    with pytest.raises(UsageError, match=f"chmod 600 {tmp_path / name}"):
        learner_security(Net(str(tmp_path)), ELSEWHERE)


@pytest.mark.parametrize("name", [CERTIFICATE, KEY])
def test_a_certificate_that_its_key_does_not_belong_to_is_refused(name: str, tmp_path: Path) -> None:
    certificates.make(tmp_path / "a", [HOST], days=1)
    certificates.make(tmp_path / "b", [HOST], days=1)
    path = tmp_path / "a" / name
    for content in ((tmp_path / "b" / name).read_bytes(), b"", b"rubbish"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="certificate and key cannot be used"):
            learner_security(Net(str(path.parent)), ELSEWHERE)


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for make in (make_token, lambda folder: certificates.make(folder, [HOST], days=1)):
        with pytest.raises(StorageError):
            make(tmp_path / "file")


def test_secrets_do_not_show_where_settings_are_printed(
    secured: tuple[LearnerSecurity, ActorSecurity],
) -> None:
    for one in secured:
        assert one.token is not None
        assert one.token not in repr(one)
    assert "PRIVATE" not in repr(secured[0])


@pytest.mark.fault("F18")
def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(hmac, "compare_digest", compare)
    with learner(LearnerSecurity(token="right")) as one, channel(one.port) as bare:
        for value in ("Bearer right", "Bearer righ", "Bearer rightt", "bearer right", "right", "Bearer \xe9"):
            answer = send(bare, "Hello", encode(HELLO), metadata=((TOKEN_HEADER, value.encode("latin-1")),))
            assert (answer is None) == (value == "Bearer right")
        twice = ((TOKEN_HEADER, "Bearer right"),) * 2
        assert send(bare, "Hello", encode(HELLO), metadata=twice) is not None
    assert {b for _, b in compared} == {b"Bearer right"}
    assert len(compared) >= 6


@pytest.mark.fault("F16")
@pytest.mark.fault("F18")
def test_a_stranger_is_sent_away_before_its_message_is_read() -> None:
    with learner(LearnerSecurity(token="right")) as one, channel(one.port) as bare:
        answer = send(bare, "Deliver", bytes(2**19))
        assert answer == (grpc.StatusCode.UNAUTHENTICATED, "wrong token or none")
        assert one.kinds == ["unauthenticated"]


@pytest.mark.fault("F18")
def test_who_has_token_and_certificate_talks_and_who_has_not_is_told_why(
    secured: tuple[LearnerSecurity, ActorSecurity], tmp_path: Path
) -> None:
    """Wrong tokens, plain text, an authority of others or none, TLS to plain text, a learner that is away."""
    token, trusted = secured[1].token, secured[1].authority
    certificates.make(tmp_path, [HOST], days=1)
    with learner(secured[0]) as one:
        for host in (HOST, "localhost"):
            with actor(one.port, secured[1], host=host) as client:
                assert client.hello(HELLO) == WELCOME
        assert one.faults == []
        one.notes.seen.clear()
        for wrong in (None, "", "wrong"):
            error = refusal(one.port, ActorSecurity(wrong, trusted))
            assert error.why == "wrong token or none"
            assert error.fix.startswith("copy the file token from the learner's net_config.secrets;")
        assert one.kinds == ["unauthenticated"] * 3 and one.faults[0][1].startswith("127.0.0.1:")
        error = refusal(one.port, ActorSecurity(token))
        assert error.why == "the learner speaks TLS, this actor plain text"
        assert "net_config.insecure" in error.fix
        error = refusal(one.port, ActorSecurity(token, (tmp_path / AUTHORITY).read_bytes()))
        assert "the learner's certificate is not trusted: " in error.why and "ca.pem" in error.fix
        for none in (b"", b"rubbish", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            assert "ca.pem" in refusal(one.port, ActorSecurity(token, none)).fix
        assert one.notes.seen == []
    with actor(one.port, secured[1]) as client, pytest.raises(Unreachable):
        client.hello(HELLO)
    with learner(LearnerSecurity(token=token)) as one:
        assert refusal(one.port, secured[1]).why == "this actor speaks TLS, the learner plain text"


@pytest.mark.fault("F18")
@pytest.mark.parametrize(
    ("host", "days", "why"),
    [("learner.example.org", 1, "not valid for '127.0.0.1'"), (HOST, -1, "certificate has expired")],
)
def test_a_certificate_for_another_host_or_time_is_refused(
    host: str, days: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "_SKEW", timedelta(days=9))
    certificates.make(tmp_path, [host], days=days)
    files = [(tmp_path / name).read_bytes() for name in (CERTIFICATE, KEY)]
    with learner(LearnerSecurity(make_token(tmp_path), *files)) as one:  # it was valid when it started
        assert why in refusal(one.port, actor_security(Net(str(tmp_path)), ELSEWHERE)).why


def test_the_command_makes_all_files_and_says_where_they_belong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [HOST, "learner.example.org", "bücher.example", "--folder", str(tmp_path), "--days", "30"]
    assert certificates.main(command) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        TOKEN,
        AUTHORITY,
        CERTIFICATE,
        KEY,
        ".gitignore",
    }
    assert [mode(tmp_path / name) for name in (TOKEN, KEY)] == [0o600, 0o600]
    assert f"copy {tmp_path / TOKEN} and {tmp_path / AUTHORITY}" in capsys.readouterr().out


def test_the_command_does_not_replace_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [HOST, "--folder", str(tmp_path)]
    assert certificates.main(command) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert certificates.main(command) == 2
    assert "add --replace" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert certificates.main([*command, "--replace"]) == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {AUTHORITY, CERTIFICATE, KEY}


def test_the_command_refuses_what_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certificates.main([f"{'a' * 70}.org", "--folder", str(tmp_path)]) == 2
    assert "this is no host" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        certificates.main([HOST, "--days", "0"])


@pytest.mark.fault("F33")
@pytest.mark.parametrize("file", [CERTIFICATE, AUTHORITY])
def test_a_certificate_that_has_expired_is_refused_at_the_learners_start(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two: an authority is what actors trust."""
    for folder, days in ((tmp_path, 30), (tmp_path / "old", -3)):
        with monkeypatch.context() as patch:
            patch.setattr(certificates, "_SKEW", timedelta(days=9))
            certificates.make(folder, [HOST], days=days)
    for name in (CERTIFICATE, KEY) if file == CERTIFICATE else (AUTHORITY,):
        (tmp_path / name).unlink()
        (tmp_path / "old" / name).rename(tmp_path / name)
    with pytest.raises(UsageError, match="the learner's certificate has expired") as caught:
        learner_security(Net(str(tmp_path)), ELSEWHERE)
    assert caught.value.exit_code == 2 and caught.value.where == str(tmp_path / file)
    assert "no actor would trust it" in caught.value.why and "--replace" in caught.value.fix


@pytest.mark.fault("F33")
def test_a_certificate_of_tomorrow_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_SKEW", timedelta(days=-1))
    certificates.make(tmp_path, [HOST], days=9)
    with pytest.raises(UsageError, match="is not valid yet") as caught:
        learner_security(Net(str(tmp_path)), ELSEWHERE)
    assert "set this machine's clock" in caught.value.fix


@pytest.mark.fault("F33")
@pytest.mark.parametrize(
    ("days", "told"), [(8, None), (7, "expires in 7 days: "), (1, "expires in 24 hours: ")]
)
def test_a_certificate_that_expires_within_a_week_is_told_of(
    days: int, told: str | None, tmp_path: Path
) -> None:
    certificates.make(tmp_path, [HOST], days=days)
    banner = learner_security(Net(str(tmp_path)), ELSEWHERE).banner
    assert banner is None if told is None else told in (banner or "") and "ds.certificates" in (banner or "")
