"""`hymical`: the processes, and the operators' commands. Whatever a command needs is loaded when it runs."""

import click

import hymical
from hymical.entrypoints.cli.deliveries import deliveries
from hymical.entrypoints.cli.destinations import destinations
from hymical.entrypoints.cli.doctor import doctor
from hymical.entrypoints.cli.forms import forms
from hymical.entrypoints.cli.jobs import jobs
from hymical.entrypoints.cli.keys import keys
from hymical.entrypoints.cli.processes import demo, dev, migrate, scheduler, serve, up, worker
from hymical.entrypoints.cli.queues import queues
from hymical.entrypoints.cli.retention import cleanup
from hymical.entrypoints.cli.schedules import run, schedules
from hymical.entrypoints.cli.submissions import submissions


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(hymical.__version__, prog_name="hymical")
def main() -> None:
    """Takes posted HTML forms, stores them, and delivers each one as a signed webhook.

    Settings are environment variables that start with FORMS_, or stand in .env; FORMS_DATABASE_URL is required.
    """


for command in (
    serve,
    worker,
    scheduler,
    up,
    migrate,
    demo,
    dev,
    forms,
    destinations,
    submissions,
    deliveries,
    keys,
    jobs,
    queues,
    schedules,
    run,
    cleanup,
    doctor,
):
    main.add_command(command)
