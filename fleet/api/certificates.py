"""`/api/v1/certificates`: those of nodes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from fleet import selectors
from fleet.actions import certificates
from tenancy.api.auth import actor_of

_SERIAL = OpenApiParameter("serial", str, OpenApiParameter.PATH, description="the certificate's serial")


class CertificateRow(serializers.Serializer[Any]):
    serial = serializers.CharField()
    node = serializers.CharField()
    state = serializers.CharField()
    expires = serializers.DateTimeField()
    issued = serializers.DateTimeField()
    revoked = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField()


class Certificates(GenericViewSet[Any]):
    """Nodes' certificates. They are issued by a join code, or by `llmgw cert issue` where the key may be written."""

    serializer_class = CertificateRow
    lookup_field = "serial"
    lookup_value_regex = "[0-9a-f]+"

    @extend_schema(responses=CertificateRow(many=True))
    def list(self, request: Request) -> Response:
        rows = self.paginate_queryset(selectors.certificates())
        return self.get_paginated_response(CertificateRow(rows, many=True).data)

    @extend_schema(parameters=[_SERIAL], responses={204: None})
    def destroy(self, request: Request, serial: str) -> Response:
        """Revokes it; its node's connection is closed within seconds."""
        certificates.revoke(which=serial, actor=actor_of(request))
        return Response(status=204)
