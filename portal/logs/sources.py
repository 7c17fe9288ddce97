"""What can be looked at: an endpoint's replicas, merged or one by one, and its build logs."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django.db.models import Q, QuerySet

from portal.endpoints.models import Endpoint, Replica, ServedEntity
from portal.endpoints.reading import replica_chip
from portal.endpoints.states import ReplicaPurpose, ReplicaState
from portal.logs.feeds import BuildFeed, Feed, ReplicaFeed
from portal.registry.services import build_log
from portal.ui.tones import Chip
from serving.spec import Backend

if TYPE_CHECKING:
    from datetime import datetime

    from portal.registry.models import ModelVersion

ENDED_STATES = (ReplicaState.STOPPED, ReplicaState.CRASHED)
ENDED = Q(state=ReplicaState.STOPPED) | Q(state=ReplicaState.CRASHED, is_wanted=False)
"""A replica that crashed and is still wanted comes back."""
MAX_MERGED = 16  # replicas in one view: the live ones and the newest of the others
MAX_EARLIER = 30  # ended replicas that the picker lists
BUILD = "build"
SERVERS = {
    Backend.TRITON: "Triton",
    Backend.STANDARD: "The standard server",
    Backend.ENTRYPOINT: "The model's own server",
}
DEVICES = {"cpu": "CPU", "cpu-emulation": "CPU emulation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the address asks for; empty means everything, merged.

    Attributes:
        entity: A served entity's name.
        replica: A replica's public id.
        log: "build" for the build log of `entity`.
    """

    entity: str = ""
    replica: str = ""
    log: str = ""

    @property
    def parameters(self) -> dict[str, str]:
        """The query parameters that ask for it."""
        if self.replica:
            return {"replica": self.replica}
        found = {"entity": self.entity, "log": self.log}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A log to look at.

    Attributes:
        file_part: What stands for it in a download's name.
        holds: One sentence on what is in it.
        ended: Why no more lines will come, empty while they may.
        notices: What became of each of its replicas that ended, by replica.
    """

    choice: Choice
    title: str
    file_part: str
    holds: str
    feeds: tuple[Feed, ...]
    ended: str
    notices: dict[str, str]
    poll_s: float = 0.2

    @property
    def has_times(self) -> bool:
        """Whether its lines tell when they were written; those of a build log do not."""
        return not self.choice.log


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A source in the picker."""

    choice: Choice
    title: str
    holds: str
    chip: Chip | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionGroup:
    title: str
    options: list[Option]


class NoSuchLog(LookupError):
    """The endpoint has no such replica or served entity."""


def open_source(endpoint: Endpoint, choice: Choice) -> Source:
    """The log that `choice` names.

    Raises:
        NoSuchLog: It names nothing of this endpoint.
    """
    if choice.replica:
        return _one_replica(endpoint, choice)
    if choice.log == BUILD:
        return _build(endpoint, choice)
    return _merged(endpoint, choice)


def end_of(replica: Replica) -> str:
    """How a replica ended, as a sentence; empty while it lives."""
    if replica.state not in ENDED_STATES:
        return ""
    word = "stopped" if replica.state == ReplicaState.STOPPED else "crashed"
    return f"Replica {replica.public_id} {word}{_exit_words(replica.exit_code)}."


def is_ended(replica: Replica) -> bool:
    """Whether no more lines will come."""
    stopped = replica.state == ReplicaState.STOPPED
    return stopped or (replica.state == ReplicaState.CRASHED and not replica.is_wanted)


def _exit_words(code: int | None) -> str:
    if code is None:
        return ""
    if code == 128 + signal.SIGKILL:
        return f", exit code {code} (killed, most often for want of memory)"
    names = {128 + int(number): number.name for number in signal.Signals}
    return f", exit code {code} ({names[code]})" if code in names else f", exit code {code}"


# ---------------------------------------------------------------- one source


def _one_replica(endpoint: Endpoint, choice: Choice) -> Source:
    replica = _replicas(endpoint).filter(public_id=choice.replica).first()
    if replica is None:
        raise NoSuchLog(f"{endpoint.name} has no replica {choice.replica}.")
    return Source(
        choice=choice,
        title=f"Replica {replica.public_id}",
        file_part=replica.public_id,
        holds=_holds(replica),
        feeds=(_feed(replica),),
        ended=end_of(replica) if is_ended(replica) else "",
        notices={replica.public_id: end_of(replica)} if end_of(replica) else {},
    )


def _merged(endpoint: Endpoint, choice: Choice) -> Source:
    entities = current_entities(endpoint)
    if choice.entity:
        entities = [entity for entity in entities if entity.name == choice.entity]
        if not entities:
            raise NoSuchLog(f"{endpoint.name} serves no entity {choice.entity}.")
    replicas = _merged_replicas(endpoint, entities)
    live = sum(not is_ended(replica) for replica in replicas)
    return Source(
        choice=choice,
        title=f"All replicas of {choice.entity}" if choice.entity else "All replicas",
        file_part=choice.entity or "all",
        holds=_count_words(live, len(replicas) - live),
        feeds=tuple(_feed(replica) for replica in replicas),
        ended="",  # a restart or the next deployment brings new replicas
        notices={r.public_id: end_of(r) for r in replicas if end_of(r)},
    )


def _build(endpoint: Endpoint, choice: Choice) -> Source:
    entity = next((e for e in current_entities(endpoint) if e.name == choice.entity), None)
    if entity is None:
        raise NoSuchLog(f"{endpoint.name} serves no entity {choice.entity}.")
    return Source(
        choice=choice,
        title=f"Build log of {entity.name}",
        file_part=f"build-{entity.name}",
        holds=f"How the environment of {entity.entity_name} version {entity.entity_version} "
        "was unpacked or built.",
        feeds=(BuildFeed(BUILD, "[build]", partial(_build_text, entity.model_version)),),
        ended="",
        notices={},
        poll_s=1.0,
    )


def _build_text(version: ModelVersion | None) -> str:
    return build_log(version) if version is not None else ""


def _feed(replica: Replica) -> ReplicaFeed:
    return ReplicaFeed(replica)


# ---------------------------------------------------------------- the picker


def picker(endpoint: Endpoint) -> list[OptionGroup]:
    """All that can be looked at: merged, live replicas, earlier ones, build logs."""
    entities = current_entities(endpoint)
    replicas = [r for r in _replicas(endpoint).order_by("-pk") if r.directory.is_dir()]
    live = [replica for replica in replicas if not is_ended(replica)]
    earlier = [replica for replica in replicas if is_ended(replica)][:MAX_EARLIER]
    groups = [
        OptionGroup(title="Service logs", options=_merged_options(endpoint, entities)),
        OptionGroup(title="Running replicas", options=[_option(r) for r in live]),
        OptionGroup(title="Earlier replicas, still kept", options=[_option(r) for r in earlier]),
        OptionGroup(
            title="Build logs",
            options=[
                Option(
                    choice=Choice(entity=entity.name, log=BUILD),
                    title=entity.name,
                    holds=f"{entity.entity_name} version {entity.entity_version}: "
                    "how its environment was made.",
                )
                for entity in entities
                if entity.model_version_id
            ],
        ),
    ]
    return [group for group in groups if group.options]


def _merged_options(endpoint: Endpoint, entities: Sequence[ServedEntity]) -> list[Option]:
    everything = _merged(endpoint, Choice())
    options = [Option(choice=Choice(), title=everything.title, holds=everything.holds)]
    names = sorted({entity.name for entity in entities})
    if len(names) > 1:
        sources = [_merged(endpoint, Choice(entity=name)) for name in names]
        options += [Option(choice=s.choice, title=s.title, holds=s.holds) for s in sources]
    return options


def _option(replica: Replica) -> Option:
    return Option(
        choice=Choice(replica=replica.public_id),
        title=replica.public_id,
        holds=_holds(replica),
        chip=replica_chip(replica),
        since=replica.state_since,
    )


def _holds(replica: Replica) -> str:
    server = SERVERS[Backend(replica.backend)]
    device = DEVICES.get(replica.device) or replica.device.replace("cuda:", "GPU ")
    entity = replica.entity
    what = " (measured, serves nobody)" if replica.purpose == ReplicaPurpose.PROFILE else ""
    return (
        f"{server} for {entity.name}{what}, config {entity.config.version}, {device}: "
        "its output and Shoal's own words on it."
    )


def _count_words(live: int, ended: int) -> str:
    if not live + ended:
        return "No replica has started yet; lines come here as soon as one does."
    words = f"{live} running replica{'' if live == 1 else 's'}"
    if ended:
        words += f" and {ended} that ended"
    return f"{words}, merged by time."


# ---------------------------------------------------------------- queries


def current_entities(endpoint: Endpoint) -> list[ServedEntity]:
    """The served entities of the active and the pending config."""
    configs = [endpoint.active_config_id, endpoint.pending_config_id]
    return list(
        ServedEntity.objects.filter(config__in=[pk for pk in configs if pk])
        .select_related("config", "model_version__model")
        .order_by("config__version", "position")
    )


def _replicas(endpoint: Endpoint) -> QuerySet[Replica]:
    return Replica.objects.filter(entity__config__endpoint=endpoint).select_related(
        "entity__config"
    )


def _merged_replicas(endpoint: Endpoint, entities: Iterable[ServedEntity]) -> list[Replica]:
    wanted = _replicas(endpoint).filter(entity__in=[entity.pk for entity in entities])
    live = [r for r in wanted.exclude(ENDED).order_by("-pk") if r.directory.is_dir()]
    ended = [r for r in wanted.filter(ENDED).order_by("-pk") if r.directory.is_dir()]
    return sorted([*live, *ended][:MAX_MERGED], key=lambda replica: replica.pk)
