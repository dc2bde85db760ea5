"""What a rate limit says of itself in the headers of an answer."""

import math

from hymical.domain.limits import Standing


def standing_headers(standing: Standing | None) -> dict[str, str]:
    """In the names of draft-ietf-httpapi-ratelimit-headers-03; none where no limit was asked."""
    if standing is None:
        return {}
    return {
        "ratelimit-limit": str(standing.limit.requests),
        "ratelimit-remaining": str(standing.remaining),
        "ratelimit-reset": str(math.ceil(standing.reset.total_seconds())),
    }
