"""Who works on a deployment: the task that holds its claim, as long as it beats."""

from __future__ import annotations

from django.utils import timezone

from portal.endpoints.models import Deployment
from portal.endpoints.states import DeploymentState


def still_ours(deployment: Deployment) -> bool:
    """Beat; False when the deployment was canceled or another owner took over."""
    at = timezone.now()
    return bool(
        Deployment.objects.filter(
            pk=deployment.pk, owner=deployment.owner, state=DeploymentState.RUNNING
        ).update(beat_at=at)
    )
