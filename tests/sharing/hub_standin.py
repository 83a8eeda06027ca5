"""A stand-in for the Hugging Face hub on this machine, with the routes of an upload and a download."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories in memory.

    created: what was asked for at ``create``; files: repository → name → content; commits: how many
    refuses: status and path with which it refuses; tokens: what was shown
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.created: list[dict] = []
        self.files: dict[str, dict[str, bytes]] = {}
        self.commits: list[str] = []
        self.cards: list[str] = []
        self.tokens: set[str | None] = set()
        self.refuses: tuple[int, str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hub = self.server
        hub.tokens.add(self.headers.get("Authorization"))
        if hub.refuses and hub.refuses[1] in self.path:
            self._answer(hub.refuses[0], {"error": "not for you"})
        elif self.path == "/api/repos/create":
            asked = json.loads(body)
            hub.created.append(asked)
            self._answer(200, {"url": f"{hub.address}/{asked['organization']}/{asked['name']}"})
        elif self.path == "/api/validate-yaml":
            hub.cards.append(json.loads(body)["content"])
            self._answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            self._answer(200, {"files": files})
        elif "/commit/" in self.path:
            self._commit(body)
        else:
            self._answer(404, {"error": f"no route {self.path}"})

    def _commit(self, body: bytes) -> None:
        repository = "/".join(self.path.split("/")[3:5])
        lines = [json.loads(line) for line in body.splitlines()]
        files = self.server.files.setdefault(repository, {})
        for line in lines:
            if line["key"] == "header":
                self.server.commits.append(line["value"]["summary"])
            elif line["key"] == "file":
                assert line["value"]["encoding"] == "base64"
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        self._answer(200, {"commitOid": COMMIT, "commitUrl": f"{self.server.address}/{repository}"})

    def do_HEAD(self) -> None:
        self._file(with_content=False)

    def do_GET(self) -> None:
        self._file(with_content=True)

    def _file(self, *, with_content: bool) -> None:
        repository, _, file = self.path.lstrip("/").partition("/resolve/main/")
        data = self.server.files.get(repository, {}).get(file)
        if data is None:
            return self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        headers = {"ETag": '"abc"', "X-Repo-Commit": COMMIT}
        return self._send(200, data, headers, with_content=with_content)

    def _answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        more = {"Content-Type": "application/json", **(headers or {})}
        self._send(status, json.dumps(content).encode(), more, with_content=self.command != "HEAD")

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, with_content: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(data)


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers while the block lasts."""
    hub = Hub()
    thread = Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
