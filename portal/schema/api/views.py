"""`GET /api/schema`: the OpenAPI document, for people who are logged in and for tokens."""

from __future__ import annotations

from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.accounts.authentication import TokenAuthentication
from portal.schema.document import document
from portal.workspace import public_url


class SchemaView(APIView):
    authentication_classes = [TokenAuthentication, SessionAuthentication]

    def get(self, request: Request) -> Response:
        return Response(document(public_url(request)))
