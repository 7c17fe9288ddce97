"""Names of what Shoal's processes tell each other through Redis or Valkey.

The control plane publishes routes and principals; replicas publish their status; the gateway
reads. Redis holds nothing that cannot be published again: after a loss the control plane's
reconciler and the replicas' beats fill it within seconds, and every reader keeps what it last knew.
"""

from __future__ import annotations

ROUTES = "shoal:routes"
"""Hash: endpoint name to `Route` JSON."""

PRINCIPALS = "shoal:principals"
"""Hash: SHA-256 (hex) of a token to `Principal` JSON."""

PUBLISHED = "shoal:published"
"""String, present once the control plane has published everything: an empty hash then means "none".

Without it, readers keep what they have."""

REVISION = "shoal:revision"
"""String, another one after each change of routes or principals: readers that know it need not look
further, however much is published."""

CHANGES = "shoal:changes"
"""Channel: `route:<endpoint name>`, `principal:<sha256>` when a field was set or removed; `all`."""

TOKEN_USE = "shoal:token-use"  # noqa: S105 - a key's name, not a secret
"""Hash: SHA-256 (hex) of a token to the time of its last use (seconds since 1970)."""

REPLICA_STATUS_TTL_S = 15
REPLICA_CHANGES = "shoal:replica-changes"
"""Channel: a replica's id, when its status changed other than by the clock."""


def replica_status_key(replica_id: str) -> str:
    """String with expiry: `ReplicaStatus` JSON."""
    return f"shoal:replica:{replica_id}"


def meter_key(endpoint_id: str) -> str:
    """Hash with expiry: all that was counted of an endpoint's requests (`serving.metering`)."""
    return f"shoal:meter:{endpoint_id}"


def meter_slot_key(endpoint_id: str, slot: int) -> str:
    """Hash with expiry: an endpoint's requests by status in ten seconds."""
    return f"shoal:meter:{endpoint_id}:{slot}"


def meter_number_key(process: str) -> str:
    """String with expiry: the number of the newest addition that a gateway has made."""
    return f"shoal:meter-number:{process}"


def limit_key(endpoint_id: str, counted: str) -> str:
    """Hash with expiry: the calls of one rate limit in this minute and in the one before."""
    return f"shoal:limit:{endpoint_id}:{counted}"
