"""`hymical doctor`: what is wrong, and what to do about it."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from hymical.domain.doctor import Ailment, Finding
from hymical.domain.errors import SchemaMismatch, StorageUnavailable
from hymical.entrypoints.cli.options import as_json
from hymical.entrypoints.cli.outcome import FAILED, run_or_fail, sentence

if TYPE_CHECKING:
    from hymical.entrypoints.bootstrap.settings import Settings

_WORDS: Mapping[Ailment, str] = {
    Ailment.SETTING_INVALID: "{fact}",
    Ailment.SETTING_UNKNOWN: "{fact}",
    Ailment.JOB_TYPES_INVALID: "{fact}",
    Ailment.DATABASE_UNUSABLE: "{fact}",
    Ailment.RIGHTS_MISSING: (
        "the role in FORMS_DATABASE_URL lacks {subject}; grant it, or connect as the role that migrated"
    ),
    Ailment.CLOCK_OFF: "this machine's clock is {fact} s off the database's; let both follow the same NTP servers",
    Ailment.WORKER_MISSING: (
        "no worker delivers webhooks: nothing is sent until one is started, with `hymical worker`"
    ),
    Ailment.SCHEDULER_MISSING: (
        "no scheduler is alive: no schedule is run until one is started, with `hymical scheduler`"
    ),
    Ailment.QUEUE_UNSERVED: (
        "jobs of the queue {subject} wait ({fact}), and no worker drains it;"
        " start one, with `hymical worker --queue {subject}`"
    ),
    Ailment.DESTINATION_FAILING: (
        "{subject} fails: {fact}; see `hymical deliveries list --destination {subject}`, and `show` one of them"
    ),
    Ailment.DESTINATION_DISABLED: (
        "{subject} is disabled: {fact}; once it answers again, `hymical destinations resume {subject}` and"
        " `hymical deliveries replay --destination {subject}`, or else delete it"
    ),
    Ailment.DESTINATION_BLOCKED: (
        "the url of {subject} {fact}; change it, with `hymical destinations change {subject}`, or the setting"
    ),
    Ailment.SEALED_OTHERWISE: (
        "the secrets of {subject} were sealed with a key that FORMS_SECRET_KEY does not hold, and nothing is sent"
        " to {fact}; add that key behind the newest one"
    ),
    Ailment.ALERTS_BLOCKED: "FORMS_ALERT_WEBHOOK_URL {fact}: nobody is told of anything; change it",
    Ailment.ALERTS_UNSET: (
        "nobody is told when destinations fail or work stands still; FORMS_ALERT_WEBHOOK_URL and"
        " FORMS_ALERT_WEBHOOK_SECRET say whom to tell"
    ),
    Ailment.SECRETS_PLAIN: "new signing secrets are stored as they are; with FORMS_SECRET_KEY they are sealed",
}


@click.command()
@as_json
def doctor(*, as_json: bool) -> None:
    """Say what is wrong, and what to do about it. Something is wrong: exit code 1."""
    found = _examined()
    sick = any(one.ailment.is_wrong for one in found)
    if as_json:
        print(json.dumps({"healthy": not sick, "findings": [_shown(one) for one in found]}))
    else:
        for one in found:
            print(f"{'wrong' if one.ailment.is_wrong else 'note'}: {words(one)}")
        if not sick:
            print("nothing is wrong")
    if sick:
        raise SystemExit(FAILED)


def _examined() -> Sequence[Finding]:
    from hymical.entrypoints.bootstrap.settings import (  # noqa: PLC0415
        SettingsInvalid,
        read_settings,
        unknown_variables,
    )

    unknown = [Finding(ailment=Ailment.SETTING_UNKNOWN, fact=said) for said in unknown_variables()]
    try:
        settings = read_settings()
    except SettingsInvalid as error:
        return [
            *unknown,
            *(Finding(ailment=Ailment.SETTING_INVALID, fact=problem) for problem in error.problems),
        ]
    return [*unknown, *run_or_fail(_in_the_database(settings))]


async def _in_the_database(settings: "Settings") -> Sequence[Finding]:
    from hymical.entrypoints.bootstrap.resources import Role, open_container  # noqa: PLC0415
    from hymical.entrypoints.jobs.registry import JobTypesInvalid  # noqa: PLC0415

    async with open_container(settings, Role.OPERATOR) as container:
        try:
            await container.schema().check()
            return await container.examine()()
        except (StorageUnavailable, SchemaMismatch) as error:
            return [Finding(ailment=Ailment.DATABASE_UNUSABLE, fact=sentence(error))]
        except JobTypesInvalid as error:
            return [Finding(ailment=Ailment.JOB_TYPES_INVALID, fact=problem) for problem in error.problems]


def _shown(finding: Finding) -> dict[str, object]:
    return {
        "ailment": finding.ailment,
        "is_wrong": finding.ailment.is_wrong,
        "subject": finding.subject or None,
        "says": words(finding),
    }


def words(finding: Finding) -> str:
    return _WORDS[finding.ailment].format(subject=finding.subject, fact=finding.fact)
