"""Keys to this API."""

from litestar import Router, delete, get, post
from litestar.di import NamedDependency

from hymical.application.keys import CreateKey, ListKeys, RevokeKey
from hymical.domain.ids import KeyId
from hymical.entrypoints.api.pages import Cursor, Limit, Page, checked_cursor, checked_id, page_of
from hymical.entrypoints.api.provide import use_cases
from hymical.entrypoints.api.schemas.keys import KeyIn, KeyOut, KeyWithText


@post("/keys", summary="Make a key; its text is shown only in this answer")
async def create_key(data: KeyIn, create_key: NamedDependency[CreateKey]) -> KeyWithText:
    key, text = await create_key(data.name, expires=data.expires_at)
    return KeyWithText.showing(key, text)


@get("/keys", summary="List keys, revoked and expired ones too")
async def list_keys(
    list_keys: NamedDependency[ListKeys], limit: Limit = 50, cursor: Cursor = None
) -> Page[KeyOut]:
    found = await list_keys(after=checked_cursor(cursor), limit=limit + 1)
    return page_of(found, limit=limit, shown=KeyOut.of, id_of=lambda key: key.id)


@delete("/keys/{key_id:str}", summary="Revoke a key; it opens nothing from now on, and stays in the list")
async def revoke_key(key_id: str, revoke_key: NamedDependency[RevokeKey]) -> None:
    await revoke_key(KeyId(checked_id("key", key_id)))


management = Router(
    "/",
    route_handlers=[create_key, list_keys, revoke_key],
    dependencies=use_cases("create_key", "list_keys", "revoke_key"),
)
