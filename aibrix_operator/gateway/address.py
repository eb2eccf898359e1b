"""Where a server of the gateway listens, in the form that both Envoy's configuration and asyncio are told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP port, or a Unix socket (``path``), which costs less where both ends share a file system."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """``unix:/run/x.sock``, ``127.0.0.1:80``, ``[::1]:80``. ValueError for anything else."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path.startswith("/"):
                raise ValueError(f"{text!r} is no address: a Unix socket is named by its whole path, unix:/run/x.sock")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise ValueError(f"{text!r} is no address: host:port or unix:/path is wanted")
        return cls(host=host.removeprefix("[").removesuffix("]"), port=int(port))

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
