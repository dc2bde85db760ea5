"""`make bench`: each group after the other, or the one that ONLY names. `--quick` makes each shorter."""

import os
import sys

from bench import isolation, latency

GROUPS = {
    "latency": lambda quick: latency.main(submissions=50 if quick else latency.SUBMISSIONS),
    "isolation": lambda quick: isolation.main(quick=quick),
}


def main() -> int:
    quick = "--quick" in sys.argv
    chosen = os.environ.get("ONLY", "").replace(",", " ").split() or list(GROUPS)
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        print(f"there is no group {', '.join(unknown)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    return max(GROUPS[name](quick) for name in chosen)


sys.exit(main())
