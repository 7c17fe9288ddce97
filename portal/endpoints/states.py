"""States of endpoints, deployments, served entities and replicas, and what may follow what."""

from __future__ import annotations

from django.db.models import TextChoices

from portal.ui.tones import Tone


class Ready(TextChoices):
    """Can the endpoint answer?"""

    READY = "READY", "Ready"
    NOT_READY = "NOT_READY", "Not ready"


class ConfigUpdate(TextChoices):
    """Is a config rolling out, or did it fail?"""

    NOT_UPDATING = "NOT_UPDATING", "Not updating"
    IN_PROGRESS = "IN_PROGRESS", "Updating"
    UPDATE_FAILED = "UPDATE_FAILED", "Update failed"
    UPDATE_CANCELED = "UPDATE_CANCELED", "Update canceled"


class EntityState(TextChoices):
    DEPLOYMENT_CREATING = "DEPLOYMENT_CREATING", "Creating"
    DEPLOYMENT_READY = "DEPLOYMENT_READY", "Ready"
    DEPLOYMENT_RECOVERING = "DEPLOYMENT_RECOVERING", "Recovering"
    DEPLOYMENT_FAILED = "DEPLOYMENT_FAILED", "Failed"
    DEPLOYMENT_ABORTED = "DEPLOYMENT_ABORTED", "Aborted"


class DeploymentState(TextChoices):
    QUEUED = "QUEUED", "Queued"
    RUNNING = "RUNNING", "Running"
    SUCCEEDED = "SUCCEEDED", "Succeeded"
    FAILED = "FAILED", "Failed"
    CANCELED = "CANCELED", "Canceled"


class StepName(TextChoices):
    """The steps of a deployment, in their order."""

    DECIDE = "DECIDE", "Decide the backend"
    PREPARE = "PREPARE", "Prepare model and environment"
    PROFILE = "PROFILE", "Measure the model and choose its batching"
    LAUNCH = "LAUNCH", "Launch replicas"
    LOAD = "LOAD", "Start the server and load the model"
    SMOKE_TEST = "SMOKE_TEST", "Send the input example"
    SWITCH = "SWITCH", "Switch traffic"
    DRAIN = "DRAIN", "Drain and stop the old replicas"


class StepState(TextChoices):
    WAITING = "WAITING", "Waiting"
    RUNNING = "RUNNING", "Running"
    DONE = "DONE", "Done"
    FAILED = "FAILED", "Failed"
    SKIPPED = "SKIPPED", "Skipped"


class ReplicaPurpose(TextChoices):
    """What a replica is there for."""

    SERVE = "SERVE", "Serves requests"
    PROFILE = "PROFILE", "Is measured"  # never in a route; ends with its deployment's profile


class ReplicaState(TextChoices):
    """As in `serving.spec.ReplicaState`; LAUNCHING until its first beat."""

    LAUNCHING = "LAUNCHING", "Launching"
    STARTING = "STARTING", "Starting"
    READY = "READY", "Ready"
    DRAINING = "DRAINING", "Draining"
    STOPPED = "STOPPED", "Stopped"
    CRASHED = "CRASHED", "Crashed"


class TritonStatus(TextChoices):
    """What is known about Triton on a served entity; ACTIVE only from evidence."""

    ACTIVE = "ACTIVE", "Triton active"
    STARTING = "STARTING", "Triton starting"
    FELL_BACK = "FELL_BACK", "Fell back to standard"
    PENDING_REDEPLOY = "PENDING_REDEPLOY", "Pending redeploy"
    OFF = "OFF", "Standard backend"
    UNPROVEN = "UNPROVEN", "Triton not proven"
    FAILED = "FAILED", "Deployment failed"
    STOPPED = "STOPPED", "Stopped"


class PermissionLevel(TextChoices):
    """As in `serving.permissions.Level`; what each may do stands there."""

    CAN_VIEW = "CAN_VIEW", "Can view"
    CAN_QUERY = "CAN_QUERY", "Can query"
    CAN_MANAGE = "CAN_MANAGE", "Can manage"


REPLICA_FOLLOWS: dict[ReplicaState, set[ReplicaState]] = {
    ReplicaState.LAUNCHING: {
        ReplicaState.STARTING,
        ReplicaState.READY,
        ReplicaState.DRAINING,
        ReplicaState.STOPPED,
        ReplicaState.CRASHED,
    },
    ReplicaState.STARTING: {
        ReplicaState.READY,
        ReplicaState.DRAINING,
        ReplicaState.STOPPED,
        ReplicaState.CRASHED,
    },
    ReplicaState.READY: {
        ReplicaState.STARTING,
        ReplicaState.DRAINING,
        ReplicaState.STOPPED,
        ReplicaState.CRASHED,
    },
    ReplicaState.DRAINING: {ReplicaState.STOPPED, ReplicaState.CRASHED},
    ReplicaState.STOPPED: set(),
    ReplicaState.CRASHED: {
        ReplicaState.STARTING,
        ReplicaState.READY,
        ReplicaState.DRAINING,
        ReplicaState.STOPPED,
    },
}

DEPLOYMENT_FOLLOWS: dict[DeploymentState, set[DeploymentState]] = {
    DeploymentState.QUEUED: {
        DeploymentState.RUNNING,
        DeploymentState.FAILED,
        DeploymentState.CANCELED,
    },
    DeploymentState.RUNNING: {
        DeploymentState.SUCCEEDED,
        DeploymentState.FAILED,
        DeploymentState.CANCELED,
    },
    DeploymentState.SUCCEEDED: set(),
    DeploymentState.FAILED: set(),
    DeploymentState.CANCELED: set(),
}

CONFIG_UPDATE_FOLLOWS: dict[ConfigUpdate, set[ConfigUpdate]] = {
    ConfigUpdate.NOT_UPDATING: {ConfigUpdate.IN_PROGRESS},
    ConfigUpdate.IN_PROGRESS: {
        ConfigUpdate.NOT_UPDATING,
        ConfigUpdate.UPDATE_FAILED,
        ConfigUpdate.UPDATE_CANCELED,
    },
    ConfigUpdate.UPDATE_FAILED: {ConfigUpdate.IN_PROGRESS},
    ConfigUpdate.UPDATE_CANCELED: {ConfigUpdate.IN_PROGRESS},
}

ENTITY_FOLLOWS: dict[EntityState, set[EntityState]] = {
    EntityState.DEPLOYMENT_CREATING: {
        EntityState.DEPLOYMENT_READY,
        EntityState.DEPLOYMENT_FAILED,
        EntityState.DEPLOYMENT_ABORTED,
    },
    EntityState.DEPLOYMENT_READY: {EntityState.DEPLOYMENT_RECOVERING},
    EntityState.DEPLOYMENT_RECOVERING: {EntityState.DEPLOYMENT_READY},
    EntityState.DEPLOYMENT_FAILED: {EntityState.DEPLOYMENT_CREATING},
    EntityState.DEPLOYMENT_ABORTED: {EntityState.DEPLOYMENT_CREATING},
}

CONFIG_UPDATE_TONES: dict[ConfigUpdate, Tone] = {
    ConfigUpdate.NOT_UPDATING: Tone.IDLE,
    ConfigUpdate.IN_PROGRESS: Tone.BUSY,
    ConfigUpdate.UPDATE_FAILED: Tone.BAD,
    ConfigUpdate.UPDATE_CANCELED: Tone.IDLE,
}
ENTITY_TONES: dict[EntityState, Tone] = {
    EntityState.DEPLOYMENT_CREATING: Tone.BUSY,
    EntityState.DEPLOYMENT_READY: Tone.GOOD,
    EntityState.DEPLOYMENT_RECOVERING: Tone.WARN,
    EntityState.DEPLOYMENT_FAILED: Tone.BAD,
    EntityState.DEPLOYMENT_ABORTED: Tone.IDLE,
}
DEPLOYMENT_TONES: dict[DeploymentState, Tone] = {
    DeploymentState.QUEUED: Tone.BUSY,
    DeploymentState.RUNNING: Tone.BUSY,
    DeploymentState.SUCCEEDED: Tone.GOOD,
    DeploymentState.FAILED: Tone.BAD,
    DeploymentState.CANCELED: Tone.IDLE,
}
STEP_TONES: dict[StepState, Tone] = {
    StepState.WAITING: Tone.IDLE,
    StepState.RUNNING: Tone.BUSY,
    StepState.DONE: Tone.GOOD,
    StepState.FAILED: Tone.BAD,
    StepState.SKIPPED: Tone.IDLE,
}
REPLICA_TONES: dict[ReplicaState, Tone] = {
    ReplicaState.LAUNCHING: Tone.BUSY,
    ReplicaState.STARTING: Tone.BUSY,
    ReplicaState.READY: Tone.GOOD,
    ReplicaState.DRAINING: Tone.BUSY,
    ReplicaState.STOPPED: Tone.IDLE,
    ReplicaState.CRASHED: Tone.BAD,
}
TRITON_TONES: dict[TritonStatus, Tone] = {
    TritonStatus.ACTIVE: Tone.GOOD,
    TritonStatus.STARTING: Tone.BUSY,
    TritonStatus.FELL_BACK: Tone.WARN,
    TritonStatus.PENDING_REDEPLOY: Tone.WARN,
    TritonStatus.OFF: Tone.IDLE,
    TritonStatus.UNPROVEN: Tone.WARN,
    TritonStatus.FAILED: Tone.BAD,
    TritonStatus.STOPPED: Tone.IDLE,
}

UNDER_WAY: tuple[DeploymentState, ...] = (DeploymentState.QUEUED, DeploymentState.RUNNING)
"""A deployment in one of these is the endpoint's only one."""
