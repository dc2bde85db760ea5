"""`hymical demo`: the main job once, end to end, with nothing simulated but the site and the receiver."""

import json
import sys
import threading
import time

import httpx

from hymical.entrypoints.bootstrap.embedded import EmbeddedServerError, embedded_server, temporary_data_folder
from hymical.entrypoints.local import LocalSite, created, local_site
from hymical.entrypoints.processes import ProcessEnded
from hymical.entrypoints.receiver import Received, Receiver, receiving

_FIELDS = {
    "name": "Zoë Müller",
    "email": "zoe@example.com",
    "topics": ["billing", "api"],
    "message": "こんにちは 👋\nTwo lines.",
}
_LONGEST_WAIT = 20.0


class _Missed(Exception):
    pass


def demonstrate() -> int:
    """Runs the demo and prints what happens; the exit code."""
    said: list[str] = []
    try:
        with temporary_data_folder("hymical-demo-") as data, embedded_server(data) as server:
            print("1. A PostgreSQL is running, embedded, in a temporary folder.")
            with local_site(server, port=0, show=lambda role, line: said.append(f"{role} | {line}")) as site:
                print(f"2. The API answers on {site.api_url}; a worker is waiting for deliveries.")
                _run_main_job(site)
    except (_Missed, ProcessEnded, EmbeddedServerError, httpx.HTTPError) as error:
        print(f"\nThe demo failed: {error}", *said[-40:], sep="\n", file=sys.stderr)
        return 1
    print("\nThat was the main job. `make dev` keeps everything running for you to try.")
    return 0


def _run_main_job(site: LocalSite) -> None:
    arrived = threading.Event()
    webhooks: list[Received] = []

    def on_webhook(received: Received) -> None:
        webhooks.append(received)
        arrived.set()

    with receiving(Receiver(on_webhook)) as receiver, site.management(site.create_key("demo")) as api:
        created(api.post("/forms", json={"id": "contact", "name": "Contact"}))
        destination = created(
            api.post("/forms/contact/destinations", json={"url": f"{receiver.url}/webhook"})
        )
        receiver.secret = destination["secret"]

        answer = httpx.post(f"{site.api_url}/f/contact", data=_FIELDS, trust_env=False)
        receipt = created(answer)
        print(f"3. A form was posted and accepted ({answer.status_code}):\n{_indented(receipt)}")

        if not arrived.wait(_LONGEST_WAIT):
            raise _Missed(f"no webhook arrived within {_LONGEST_WAIT:g} s")
        webhook = webhooks[0]
        print(f"4. The webhook arrived at {receiver.url}/webhook:")
        for name, value in webhook.headers:
            print(f"     {name.lower()}: {value}")
        print(_indented(json.loads(webhook.body)))
        if not webhook.verified:
            raise _Missed("the webhook's signature does not verify")
        print("5. signature verified, by the standardwebhooks package with the destination's secret.")

        delivery = _delivered(api, receipt["submission_id"])
        print(f"6. The API says of the delivery:\n{_indented(delivery)}")


def _delivered(api: httpx.Client, submission_id: str) -> dict[str, object]:
    until = time.monotonic() + _LONGEST_WAIT
    while True:
        found = created(api.get("/deliveries", params={"submission_id": submission_id}))["items"]
        if found and found[0]["state"] == "delivered":
            shown: dict[str, object] = created(api.get(f"/deliveries/{found[0]['id']}"))
            return shown
        if time.monotonic() > until:
            raise _Missed(f"the delivery is {found[0]['state'] if found else 'missing'}, not delivered")
        time.sleep(0.02)


def _indented(value: object) -> str:
    return "\n".join("     " + line for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines())
