"""What a worker holds for each destination: on its way, accepted and not settled, and claimed ahead."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from hymical.domain.deliveries import Delivered
from hymical.domain.destinations import Destination
from hymical.domain.ids import LeaseToken
from hymical.domain.leases import Lease
from hymical.ports.deliveries import ClaimedDelivery, Settled

_QUICK = timedelta(milliseconds=50)
# as multiples of what a destination may have in flight
_ENOUGH_WAITING = 2
_MOST_UNSETTLED = 4


class Lane:
    """One destination's deliveries in the hands of this worker.

    Those that wait were claimed ahead: each takes over the place of one that was on its way and has been accepted.
    The places of a worker are those that its last claim found free or held by itself, so that `max_in_flight` holds
    over all workers: each counts what the others hold, on its way or not.
    """

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.waiting: deque[tuple[ClaimedDelivery, float]] = deque()
        self._places = 0
        self._under_way: dict[LeaseToken, Lease] = {}
        self._failed: set[LeaseToken] = set()
        self._accepted: dict[LeaseToken, Lease] = {}
        self._is_quick = False

    @property
    def places_taken(self) -> int:
        return len(self._under_way) + len(self._failed)

    def is_full(self) -> bool:
        """Whether this worker fills every place of the destination by itself."""
        return self.places_taken >= self.destination.max_in_flight

    def is_short(self) -> bool:
        """Whether more is to be claimed: to have enough at hand for as long as claims and settlements may take."""
        return len(self.waiting) <= _ENOUGH_WAITING * self.destination.max_in_flight

    def is_empty(self) -> bool:
        return not (self.waiting or self._under_way or self._failed or self._accepted)

    def making_room(self, *, ahead: bool) -> Sequence[Lease]:
        """Whose places the next claim may fill: of what was accepted, and `ahead` also of what is not yet.

        What has failed makes no room before it is settled. Nothing is claimed ahead for a destination that takes its
        time: it would gain nothing by it.
        """
        room = list(self._accepted.values())
        if ahead and self._is_quick:
            room += self._under_way.values()
            room += (claimed.lease for claimed, _ in self.waiting)
        return room

    def add(
        self,
        claimed: Sequence[ClaimedDelivery],
        claimed_at: float,
        *,
        room: int,
        in_place_of: Collection[LeaseToken],
    ) -> None:
        """Takes what a claim brought that found so much room, and left `in_place_of` out of its count."""
        self.destination = claimed[0].destination
        # what failed or waits is left out: it may have been settled or withdrawn before the claim counted
        found = room + sum(token not in in_place_of for token in self._under_way)
        # no more than it brought are begun by a claim: for so many its worker had slots
        self._places = min(found, max(self._places, self.places_taken + len(claimed)))
        self.waiting.extend((one, claimed_at) for one in claimed)

    def has_to_start(self) -> bool:
        """Whether something waits for which there is a place."""
        most = _MOST_UNSETTLED * self.destination.max_in_flight - len(self._accepted)
        return bool(self.waiting) and self.places_taken < min(self._places, most)

    def start(self) -> Iterator[tuple[ClaimedDelivery, float]]:
        """Those of the waiting for which there are places, on their way from now on.

        A crash sends again what is not settled: where settlements stand still, so does this.
        """
        while self.has_to_start():
            claimed, claimed_at = self.waiting.popleft()
            self._under_way[claimed.lease.token] = claimed.lease
            yield claimed, claimed_at

    def end(self, ended: Settled) -> bool:
        """What was sent has been answered, or was not to be sent at all. Whether it was accepted."""
        self._under_way.pop(ended.lease.token, None)
        if not isinstance(ended.settlement, Delivered):
            self._failed.add(ended.lease.token)
            return False
        self._accepted[ended.lease.token] = ended.lease
        took = ended.attempt.duration if ended.attempt else None
        self._is_quick = took is not None and took <= _QUICK
        return True

    def settle(self, settled: Settled) -> None:
        self._accepted.pop(settled.lease.token, None)
        self._failed.discard(settled.lease.token)

    def take_back_waiting(self) -> Sequence[ClaimedDelivery]:
        unsent = [claimed for claimed, _ in self.waiting]
        self.waiting.clear()
        return unsent
