"""A Hugging Face hub on this machine: the HTTP routes with which huggingface_hub creates, fills and reads models."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_" + "0" * 34
REGULAR_BYTES = 10_000
"""Larger files, and weights of any size, are uploaded as large-file-storage objects."""


@dataclass
class StoredModel:
    """One repository: its files at its last commit."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)


class HubServer(ThreadingHTTPServer):
    """The repositories by name, the large objects by SHA-256, and the requests that were made."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models: dict[str, StoredModel] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """A hub that answers until the end of the context."""
    server = HubServer()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def _answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, message: str) -> None:
        self._answer({"error": message}, status, X_Error_Message=message)

    def _handle(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append(f"{self.command} {path}")
        for method, pattern, action in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method:
                if self.command == "POST" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    self._refuse(401, "Invalid username or password.")
                    return
                action(self, body, **match.groupdict())
                return
        self._refuse(404, f"no route {path}")

    do_GET = do_HEAD = do_POST = do_PUT = _handle

    # ------------------------------------------------------------ upload

    def create(self, body: bytes) -> None:
        request = json.loads(body)
        name = f"{request['organization']}/{request['name']}"
        if name in self.server.models:
            self._answer({"error": "You already created this model repo", "url": f"{self.server.url}/{name}"}, 409)
            return
        self.server.models[name] = StoredModel(private=request.get("visibility") == "private")
        self._answer({"url": f"{self.server.url}/{name}", "name": name})

    def check_card(self, body: bytes) -> None:
        self._answer({"errors": [], "warnings": []})

    def preupload(self, body: bytes, name: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["size"] > REGULAR_BYTES or "safetensors" in file["path"] else "regular",
                "shouldIgnore": False,
                "oid": None,
            }
            for file in json.loads(body)["files"]
        ]
        self._answer({"files": files})

    def lfs_batch(self, body: bytes, name: str) -> None:
        objects = [
            {**item, "actions": {"upload": {"href": f"{self.server.url}/objects/{item['oid']}"}}}
            for item in json.loads(body)["objects"]
        ]
        self._answer({"transfer": "basic", "objects": objects})

    def store(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.objects[oid] = body
        self._answer({})

    def commit(self, body: bytes, name: str) -> None:
        model = self.server.models[name]
        for operation in map(json.loads, body.splitlines()):
            value = operation["value"]
            if operation["key"] == "file":
                model.files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                model.files[value["path"]] = self.server.objects[value["oid"]]
        model.commits.append(hashlib.sha1(body).hexdigest())
        self._answer(
            {"commitUrl": f"{self.server.url}/{name}/commit/{model.commits[-1]}", "commitOid": model.commits[-1]}
        )

    # ------------------------------------------------------------ download

    def info(self, body: bytes, name: str) -> None:
        if name not in self.server.models:
            self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            return
        model = self.server.models[name]
        siblings = [{"rfilename": path} for path in model.files]
        self._answer({"id": name, "sha": model.commits[-1], "private": model.private, "siblings": siblings, "tags": []})

    def tree(self, body: bytes, name: str) -> None:
        files = self.server.models[name].files
        self._answer(
            [{"type": "file", "path": path, "size": len(content), "oid": "0" * 40} for path, content in files.items()]
        )

    def resolve(self, body: bytes, name: str, path: str) -> None:
        model = self.server.models[name]
        content = model.files[path]
        digest = hashlib.sha256(content).hexdigest()
        self._answer(content, ETag=f'"{digest}"', X_Repo_Commit=model.commits[-1])


NAME = r"(?P<name>[\w.-]+/[\w.-]+)"
ROUTES: list[tuple[tuple[str, ...], str, Any]] = [
    (("POST",), "/api/repos/create", _Handler.create),
    (("POST",), "/api/validate-yaml", _Handler.check_card),
    (("POST",), f"/api/models/{NAME}/preupload/main", _Handler.preupload),
    (("POST",), rf"/{NAME}\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    (("PUT",), r"/objects/(?P<oid>[0-9a-f]{64})", _Handler.store),
    (("POST",), f"/api/models/{NAME}/commit/main", _Handler.commit),
    (("GET",), f"/api/models/{NAME}/tree/[^/]+", _Handler.tree),
    (("GET",), rf"/api/models/{NAME}(/revision/[^/]+)?", _Handler.info),
    (("GET", "HEAD"), rf"/{NAME}/resolve/[^/]+/(?P<path>.+)", _Handler.resolve),
]
