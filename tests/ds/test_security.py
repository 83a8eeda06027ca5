import hmac
import os
import stat
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from algorithm.config.schema import NetConfig
from algorithm.core.errors import UsageError
from ds import certificates
from ds.net.protocol import TOKEN_HEADER, LearnerRefused, Unreachable, Welcome
from ds.net.security import (
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
from ds.net.wire import encode
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


def refusal(port: int, security: ActorSecurity) -> str:
    """The reason that an actor with these secrets is told."""
    with actor(port, security) as client, pytest.raises(LearnerRefused) as caught:
        client.ask(HELLO, Welcome)
    return str(caught.value.why)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "LOCALHOST"])
def test_on_this_machine_nothing_is_needed(host: str, tmp_path: Path) -> None:
    net = Net(str(tmp_path / "none"))
    assert learner_security(net, host) == LearnerSecurity()
    assert actor_security(net, host) == ActorSecurity()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.1"])
def test_anything_else_may_be_another_machine(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.fault("F18")
def test_beyond_this_machine_each_side_needs_its_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"python -m ds.certificates {ELSEWHERE} --folder {tmp_path}"):
        learner_security(Net(str(tmp_path)), ELSEWHERE)
    certificates.make(tmp_path, [HOST], days=1)
    for name in (AUTHORITY, TOKEN):
        (tmp_path / name).unlink()
        with pytest.raises(UsageError, match="copy it from the learner's machine") as caught:
            actor_security(Net(str(tmp_path)), ELSEWHERE)
        assert caught.value.where == str(tmp_path / name)


def test_plain_text_by_an_explicit_flag_still_needs_the_token_and_says_so(tmp_path: Path) -> None:
    net = Net(str(tmp_path), insecure=True)
    security = learner_security(net, ELSEWHERE)
    assert security.banner is not None and "PLAIN TEXT" in security.banner
    assert actor_security(net, ELSEWHERE) == ActorSecurity(token=security.token)
    with learner(security) as one, actor(one.port, actor_security(net, ELSEWHERE)) as client:
        assert client.ask(HELLO, Welcome) == WELCOME


def test_on_this_machine_the_token_is_asked_for_where_one_was_made(tmp_path: Path) -> None:
    net, at = Net(str(tmp_path)), "127.0.0.1"
    token = make_token(tmp_path)
    assert learner_security(net, at) == LearnerSecurity(token=token)
    assert actor_security(net, at) == ActorSecurity(token=token)


def test_the_token_is_drawn_once_and_its_owners_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = make_token(tmp_path / "new" / "folder")
    finally:
        os.umask(old)
    path = tmp_path / "new" / "folder" / TOKEN
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert len(token) >= 32 and make_token(path.parent) == token != make_token(tmp_path / "other")
    path.unlink()
    path.symlink_to(tmp_path / "target")
    with pytest.raises(UsageError):
        make_token(path.parent)
    assert not (tmp_path / "target").exists(), "never through a link"


@pytest.mark.parametrize("content", ["", "two words", "käse", "a\x07b"])
def test_a_token_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    make_token(tmp_path)
    (tmp_path / TOKEN).write_text(content, "utf-8")
    with pytest.raises(UsageError, match="this is not a token"):
        make_token(tmp_path)


def test_secrets_that_others_can_read_or_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    certificates.make(tmp_path, [HOST], days=1)
    certificates.make(tmp_path / "other", [HOST], days=1)
    for name in (TOKEN, KEY):
        (tmp_path / name).chmod(0o644)
        with pytest.raises(UsageError, match=f"chmod 600 {tmp_path / name}"):
            learner_security(Net(str(tmp_path)), ELSEWHERE)
        (tmp_path / name).chmod(0o600)
    for content in ((tmp_path / "other" / KEY).read_bytes(), b"rubbish"):
        (tmp_path / KEY).write_bytes(content)
        with pytest.raises(UsageError, match="certificate and key cannot be used"):
            learner_security(Net(str(tmp_path)), ELSEWHERE)


@pytest.mark.fault("F18")
def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or compare(a, b))
    with learner(LearnerSecurity(token="right")) as one, channel(one.port) as bare:
        for value in ("Bearer right", "Bearer righ", "Bearer rightt", "bearer right", "right", "Bearer \xe9"):
            answer = send(bare, "Hello", encode(HELLO), metadata=((TOKEN_HEADER, value.encode("latin-1")),))
            assert (answer is None) == (value == "Bearer right")
        twice = ((TOKEN_HEADER, "Bearer right"),) * 2
        assert send(bare, "Hello", encode(HELLO), metadata=twice) is not None
    assert set(compared) == {b"Bearer right"} and len(compared) == 5


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
                assert client.ask(HELLO, Welcome) == WELCOME
        one.notes.seen.clear()
        for wrong in (None, "", "wrong"):
            assert refusal(one.port, ActorSecurity(wrong, trusted)) == "wrong token or none"
        assert one.kinds == ["unauthenticated"] * 3
        assert "uses TLS, this actor plain" in refusal(one.port, ActorSecurity(token))
        others = ActorSecurity(token, (tmp_path / AUTHORITY).read_bytes())
        assert "certificate is not trusted" in refusal(one.port, others)
        assert "holds no certificate" in refusal(one.port, ActorSecurity(token, b"rubbish"))
        assert one.notes.seen == []
    with actor(one.port, secured[1]) as client, pytest.raises(Unreachable):
        client.ask(HELLO, Welcome)
    with learner(LearnerSecurity(token=token)) as one:
        assert "uses TLS, the learner plain" in refusal(one.port, secured[1])


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
        assert why in refusal(one.port, actor_security(Net(str(tmp_path)), ELSEWHERE))


def test_the_command_makes_all_files_and_does_not_replace_them_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [HOST, "books.example", "--folder", str(tmp_path), "--days", "30"]
    assert certificates.main(command) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {TOKEN, AUTHORITY, CERTIFICATE, KEY, ".gitignore"}
    assert [mode(tmp_path / name) for name in (TOKEN, KEY)] == [0o600, 0o600]
    assert certificates.main(command) == 2
    assert "add --replace" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert certificates.main([*command, "--replace"]) == 0
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {AUTHORITY, CERTIFICATE, KEY}
    assert certificates.main(["a b", "--folder", str(tmp_path / "other")]) == 2
    with pytest.raises(SystemExit, match="2"):
        certificates.main([HOST, "--days", "3000000"])


@pytest.mark.parametrize("host", ["learner:8000", "http://learner/", "a b", "", "-a"])
def test_a_certificate_is_for_a_name_or_an_address(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this is not a host"):
        certificates.make(tmp_path / "x", [host], days=1)
    certificates.make(tmp_path / "y", ["learner", "gpu-1.example.org", "*.example.org", "::1"], days=1)


@pytest.mark.fault("F33")
@pytest.mark.parametrize(
    ("skew", "days", "file", "said"),
    [
        (9, -3, CERTIFICATE, "has expired"),
        (9, -3, AUTHORITY, "has expired"),
        (-1, 9, CERTIFICATE, "is not valid yet"),
    ],
)
def test_a_certificate_of_another_time_is_refused_at_the_learners_start(
    skew: int, days: int, file: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the learner, or of the authority that actors trust."""
    certificates.make(tmp_path, [HOST], days=30)
    monkeypatch.setattr(certificates, "_SKEW", timedelta(days=skew))
    certificates.make(tmp_path / "other", [HOST], days=days)
    for name in (CERTIFICATE, KEY) if file == CERTIFICATE else (AUTHORITY,):
        (tmp_path / "other" / name).replace(tmp_path / name)
    with pytest.raises(UsageError, match=said) as caught:
        learner_security(Net(str(tmp_path)), ELSEWHERE)
    assert caught.value.where == str(tmp_path / file)
