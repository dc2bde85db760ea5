"""`hymical dev`: everything running on one machine until it is interrupted."""

import json
import os
import shlex
import signal
import sys
import threading
from contextlib import ExitStack
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from hymical.entrypoints.bootstrap.embedded import AlreadyOwned, EmbeddedServerError, embedded_server
from hymical.entrypoints.jobs.queues import QUEUES
from hymical.entrypoints.jobs.registry import JobTypesInvalid, discover
from hymical.entrypoints.local import LocalSite, created, local_site
from hymical.entrypoints.processes import ProcessEnded
from hymical.entrypoints.receiver import Received, Receiver, receiving
from hymical.entrypoints.up import SCHEDULES, jobs, show

_FORM = "contact"
_NOTES = "dev.json"
_JOB_MODULES = "FORMS_JOB_MODULES"
"""The one setting that is taken over from the environment: a job type that is being written is tried here."""


def develop(data: Path, port: int) -> int:
    """Runs until SIGINT or SIGTERM; the exit code. It is 2 where types of jobs cannot work."""
    modules = os.environ.get(_JOB_MODULES, "").replace(",", " ").split()
    try:
        queues = {*QUEUES, *discover(modules).queues}
    except JobTypesInvalid as error:
        print(*(f"hymical: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        return 2
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    data.mkdir(parents=True, exist_ok=True)
    notes = data / _NOTES
    try:
        with ExitStack() as stack:
            server = stack.enter_context(embedded_server(data / "database"))
            site = stack.enter_context(
                local_site(server, (jobs(queues), SCHEDULES), port=port, show=show, job_modules=modules)
            )
            receiver = stack.enter_context(
                receiving(
                    Receiver(_show_webhook, lambda: _page(site.api_url)),
                    _known(notes).get("receiver_port", 0),
                )
            )
            known = _prepared(site, receiver, notes)
            receiver.secret = known["secret"]
            print(
                f"\nA page with a form    {receiver.url}/"
                f"\nThe API               {site.api_url}  (its description: {site.api_url}/schema)"
                f"\nThe development key   {known['key']}"
                f"\nThe database          {server.url()}"
                f"\nIn another terminal   {_export(site)}"
                "\nWebhooks are verified and printed here. Ctrl-C stops everything; the data stays.\n",
                flush=True,
            )
            stopped.wait()
            print("\nStopping.", flush=True)
    except AlreadyOwned as error:
        where = _known(notes)
        print(
            f"hymical dev is running already, as process {error.pid}: its page is at"
            f" {where.get('page', 'an address it has not told yet')}, its API at {where.get('api', 'the same')}.",
            file=sys.stderr,
        )
        return 1
    except (ProcessEnded, EmbeddedServerError, OSError) as error:
        print(f"hymical dev did not start: {error}", file=sys.stderr)
        return 1
    return 0


def _prepared(site: LocalSite, receiver: Receiver, notes: Path) -> dict[str, Any]:
    """The key, and the secret of the destination that is this process's receiver; made at the first start."""
    known = _known(notes)
    if "key" not in known:
        known["key"] = site.create_key("development")
    with site.management(known["key"]) as api:
        if api.get(f"/forms/{_FORM}").status_code == httpx.codes.NOT_FOUND:
            created(api.post("/forms", json={"id": _FORM, "name": "Contact"}))
        if known.get("webhook_url") != f"{receiver.url}/webhook":
            known["webhook_url"] = f"{receiver.url}/webhook"
            destination = created(
                api.post(f"/forms/{_FORM}/destinations", json={"url": known["webhook_url"]})
            )
            known["secret"] = destination["secret"]
    known |= {
        "page": f"{receiver.url}/",
        "api": site.api_url,
        "receiver_port": int(receiver.url.rpartition(":")[2]),
    }
    notes.touch(mode=0o600)
    notes.write_text(json.dumps(known, indent=2), encoding="utf-8")
    return known


def _export(site: LocalSite) -> str:
    """What lets commands there work with this database, and `doctor` call the receiver."""
    told = ("FORMS_DATABASE_URL", "FORMS_WEBHOOK_ALLOWED_NETWORKS")
    return " ".join(["export", *(f"{name}={shlex.quote(site.environment[name])}" for name in told)])


def _known(notes: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(notes.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found


def _show_webhook(received: Received) -> None:
    verdict = "signature verified" if received.verified else "SIGNATURE DOES NOT VERIFY"
    show("receiver", f"{verdict}: {received.body.decode(errors='replace')}")


def _page(api_url: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A form on a site of yours</title>
<style>
  body {{ font: 1.05rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 3rem auto; padding: 0 1rem }}
  label {{ display: block; margin-top: 1rem }}
  input:not([type=checkbox]), textarea {{ width: 100%; box-sizing: border-box; font: inherit; padding: .4rem }}
  button {{ margin-top: 1.5rem; font: inherit; padding: .5rem 1.5rem }}
</style>
<h1>Contact</h1>
<form method="post" action="{escape(api_url)}/f/{_FORM}">
  <label>Name <input name="name" required autocomplete="name"></label>
  <label>Email <input name="email" type="email" required autocomplete="email"></label>
  <fieldset>
    <legend>About</legend>
    <label><input type="checkbox" name="topics" value="billing"> Billing</label>
    <label><input type="checkbox" name="topics" value="api"> The API</label>
  </fieldset>
  <label>Message <textarea name="message" rows="5"></textarea></label>
  <button>Send</button>
</form>
"""
