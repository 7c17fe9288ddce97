"""`GET /.well-known/databricks-config`, which clients ask at nearly every call: from memory."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse

from portal.rest import EndpointNotFound, error_response
from portal.workspace import workspace_id


def well_known(request: HttpRequest) -> JsonResponse:
    """Open to everybody; no database, no session."""
    if request.method not in {"GET", "HEAD"}:
        error = EndpointNotFound("There is no such API path with this method.")
        return error_response(error, request)
    return JsonResponse({"oidc_endpoint": "", "workspace_id": workspace_id()})
