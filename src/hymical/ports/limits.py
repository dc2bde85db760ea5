"""How many posts came lately, counted for all processes together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from hymical.domain.errors import RateLimited
from hymical.domain.ids import FormId
from hymical.domain.limits import RateLimit, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What a limit is counted by. One key comes with one limit, and is a source's or a form's, never both."""

    key: bytes
    limit: RateLimit

    @classmethod
    def of_source(cls, digest: bytes, limit: RateLimit) -> "Bucket":
        return cls(key=digest + _size(limit), limit=limit)

    @classmethod
    def of_form(cls, form_id: FormId, limit: RateLimit) -> "Bucket":
        # no source's begins like this, for a digest is random
        return cls(key=b"form:" + form_id.encode() + _size(limit), limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One post: it takes from its source's bucket and then from its form's; None is not limited."""

    source: Bucket | None = None
    form: Bucket | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How the buckets stand for one post; None for one that it was not asked of, or did not get to."""

    source: Standing | None = None
    form: Standing | None = None

    @property
    def refusal(self) -> RateLimited | None:
        found = self.standing
        return None if found is None or found.allowed else RateLimited(found.retry_after)

    @property
    def standing(self) -> Standing | None:
        """What is told of it: the bucket that refuses, else the source's."""
        return self.source if self.form is None or self.form.allowed else self.form


class RateLimiter(Protocol):
    async def spend(self, asked: Sequence[Asked]) -> Sequence[Decision]:
        """Decides for each post, in order, whether its buckets have room, and takes what it is allowed.

        A post that its source's bucket refuses takes nothing from its form's, so that one source cannot use
        up a form for all others; one that its form's bucket refuses has spent its source's.

        To be called once in a transaction, if in one at all: whoever holds a bucket holds it until that ends.
        """
        ...


@cache
def _size(limit: RateLimit) -> bytes:
    # part of the key: what was spent of a bucket says nothing about one of another size
    return f":{limit.requests}/{limit.interval}".encode()
