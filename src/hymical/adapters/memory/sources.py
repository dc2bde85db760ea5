"""The key of sources in memory."""


class MemorySourceKey:
    def __init__(self, key: bytes) -> None:
        self._key = key

    async def read(self) -> bytes:
        return self._key
