"""What `/api/v1/models/…/bench` takes and gives."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class BenchAsked(serializers.Serializer[Any]):
    replica = serializers.CharField(required=False, allow_null=True, default=None, help_text="else the least disturbed")
    ttft = serializers.CharField(required=False, allow_null=True, default=None, help_text="`2s`; else the model's slo")
    tpot = serializers.CharField(required=False, allow_null=True, default=None, help_text="`80ms`")
    seconds = serializers.FloatField(default=10.0, help_text="for each level")
    words = serializers.IntegerField(default=200, help_text="in each prompt")
    tokens = serializers.IntegerField(default=64, help_text="in each answer")
    most = serializers.IntegerField(default=256, help_text="requests at once")
    keep = serializers.BooleanField(default=False, help_text="the figure, with the model")


class LevelShown(serializers.Serializer[Any]):
    concurrency = serializers.IntegerField(help_text="requests at once")
    requests = serializers.IntegerField()
    failed = serializers.IntegerField()
    seconds = serializers.FloatField()
    tokens_per_s = serializers.FloatField()
    requests_per_s = serializers.FloatField()
    ttft_p99_s = serializers.FloatField(allow_null=True)
    tpot_p99_s = serializers.FloatField(allow_null=True)
    waiting = serializers.IntegerField(allow_null=True, help_text="in the engine's queue; null: it does not tell")
    kv = serializers.FloatField(allow_null=True, help_text="share of the KV cache")
    held = serializers.BooleanField(help_text="within what is promised")
    why = serializers.CharField(help_text="why it did not hold")


class BenchShown(serializers.Serializer[Any]):
    id = serializers.CharField()
    model = serializers.CharField()
    replica = serializers.CharField()
    node = serializers.CharField()
    profile = serializers.CharField()
    state = serializers.CharField(help_text="waiting, running, stopping, done, stopped, failed, lost")
    reason = serializers.CharField(source="reason.sentence", default=None, allow_null=True)
    ttft_p99_s = serializers.FloatField(allow_null=True)
    tpot_p99_s = serializers.FloatField(allow_null=True)
    keep = serializers.BooleanField(source="save", help_text="the figure, with the model")
    begun_at = serializers.FloatField(help_text="Unix seconds")
    ended_at = serializers.FloatField(allow_null=True)
    levels = LevelShown(many=True)
    found = serializers.DictField(allow_null=True, help_text="concurrency, weight, …: as `llmgw bench --json` says")
