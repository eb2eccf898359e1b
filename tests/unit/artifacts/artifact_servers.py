"""Stand-ins for those who hold artifacts: a bucket server (S3's calls, which GCS speaks too), a hub, a web server."""

import hashlib
from xml.sax.saxutils import escape

from aiohttp import web
from aiohttp.test_utils import TestServer


class Shelf:
    """Files by name, and how the server behaves. ``cut_after`` ends answers after so many bytes, as often as told."""

    def __init__(self, files):
        self.files = dict(files)
        self.asked = []
        """(method, path, Range, Authorization) of every request."""
        self.status = 0
        """Answer everything with this status instead."""
        self.cut_after = []
        self.ignores_ranges = False
        self.knows_head = True
        self.tells_sizes = True

    def etag(self, name):
        return f'"{hashlib.sha256(self.files[name]).hexdigest()[:16]}"'

    def note(self, request):
        headers = request.headers
        self.asked.append((request.method, request.path, headers.get("Range"), headers.get("Authorization")))
        if self.status:
            raise web.HTTPException if self.status < 400 else _error(self.status)

    def gets(self, name):
        return [each for each in self.asked if each[0] == "GET" and each[1].endswith(name)]

    async def file(self, request, name):
        """One file, with Range, If-Match, and answers that end early."""
        if name not in self.files:
            raise _error(404)
        if request.headers.get("If-Match", self.etag(name)) != self.etag(name):
            raise _error(412)
        content, status = self.files[name], 200
        headers = {"ETag": self.etag(name), "Last-Modified": "Mon, 30 Nov 2026 00:00:00 GMT"}
        wanted = request.headers.get("Range")
        if wanted and not self.ignores_ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = int(last) + 1 if last else len(content)
            if int(first) >= len(content):
                raise _error(416)
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
            content, status = content[int(first) : end], 206
        if request.method == "HEAD":
            size = {"Content-Length": str(len(content))} if self.tells_sizes else {}
            return web.Response(status=status, headers={**headers, **size})
        if not self.cut_after:
            return web.Response(status=status, body=content, headers=headers)
        response = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(content))})
        await response.prepare(request)
        await response.write(content[: self.cut_after.pop(0)])
        request.transport.abort()
        return response


def _error(status):
    return type("Refusal", (web.HTTPException,), {"status_code": status})(text=f"refused with {status}")


class BucketServer(Shelf):
    """``/<bucket>?list-type=2&prefix=…`` and ``/<bucket>/<key>``."""

    def app(self):
        app = web.Application()
        app.router.add_get("/{bucket}", self._list)
        app.router.add_get("/{bucket}/", self._list)
        app.router.add_get("/{bucket}/{key:.+}", self._get)
        return app

    async def _list(self, request):
        self.note(request)
        prefix = request.query.get("prefix", "")
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-11-30T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(self.etag(name))}</ETag><Size>{len(content)}</Size></Contents>"
            for name, content in sorted(self.files.items())
            if name.startswith(prefix)
        )
        text = f'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>'
        return web.Response(text=text, content_type="application/xml")

    async def _get(self, request):
        self.note(request)
        return await self.file(request, request.match_info["key"])


class Hub(Shelf):
    """One repository, ``org/name``."""

    sha = "0123456789abcdef0123456789abcdef01234567"

    def app(self):
        app = web.Application()
        app.router.add_get("/api/models/org/name/revision/{revision}", self._revision)
        app.router.add_get("/org/name/resolve/{revision}/{path:.+}", self._resolve)
        return app

    async def _revision(self, request):
        self.note(request)
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": self.etag(name)} for name, content in self.files.items()
        ]
        return web.json_response({"sha": self.sha, "siblings": siblings})

    async def _resolve(self, request):
        self.note(request)
        if request.match_info["revision"] != self.sha:
            raise _error(404)
        return await self.file(request, request.match_info["path"])


class WebServer(Shelf):
    """``/files/<name>``."""

    def app(self):
        app = web.Application()
        app.router.add_get("/files/{name}", self._get, allow_head=False)
        if self.knows_head:
            app.router.add_head("/files/{name}", self._get)
        return app

    async def _get(self, request):
        self.note(request)
        return await self.file(request, request.match_info["name"])


async def serving(shelf):
    """A started server; ``str(server.make_url(""))`` is its address."""
    server = TestServer(shelf.app())
    await server.start_server()
    return server
