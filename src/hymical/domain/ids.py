"""Identifiers: text with a prefix that names the kind, in an order that follows time."""

from typing import NewType

FormId = NewType("FormId", str)
SubmissionId = NewType("SubmissionId", str)
MessageId = NewType("MessageId", str)
DestinationId = NewType("DestinationId", str)
DeliveryId = NewType("DeliveryId", str)
KeyId = NewType("KeyId", str)
WorkerId = NewType("WorkerId", str)
JobId = NewType("JobId", str)

OPERATOR = DestinationId("dst_operator")
"""The destination of the operator's events."""

LeaseToken = NewType("LeaseToken", str)
