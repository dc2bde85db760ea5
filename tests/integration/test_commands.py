"""The operators' commands for what the API manages: they answer as it does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click import Group
from click.testing import CliRunner
from cryptography.fernet import Fernet

from hymical.domain.doctor import Ailment, Finding
from hymical.entrypoints.cli.doctor import words
from hymical.entrypoints.cli.main import main
from tests.database import Databases
from tests.site import Site

HOOK = "http://127.0.0.1:9/hook"


def answered(site: Site, *arguments: str, **settings: str) -> Any:
    """What a command that is carried out prints as JSON."""
    ended = site.command(*arguments, "--json", **settings)
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def said(site: Site, *arguments: str) -> list[str]:
    ended = site.command(*arguments)
    assert ended.exit_code == 0, ended.output
    return ended.stdout.splitlines()


def refused(site: Site, *arguments: str) -> str:
    """The one sentence of a command that cannot be carried out."""
    ended = site.command(*arguments)
    assert (ended.exit_code, ended.stdout) == (1, "")
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith("hymical: ")
    return sentence.removeprefix("hymical: ")


def test_the_help_of_no_command_is_cut_off_in_a_list() -> None:
    groups = [(), *((name,) for name, command in main.commands.items() if isinstance(command, Group))]
    for group in groups:
        listed = CliRunner().invoke(main, [*group, "--help"], terminal_width=80).stdout.splitlines()
        assert not [line for line in listed[1:] if line.endswith("...")]


def test_a_form_lives_on_the_command_line_as_it_does_in_the_api(shared_site: Site) -> None:
    site = shared_site
    rules = ("--allowed-origin", "https://a.example/", "--limits", '{"max_fields": 9}')
    made = answered(site, "forms", "create", "life", "--name", "Zoë's", "--honeypot-field", "url", *rules)
    assert made == site.read("/forms/life")
    assert (made["allowed_origins"], made["limits"]["max_fields"]) == (["https://a.example"], 9)

    answered(site, "forms", "create", "life-2", "--name", "Two")
    first = answered(site, "forms", "list", "--limit", "1")
    assert first == site.read("/forms", limit=1)
    second = answered(site, "forms", "list", "--limit", "1", "--cursor", first["next_cursor"])
    assert second == site.read("/forms", limit=1, cursor=first["next_cursor"])

    assert said(site, "forms", "close", "life") == ["life  closed  Zoë's"]
    changed = answered(site, "forms", "change", "life", "--any-origin", "--honeypot-field", "", "--name", "Z")
    assert changed == made | {
        "is_active": False,
        "allowed_origins": [],
        "honeypot_field": None,
        "name": "Z",
    }
    assert said(site, "forms", "open", "life") == ["life  open  Z"]
    assert answered(site, "forms", "show", "life") == site.read("/forms/life")
    assert "id: life" in said(site, "forms", "show", "life")
    assert answered(site, "forms", "delete", "life") == {"id": "life", "deleted": True}

    assert refused(site, "forms", "show", "life") == "there is no form life"
    site.post(form_id="life-2")
    assert refused(site, "forms", "delete", "life-2") == (
        "the form life-2 holds submissions; erase them first, or close it: `hymical forms close life-2`"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("forms", "show", "No Name"), "'No Name' cannot be one"),
        (("forms", "show", "\udcff"), "cannot be one"),
        (("forms", "list", "--cursor", "?"), "cannot be one"),
        (("forms", "create", "x-1", "--name", "X", "--limits", "[]"), "must be an object of JSON"),
        (("forms", "create", "x-1", "--name", "X", "--limits", '{"max": 1}'), "limits.max: extra inputs"),
        (
            ("forms", "change", "x-1", "--duplicate-window-seconds", "1.5"),
            "must be a whole number of seconds",
        ),
        (
            ("forms", "change", "x-1", "--duplicate-window-seconds", "86401"),
            "duplicate_window_seconds: input",
        ),
        (("submissions", "list", "--received-after", "today"), "must be RFC 3339"),
        (("submissions", "list", "--text", "\udcff"), "must be text in UTF-8"),
        (("deliveries", "replay"), "Name a delivery, or choose by filters, or --all"),
        (("deliveries", "replay", "dlv_1", "--all"), "Name a delivery, or choose by filters, or --all"),
        (
            ("destinations", "create", "x-1", "--url", HOOK, "--header", "x"),
            "must be written as 'Name: value'",
        ),
    ],
    ids=str,
)
def test_what_a_command_is_given_and_cannot_work_is_told_in_words_and_ends_with_2(
    shared_site: Site, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = shared_site.command(*arguments)
    assert ended.exit_code == 2
    assert sentence in ended.stderr


def test_a_destination_lives_on_the_command_line_and_its_secrets_are_shown_once(shared_site: Site) -> None:
    site = shared_site
    site.create("/forms", {"id": "goes", "name": "Goes"})
    made = answered(site, "destinations", "create", "goes", "--url", HOOK, "--header", "x-token: s3cret")
    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    one = made["id"]
    assert made == site.read(f"/destinations/{one}")
    assert answered(site, "destinations", "list", "goes") == site.read("/forms/goes/destinations")

    changed = answered(site, "destinations", "change", one, "--no-headers", "--max-in-flight", "3")
    assert changed == made | {"headers": [], "max_in_flight": 3}
    assert said(site, "destinations", "pause", one) == [f"{one}  paused    {HOOK}"]
    assert said(site, "destinations", "resume", one) == [f"{one}  active    {HOOK}"]
    assert answered(site, "destinations", "change", one, "--state", "disabled")["state"] == "disabled"
    assert answered(site, "destinations", "resume", one)["state"] == "active"

    (rotated,) = said(site, "destinations", "rotate-secret", one)
    assert re.fullmatch(rf"{one}  active    {HOOK}  whsec_\S+", rotated)
    shown = said(site, "destinations", "show", one)
    assert f"url: {HOOK}" in shown
    assert not any("whsec_" in line or "s3cret" in line for line in shown)

    owed = answered(site, "destinations", "test", one)
    assert owed == site.read("/deliveries", destination_id=one)["items"][0]
    job = answered(site, "destinations", "backfill", one)
    assert (job["type"], job["duplicate"]) == ("backfill_destination", False)
    assert answered(site, "destinations", "backfill", one)["duplicate"] is True

    assert said(site, "destinations", "delete", one) == [f"{one} is deleted"]
    assert refused(site, "destinations", "pause", one) == f"there is no destination {one}"
    assert refused(site, "destinations", "show", "dst_operator") == "there is no destination dst_operator"
    assert refused(site, "destinations", "list", "nowhere") == "there is no form nowhere"
    blocked = refused(site, "destinations", "create", "goes", "--url", "http://10.0.0.1/")
    assert "FORMS_WEBHOOK_ALLOWED_NETWORKS" in blocked


def test_submissions_are_found_shown_exported_and_erased_on_the_command_line(
    shared_site: Site, tmp_path: Path
) -> None:
    site = shared_site
    site.create("/forms", {"id": "asks", "name": "Asks"})
    first, second = (site.post({"email": f"{name}@example.com"}, form_id="asks") for name in "ab")
    bot = site.post({"email": "bot@example.com", "_gotcha": "x"}, form_id="asks")

    listed = answered(site, "submissions", "list", "--form", "asks", "--limit", "1")
    assert listed == site.read("/submissions", form_id="asks", limit=1)
    behind = answered(
        site, "submissions", "list", "--form", "asks", "--limit", "1", "--cursor", listed["next_cursor"]
    )
    assert [one["id"] for one in behind["items"]] == [first]
    (found,) = answered(site, "submissions", "list", "--form", "asks", "--text", "B@EXAMPLE")["items"]
    assert found["id"] == second
    until = site.read(f"/submissions/{second}")["received_at"]
    earlier = answered(site, "submissions", "list", "--form", "asks", "--received-before", until)
    assert [one["id"] for one in earlier["items"]] == [first]

    (spam,) = said(site, "submissions", "list", "--form", "asks", "--spam")
    assert spam.startswith(f"{bot}  ")
    assert spam.endswith("  spam")
    good = answered(site, "submissions", "not-spam", bot)
    assert good == site.read(f"/submissions/{bot}")
    assert refused(site, "submissions", "not-spam", bot).startswith("this submission is not kept as spam")

    path = tmp_path / "asks.csv"
    for kind in ("csv", "json", "ndjson"):
        whole = site.management.get("/submissions/export", params={"format": kind, "form_id": "asks"}).content
        arguments = ("submissions", "export", "--format", kind, "--form", "asks")
        assert site.command(*arguments).stdout_bytes == whole
        assert site.command(*arguments, "--output", str(path)).exit_code == 0
        assert path.read_bytes() == whole
    assert [one.name for one in tmp_path.iterdir()] == ["asks.csv"]
    nowhere = str(tmp_path / "no" / "file")
    sentence = refused(site, "submissions", "export", "--output", nowhere)
    assert sentence == f"{nowhere} cannot be written: no such file or directory"

    assert answered(site, "submissions", "show", first) == site.read(f"/submissions/{first}")
    assert said(site, "submissions", "delete", first) == [f"{first} is deleted"]
    assert refused(site, "submissions", "show", first) == f"there is no submission {first}"


def test_deliveries_are_found_shown_replayed_and_resent_on_the_command_line(shared_site: Site) -> None:
    site = shared_site
    site.make_form(HOOK, form_id="owes")
    (destination,) = site.read("/forms/owes/destinations")["items"]
    submission = site.post(form_id="owes")
    (owed,) = site.read("/deliveries", submission_id=submission)["items"]
    one = owed["id"]
    assert refused(site, "deliveries", "replay", one) == (
        "only a failed delivery can be replayed; this one is pending"
    )

    answered(site, "destinations", "change", destination["id"], "--state", "disabled")
    for name, value in (("form", "owes"), ("destination", destination["id"]), ("submission", submission)):
        listed = answered(site, "deliveries", "list", f"--{name}", value, "--state", "failed")
        assert listed == site.read("/deliveries", state="failed", **{f"{name}_id": value})
        assert [found["id"] for found in listed["items"]] == [one]
    assert said(site, "deliveries", "list", "--form", "owes") == [
        f"{one}  failed      0 attempts  {HOOK}  destination_disabled"
    ]
    assert refused(site, "deliveries", "replay", one) == (
        "its destination is disabled; resume it first, with `hymical destinations resume`"
    )
    assert refused(site, "deliveries", "resend", one).startswith("its submission was erased, or its dest")

    answered(site, "destinations", "resume", destination["id"])
    since = "2026-01-01T00:00:00.000000Z"
    job = answered(site, "deliveries", "replay", "--form", "owes", "--failed-after", since)
    asked = {"form_id": "owes", "failed_after": since}
    again = site.management.post("/deliveries/replay", json=asked).json()
    assert (job["id"], job["payload"], again["duplicate"]) == (again["id"], again["payload"], True)
    assert answered(site, "deliveries", "replay", "--all")["payload"] == {}

    assert answered(site, "deliveries", "replay", one)["state"] == "pending"
    new = answered(site, "deliveries", "resend", one)
    assert (new["message_id"], new["id"] != one) == (owed["message_id"], True)
    assert answered(site, "deliveries", "show", one) == site.read(f"/deliveries/{one}")
    shown = said(site, "deliveries", "show", one)
    assert "state: pending" in shown
    assert any(line.startswith("explanation: ") for line in shown)
    site.command("submissions", "delete", submission)
    assert refused(site, "deliveries", "replay", one).startswith("this delivery failed for good")


def test_the_doctor_finds_nothing_wrong_with_a_site_that_works(site: Site) -> None:
    site.start_worker()
    site.start_scheduler()

    ended = site.command("doctor")

    assert ended.exit_code == 0, ended.output
    *notes, verdict = ended.stdout.splitlines()
    assert verdict == "nothing is wrong"
    assert [note.split(";")[0] for note in notes] == [
        "note: nobody is told when destinations fail or work stands still",
        "note: new signing secrets are stored as they are",
    ]


def test_the_doctor_says_what_is_wrong_and_what_to_do(site: Site) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    site.command("forms", "create", "contact", "--name", "Contact")
    sealed = answered(site, "destinations", "create", "contact", "--url", HOOK, secret_key=old)["id"]

    ended = site.command("doctor", secret_key=new, databse_url="x", alert_webhook_url="http://10.0.0.1/")
    assert ended.exit_code == 1
    assert ended.stdout.splitlines() == [
        "wrong: FORMS_DATABSE_URL is not a setting, and is ignored; did you mean FORMS_DATABASE_URL?",
        "wrong: FORMS_ALERT_WEBHOOK_SECRET and FORMS_ALERT_WEBHOOK_URL go together: set both, or neither.",
    ]

    found = json.loads(site.command("doctor", "--json", secret_key=new, webhook_allowed_networks="").stdout)
    assert found["healthy"] is False
    ailing = {one["ailment"]: one for one in found["findings"] if one["is_wrong"]}
    assert ailing.keys() == {
        "worker_missing",
        "scheduler_missing",
        "sealed_otherwise",
        "destination_blocked",
    }
    assert ailing["sealed_otherwise"]["subject"] == sealed
    assert "add that key behind the newest one" in ailing["sealed_otherwise"]["says"]
    assert "FORMS_WEBHOOK_ALLOWED_NETWORKS" in ailing["destination_blocked"]["says"]


def test_the_doctor_says_what_the_database_lacks(databases: Databases) -> None:
    with databases.empty() as url, Site(url) as site:
        (sentence,) = site.command("doctor").stdout.splitlines()
        assert "not migrated" in sentence
        assert "run `hymical migrate`" in sentence
    away = Site("postgresql://127.0.0.1:9/nowhere").command("doctor")
    assert (away.exit_code, "does not answer" in away.stdout) == (1, True)


def test_the_doctor_names_the_rights_that_a_role_lacks(site: Site) -> None:
    role = "hymical_may_little"
    site.execute(f"DROP ROLE IF EXISTS {role}")
    site.execute(f"CREATE ROLE {role}")
    try:
        site.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        site.execute(f"REVOKE DELETE ON jobs FROM {role}")
        behind = "&" if "?" in site.database_url else "?"
        poor = f"{site.database_url}{behind}options=-c%20role%3D{role}"
        ended = site.command("doctor", database_url=poor)
        assert ended.stdout == (
            "wrong: the role in FORMS_DATABASE_URL lacks DELETE on jobs;"
            " grant it, or connect as the role that migrated\n"
        )
    finally:
        site.execute(f"DROP OWNED BY {role}")
        site.execute(f"DROP ROLE {role}")


def test_the_doctor_has_words_for_everything_that_it_finds() -> None:
    for ailment in Ailment:
        assert "{" not in words(Finding(ailment=ailment, subject="contact", fact="a fact"))
