"""The queues that ship; `hymical up` and `hymical dev` run a worker of them, and of those that types of jobs use."""

from collections.abc import Mapping

QUEUES: Mapping[str, str] = {
    "default": "Work of a few seconds that belongs nowhere else.",
    "exports": "Files of many rows.",
    "maintenance": "Clean-up, replays, back-fills and warnings.",
    "metrics": "Public metrics, collected over APIs.",
    "scrapes": "Public metrics that stand in web pages: slow, so that they do not sit before those of APIs.",
}
"""What each is for, by name. A type of job may name another queue, which needs a worker too."""
