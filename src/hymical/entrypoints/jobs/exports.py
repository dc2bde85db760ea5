"""Files of submissions."""

from pydantic import AwareDatetime, BaseModel

from hymical.application.exports import EXPORT, WantedExport, WriteExport
from hymical.domain.exports import ExportFormat, ExportStyle
from hymical.domain.ids import FormId
from hymical.domain.jobs import Ending
from hymical.entrypoints.jobs.registry import job
from hymical.ports.jobs import JobContext


class ExportPayload(BaseModel):
    form_id: str
    format: ExportFormat
    bom: bool = False
    received_after: AwareDatetime | None = None
    received_before: AwareDatetime | None = None
    spam: bool = False


@job(queue="exports", name=EXPORT)
async def export_submissions(
    payload: ExportPayload, context: JobContext, *, write_export: WriteExport
) -> Ending:
    wanted = WantedExport(
        form_id=FormId(payload.form_id),
        style=ExportStyle(format=payload.format, bom=payload.bom),
        received_after=payload.received_after,
        received_before=payload.received_before,
        spam=payload.spam,
    )
    return await write_export(wanted, context)
