"""A reader of server-sent events, by the rules of the HTML standard, section 9.2."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.site import PATIENCE_SECONDS, Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One event; `content` is its data, read as JSON. A comment is an event of the kind `comment`."""

    kind: str
    id: str | None
    content: dict[str, Any]


class Stream:
    """What is heard over one response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> Heard | None:
        """The next event, whatever its kind; None when the stream has ended, or was cut off."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            fields: dict[str, str] = {}
            try:
                async for line in self._lines:
                    if line.startswith(":"):
                        return Heard(kind="comment", id=None, content={})
                    if line:
                        name, _, value = line.partition(":")
                        fields[name] = value.removeprefix(" ")
                    elif "data" in fields:
                        return Heard(
                            kind=fields.get("event", "message"),
                            id=fields.get("id"),
                            content=json.loads(fields["data"]),
                        )
                    else:
                        fields = {}
            except httpx.RemoteProtocolError:
                pass
            return None

    async def events(self, count: int) -> list[Heard]:
        """That many events, of which the last may be the end; fails when there are fewer."""
        found: list[Heard] = []
        while len(found) < count:
            heard = await self.next()
            assert heard is not None, f"the stream ended after {found}"
            if heard.kind != "comment":
                found.append(heard)
        return found

    async def rest(self) -> list[Heard]:
        """Whatever comes until the stream ends."""
        found: list[Heard] = []
        while (heard := await self.next()) is not None:
            if heard.kind != "comment":
                found.append(heard)
        return found


def reading_client(site: Site) -> httpx.AsyncClient:
    """For any number of streams at once."""
    return httpx.AsyncClient(
        base_url=site.api_url,
        headers={"authorization": f"Bearer {site.key}"},
        trust_env=False,
        timeout=PATIENCE_SECONDS,
        limits=httpx.Limits(max_connections=None),
    )


@asynccontextmanager
async def following(
    site: Site, job_id: str, *, after: str | None = None, client: httpx.AsyncClient | None = None
) -> AsyncIterator[Stream]:
    if client is None:
        async with reading_client(site) as own, following(site, job_id, after=after, client=own) as stream:
            yield stream
        return
    headers = {} if after is None else {"last-event-id": after}
    async with client.stream("GET", f"/api/v1/jobs/{job_id}/events", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)
