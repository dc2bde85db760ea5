"""Which adapter stands behind which port, and what each use case is made of."""

from collections.abc import Sequence
from datetime import timedelta

from dependency_injector import containers
from dependency_injector.providers import Callable as Computed
from dependency_injector.providers import Dependency, Provider, Self, Singleton

from hymical.adapters.cronsim.calendar import CronSimCalendar
from hymical.adapters.fernet.cipher import FernetCipher
from hymical.adapters.http.egress import Egress
from hymical.adapters.postgres.alerts import PostgresAlertBook
from hymical.adapters.postgres.bulk import PostgresBulkQueue
from hymical.adapters.postgres.deliveries import PostgresDeliveryHistory, PostgresDeliveryQueue
from hymical.adapters.postgres.destinations import PostgresDestinationHealth, PostgresDestinationRepository
from hymical.adapters.postgres.doctor import PostgresInspection
from hymical.adapters.postgres.exports import PostgresExportStore, PostgresSubmissionWalk
from hymical.adapters.postgres.forms import PostgresFormRepository, PostgresSubmissionRepository
from hymical.adapters.postgres.jobs import PostgresJobHistory, PostgresJobQueue
from hymical.adapters.postgres.keys import PostgresKeyRepository, PostgresKeyWarnings
from hymical.adapters.postgres.limits import PostgresRateLimiter
from hymical.adapters.postgres.pool import ConnectionPool
from hymical.adapters.postgres.progress import PostgresProgressBus
from hymical.adapters.postgres.retention import PostgresHistorySweep
from hymical.adapters.postgres.schedules import PostgresScheduleLedger
from hymical.adapters.postgres.schema import PostgresSchema
from hymical.adapters.postgres.sources import PostgresSourceKey
from hymical.adapters.postgres.transactions import PostgresTransactions
from hymical.adapters.postgres.wakeups import PostgresWakeUps
from hymical.adapters.postgres.workers import PostgresWorkerRegistry
from hymical.adapters.system.clock import SystemClock
from hymical.adapters.system.ids import SystemIds
from hymical.application.alerts import WatchOver
from hymical.application.bulk import BackfillDestination, ReplayDeliveries
from hymical.application.deliveries import (
    ClaimDue,
    ListDeliveries,
    ReleaseUnsent,
    ReplayDelivery,
    ResendDelivery,
    SendDelivery,
    SettleFinished,
    ShowDelivery,
)
from hymical.application.destinations import (
    ChangeDestination,
    CreateDestination,
    DeleteDestination,
    ListDestinations,
    RotateSecret,
    SendTest,
    SetOperator,
    ShowDestination,
)
from hymical.application.doctor import Examine
from hymical.application.exports import OpenExportFile, StartExport, StreamSubmissions, WriteExport
from hymical.application.forms import (
    AcceptPosts,
    ChangeForm,
    CreateForm,
    DeleteForm,
    EraseSubmission,
    ListForms,
    ListSubmissions,
    MarkGood,
    ShowForm,
    ShowSubmission,
)
from hymical.application.jobs import (
    AnswerQuestion,
    CancelJob,
    CheckJobs,
    ClaimJobs,
    EnqueueJob,
    ListJobs,
    ListQueues,
    PauseQueue,
    ReleaseJobs,
    RenewJobs,
    ResumeQueue,
    RetryJob,
    RunJob,
    SettleJobs,
    ShowJob,
)
from hymical.application.keys import Authenticate, CreateKey, ListKeys, RevokeKey, WarnOfExpiringKeys
from hymical.application.progress import ListEvents, WatchJob
from hymical.application.retention import CleanUp
from hymical.application.schedules import (
    EvaluateSchedules,
    ListSchedules,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
    Timetables,
)
from hymical.application.schedules import timetables as drawn_up
from hymical.application.workers import LeaveWork, ListWorkers, ReportPresence
from hymical.domain.destinations import TroublePolicy
from hymical.domain.jobs import JobCatalog
from hymical.domain.limits import IntakeLimits, RateLimits
from hymical.domain.retention import RetentionPolicy
from hymical.domain.retries import RetryPolicy
from hymical.domain.schedules import Schedule
from hymical.domain.signing import Secret
from hymical.entrypoints.bootstrap.settings import Settings
from hymical.entrypoints.jobs.registry import JobRegistry, RegisteredHandlers, discover
from hymical.entrypoints.jobs.schedules import declared
from hymical.ports.alerts import AlertBook
from hymical.ports.bulk import BulkQueue
from hymical.ports.clock import Clock
from hymical.ports.deliveries import DeliveryHistory, DeliveryQueue, WebhookSender
from hymical.ports.destinations import DestinationHealth, DestinationRepository, TargetCheck
from hymical.ports.doctor import DatabaseInspection
from hymical.ports.exports import ExportStore, SubmissionWalk
from hymical.ports.forms import FormRepository, SubmissionRepository
from hymical.ports.ids import Ids
from hymical.ports.jobs import JobHandlers, JobHistory, JobQueue
from hymical.ports.keys import KeyRepository, KeyWarnings
from hymical.ports.limits import RateLimiter
from hymical.ports.progress import ProgressBus
from hymical.ports.retention import HistorySweep
from hymical.ports.schedules import CronCalendar, ScheduleLedger
from hymical.ports.secrets import SecretCipher
from hymical.ports.sources import SourceKey
from hymical.ports.transactions import Transactions
from hymical.ports.wakeups import WakeUps
from hymical.ports.workers import WorkerRegistry


def _secret_keys(settings: Settings) -> tuple[Secret, ...]:
    return tuple(Secret(key.get_secret_value()) for key in settings.secret_key)


def _as_transactions(connections: PostgresTransactions) -> Transactions:
    return connections


def _as_target_check(egress: Egress) -> TargetCheck:
    return egress


class Container(containers.DeclarativeContainer):
    """Built by `open_container`, which opens what is a `Dependency` here and swaps what a test gives it."""

    __self__ = Self()
    settings: Dependency[Settings] = Dependency(instance_of=Settings)
    pool: Dependency[ConnectionPool] = Dependency(instance_of=ConnectionPool)
    sender: Dependency[WebhookSender] = Dependency()

    database_url: Provider[str] = Computed(
        lambda settings: settings.database_url.get_secret_value(), settings
    )
    limits: Provider[IntakeLimits] = Computed(lambda settings: settings.intake_limits, settings)
    rate_limits: Provider[RateLimits] = Computed(lambda settings: settings.rate_limits, settings)
    policy: Provider[RetryPolicy] = Computed(lambda settings: settings.retry_policy, settings)

    trouble_policy: Provider[TroublePolicy] = Computed(lambda settings: settings.trouble_policy, settings)

    replay_ask_above: Provider[int] = Computed(lambda settings: settings.replay_ask_above, settings)
    retention_policy: Provider[RetentionPolicy] = Computed(
        lambda settings: settings.retention_policy, settings
    )

    job_lease: Provider[timedelta] = Computed(lambda settings: settings.job_lease_seconds, settings)

    clock: Provider[Clock] = Singleton(SystemClock)
    ids: Provider[Ids] = Singleton(SystemIds)
    connections: Singleton[PostgresTransactions] = Singleton(PostgresTransactions, pool)
    transactions: Provider[Transactions] = Computed(_as_transactions, connections)
    schema: Singleton[PostgresSchema] = Singleton(PostgresSchema, connections)
    wakeups: Provider[WakeUps] = Singleton(PostgresWakeUps, database_url)
    cipher: Provider[SecretCipher] = Singleton(FernetCipher, Computed(_secret_keys, settings))
    forms: Provider[FormRepository] = Singleton(PostgresFormRepository, connections, clock, cipher)
    submissions: Provider[SubmissionRepository] = Singleton(PostgresSubmissionRepository, connections)
    destinations: Provider[DestinationRepository] = Singleton(
        PostgresDestinationRepository, connections, clock, cipher
    )
    health: Provider[DestinationHealth] = Singleton(PostgresDestinationHealth, connections, clock, cipher)
    workers: Provider[WorkerRegistry] = Singleton(PostgresWorkerRegistry, connections, clock)
    keys: Provider[KeyRepository] = Singleton(PostgresKeyRepository, connections, clock)
    key_warnings: Provider[KeyWarnings] = Singleton(PostgresKeyWarnings, connections, clock)
    limiter: Provider[RateLimiter] = Singleton(PostgresRateLimiter, connections, clock)
    source_key: Provider[SourceKey] = Singleton(PostgresSourceKey, connections)
    queue: Provider[DeliveryQueue] = Singleton(PostgresDeliveryQueue, connections, clock, cipher)
    history: Provider[DeliveryHistory] = Singleton(PostgresDeliveryHistory, connections, clock)
    bulk: Provider[BulkQueue] = Singleton(PostgresBulkQueue, connections, clock)
    job_queue: Provider[JobQueue] = Singleton(PostgresJobQueue, connections, clock)
    job_history: Provider[JobHistory] = Singleton(PostgresJobHistory, connections, clock)
    progress: Provider[ProgressBus] = Singleton(PostgresProgressBus, connections, database_url, clock)
    ledger: Provider[ScheduleLedger] = Singleton(PostgresScheduleLedger, connections, clock)
    inspection: Provider[DatabaseInspection] = Singleton(PostgresInspection, connections, clock)
    alerts: Provider[AlertBook] = Singleton(PostgresAlertBook, connections, clock)
    calendar: Provider[CronCalendar] = Singleton(CronSimCalendar)

    walk: Provider[SubmissionWalk] = Singleton(PostgresSubmissionWalk, connections)
    sweep: Provider[HistorySweep] = Singleton(PostgresHistorySweep, connections, clock)
    exports: Provider[ExportStore] = Singleton(PostgresExportStore, connections, clock)
    egress: Singleton[Egress] = Singleton(
        Egress,
        allowed_networks=Computed(lambda settings: settings.webhook_allowed_networks, settings),
        allow_http=Computed(lambda settings: settings.webhook_allow_http, settings),
    )
    targets: Provider[TargetCheck] = Computed(_as_target_check, egress)

    accept_posts: Provider[AcceptPosts] = Singleton(
        AcceptPosts,
        forms=forms,
        submissions=submissions,
        ids=ids,
        limiter=limiter,
        limits=limits,
        rate_limits=rate_limits,
        duplicate_window=Computed(lambda settings: settings.duplicate_window_seconds, settings),
    )
    create_form: Provider[CreateForm] = Singleton(CreateForm, forms=forms, limits=limits)
    change_form: Provider[ChangeForm] = Singleton(
        ChangeForm, forms=forms, transactions=transactions, limits=limits
    )
    delete_form: Provider[DeleteForm] = Singleton(DeleteForm, forms=forms, transactions=transactions)
    mark_good: Provider[MarkGood] = Singleton(
        MarkGood, forms=forms, submissions=submissions, queue=queue, transactions=transactions, ids=ids
    )
    show_form: Provider[ShowForm] = Singleton(ShowForm, forms=forms)
    list_forms: Provider[ListForms] = Singleton(ListForms, forms=forms)
    show_submission: Provider[ShowSubmission] = Singleton(ShowSubmission, submissions=submissions)
    erase_submission: Provider[EraseSubmission] = Singleton(
        EraseSubmission, submissions=submissions, queue=queue, exports=exports, transactions=transactions
    )
    list_submissions: Provider[ListSubmissions] = Singleton(ListSubmissions, submissions=submissions)

    create_destination: Provider[CreateDestination] = Singleton(
        CreateDestination, destinations=destinations, targets=targets, ids=ids
    )
    show_destination: Provider[ShowDestination] = Singleton(ShowDestination, destinations=destinations)
    list_destinations: Provider[ListDestinations] = Singleton(ListDestinations, destinations=destinations)

    change_destination: Provider[ChangeDestination] = Singleton(
        ChangeDestination, destinations=destinations, queue=queue, targets=targets, transactions=transactions
    )
    delete_destination: Provider[DeleteDestination] = Singleton(
        DeleteDestination, destinations=destinations, queue=queue, transactions=transactions
    )
    rotate_secret: Provider[RotateSecret] = Singleton(
        RotateSecret, destinations=destinations, transactions=transactions, ids=ids
    )
    send_test: Provider[SendTest] = Singleton(
        SendTest,
        destinations=destinations,
        queue=queue,
        history=history,
        transactions=transactions,
        ids=ids,
    )
    set_operator: Provider[SetOperator] = Singleton(
        SetOperator, destinations=destinations, queue=queue, transactions=transactions
    )

    claim_due: Provider[ClaimDue] = Singleton(
        ClaimDue,
        queue=queue,
        policy=policy,
        lease=Computed(lambda settings: settings.worker_lease_seconds, settings),
        clock=clock,
        ids=ids,
    )
    send_delivery: Provider[SendDelivery] = Singleton(
        SendDelivery, sender=sender, policy=policy, clock=clock, ids=ids
    )
    settle_finished: Provider[SettleFinished] = Singleton(
        SettleFinished,
        queue=queue,
        health=health,
        destinations=destinations,
        transactions=transactions,
        policy=trouble_policy,
        ids=ids,
    )
    release_unsent: Provider[ReleaseUnsent] = Singleton(ReleaseUnsent, queue=queue)
    replay_delivery: Provider[ReplayDelivery] = Singleton(ReplayDelivery, queue=queue, history=history)
    resend_delivery: Provider[ResendDelivery] = Singleton(
        ResendDelivery, queue=queue, history=history, ids=ids
    )
    show_delivery: Provider[ShowDelivery] = Singleton(ShowDelivery, history=history)
    list_deliveries: Provider[ListDeliveries] = Singleton(ListDeliveries, history=history)

    job_registry: Provider[JobRegistry] = Singleton(
        discover, Computed(lambda settings: settings.job_modules, settings)
    )
    job_catalog: Provider[JobCatalog] = Singleton(
        lambda registry, settings: registry.catalog(settings.job_max_retries), job_registry, settings
    )
    job_handlers: Provider[JobHandlers] = Singleton(
        RegisteredHandlers, job_registry, Computed(lambda container: container.providers, __self__)
    )
    enqueue_job: Provider[EnqueueJob] = Singleton(EnqueueJob, catalog=job_catalog, queue=job_queue, ids=ids)
    claim_jobs: Provider[ClaimJobs] = Singleton(ClaimJobs, queue=job_queue, lease=job_lease, clock=clock)
    run_job: Provider[RunJob] = Singleton(
        RunJob, handlers=job_handlers, queue=job_queue, progress=progress, clock=clock, ids=ids
    )
    settle_jobs: Provider[SettleJobs] = Singleton(SettleJobs, queue=job_queue)
    renew_jobs: Provider[RenewJobs] = Singleton(RenewJobs, queue=job_queue, lease=job_lease)
    check_jobs: Provider[CheckJobs] = Singleton(CheckJobs, queue=job_queue)
    release_jobs: Provider[ReleaseJobs] = Singleton(ReleaseJobs, queue=job_queue)
    show_job: Provider[ShowJob] = Singleton(ShowJob, history=job_history)
    list_jobs: Provider[ListJobs] = Singleton(ListJobs, history=job_history)
    answer_question: Provider[AnswerQuestion] = Singleton(
        AnswerQuestion, queue=job_queue, history=job_history
    )
    cancel_job: Provider[CancelJob] = Singleton(CancelJob, queue=job_queue, history=job_history)
    retry_job: Provider[RetryJob] = Singleton(RetryJob, queue=job_queue, history=job_history)
    list_events: Provider[ListEvents] = Singleton(ListEvents, history=job_history, progress=progress)
    watch_job: Provider[WatchJob] = Singleton(WatchJob, history=job_history, progress=progress)
    list_queues: Provider[ListQueues] = Singleton(ListQueues, history=job_history)
    pause_queue: Provider[PauseQueue] = Singleton(PauseQueue, queue=job_queue)
    resume_queue: Provider[ResumeQueue] = Singleton(ResumeQueue, queue=job_queue)

    schedules: Provider[Sequence[Schedule]] = Singleton(
        declared, Computed(lambda settings: settings.job_modules, settings)
    )
    timetables: Provider[Timetables] = Singleton(drawn_up, job_catalog, calendar, schedules)
    evaluate_schedules: Provider[EvaluateSchedules] = Singleton(
        EvaluateSchedules,
        timetables=timetables,
        ledger=ledger,
        jobs=job_queue,
        catalog=job_catalog,
        transactions=transactions,
        ids=ids,
    )
    run_schedule: Provider[RunScheduleNow] = Singleton(
        RunScheduleNow,
        timetables=timetables,
        ledger=ledger,
        jobs=job_queue,
        catalog=job_catalog,
        transactions=transactions,
        ids=ids,
    )
    pause_schedule: Provider[PauseSchedule] = Singleton(PauseSchedule, timetables=timetables, ledger=ledger)
    resume_schedule: Provider[ResumeSchedule] = Singleton(
        ResumeSchedule, timetables=timetables, ledger=ledger
    )
    list_schedules: Provider[ListSchedules] = Singleton(
        ListSchedules, timetables=timetables, ledger=ledger, history=job_history, workers=workers
    )
    watch_over: Provider[WatchOver] = Singleton(
        WatchOver,
        timetables=timetables,
        workers=workers,
        history=job_history,
        book=alerts,
        destinations=destinations,
        queue=queue,
        transactions=transactions,
        ids=ids,
    )
    replay_deliveries: Provider[ReplayDeliveries] = Singleton(
        ReplayDeliveries, bulk=bulk, transactions=transactions, ask_above=replay_ask_above
    )
    backfill_destination: Provider[BackfillDestination] = Singleton(
        BackfillDestination,
        bulk=bulk,
        queue=queue,
        destinations=destinations,
        transactions=transactions,
        ids=ids,
        ask_above=replay_ask_above,
    )

    start_export: Provider[StartExport] = Singleton(
        StartExport, forms=forms, catalog=job_catalog, queue=job_queue, history=job_history, ids=ids
    )
    write_export: Provider[WriteExport] = Singleton(
        WriteExport,
        walk=walk,
        exports=exports,
        transactions=transactions,
        keep=Computed(lambda settings: settings.export_retention, settings),
    )
    open_export_file: Provider[OpenExportFile] = Singleton(
        OpenExportFile, history=job_history, exports=exports
    )
    stream_submissions: Provider[StreamSubmissions] = Singleton(StreamSubmissions, walk=walk)

    examine: Provider[Examine] = Singleton(
        Examine,
        inspection=inspection,
        workers=workers,
        timetables=timetables,
        history=job_history,
        health=health,
        targets=targets,
        clock=clock,
        alert_url=Computed(lambda settings: settings.alert_webhook_url, settings),
        seals=Computed(lambda settings: bool(settings.secret_key), settings),
    )

    clean_up: Provider[CleanUp] = Singleton(CleanUp, sweep=sweep, policy=retention_policy, clock=clock)

    report_presence: Provider[ReportPresence] = Singleton(ReportPresence, registry=workers)
    leave_work: Provider[LeaveWork] = Singleton(LeaveWork, registry=workers)
    list_workers: Provider[ListWorkers] = Singleton(ListWorkers, registry=workers)

    create_key: Provider[CreateKey] = Singleton(CreateKey, keys=keys, ids=ids)
    list_keys: Provider[ListKeys] = Singleton(ListKeys, keys=keys)
    revoke_key: Provider[RevokeKey] = Singleton(RevokeKey, keys=keys)
    authenticate: Provider[Authenticate] = Singleton(Authenticate, keys=keys)
    warn_of_expiring_keys: Provider[WarnOfExpiringKeys] = Singleton(
        WarnOfExpiringKeys,
        warnings=key_warnings,
        destinations=destinations,
        queue=queue,
        transactions=transactions,
        ids=ids,
    )
