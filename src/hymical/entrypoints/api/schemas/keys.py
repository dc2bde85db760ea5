"""Keys to this API on the wire."""

from pydantic import BaseModel, ConfigDict, Field

from hymical.domain.keys import Key
from hymical.domain.signing import Secret
from hymical.entrypoints.api.schemas.instants import Instant, InstantIn


class KeyIn(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(strict=True, description="What or whom the key is for, 1 to 200 characters.")
    expires_at: InstantIn | None = Field(
        default=None, description="From when on it opens nothing; left out, it is valid until it is revoked."
    )


class KeyOut(BaseModel):
    id: str
    name: str
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None

    @classmethod
    def of(cls, key: Key) -> "KeyOut":
        return cls(
            id=key.id,
            name=key.name,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
        )


class KeyWithText(KeyOut):
    key: str = Field(description="What to send as Bearer; shown only now.")

    @classmethod
    def showing(cls, key: Key, text: Secret) -> "KeyWithText":
        return cls(**dict(KeyOut.of(key)), key=text.reveal())
