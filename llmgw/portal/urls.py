"""The portal's addresses. A page's name before its first dash is its place in the menu."""

from __future__ import annotations

from django.urls import path

from llmgw.portal import preferences
from llmgw.portal.pages import (
    account,
    audit,
    chat,
    cluster,
    find,
    landing,
    models,
    nodes,
    people,
    profile,
    replicas,
    requests,
    said,
    settings,
    tenants,
    usage,
    why,
    words,
)

app_name = "portal"

urlpatterns = [
    path("", landing.landing, name="landing"),
    path("preferences", preferences.preferences, name="preferences"),
    path("words.js", words.Words.as_view(), name="words"),
    path("find", find.find, name="find"),
    path("why", why.why, name="why"),
    path("chat", chat.chat, name="chat"),
    path("chat/token", chat.token, name="chat-token"),
    path("account", account.account, name="account"),
    path("account/keys/<str:key>/revoke", account.revoke, name="account-revoke"),
    path("account/usage", usage.usage, name="usage"),
    path("account/usage/days.csv", usage.by_day, name="usage-days"),
    path("account/usage/models.csv", usage.by_model, name="usage-models"),
    path("account/profile", profile.profile, name="profile"),
    path("account/sessions/end", profile.end_sessions, name="profile-sessions"),
    path("admin/", cluster.cluster, name="cluster"),
    path("admin/live", cluster.stream, name="live"),
    path("admin/nodes", nodes.nodes, name="nodes"),
    path("admin/nodes/<str:node>", nodes.one, name="nodes-one"),
    path("admin/nodes/<str:node>/change", nodes.change, name="nodes-change"),
    path("admin/nodes/<str:node>/certificates/<str:serial>/revoke", nodes.revoke, name="nodes-revoke"),
    path("admin/nodes/<str:node>/doctor", nodes.doctor, name="nodes-doctor"),
    path("admin/nodes/<str:node>/log", nodes.log, name="nodes-log"),
    path("admin/models", models.models, name="models"),
    path("admin/models/<path:model>/change", models.change, name="models-change"),
    path("admin/models/<path:model>", models.one, name="models-one"),
    path("admin/replicas", replicas.replicas, name="replicas"),
    path("admin/replicas/<str:replica>", replicas.one, name="replicas-one"),
    path("admin/replicas/<str:replica>/change", replicas.change, name="replicas-change"),
    path("admin/replicas/<str:replica>/log", replicas.log, name="replicas-log"),
    path("admin/requests", requests.requests, name="requests"),
    path("admin/requests/<str:id>", requests.one, name="requests-one"),
    path("admin/requests/<str:id>/said", said.said, name="requests-said"),
    path("admin/requests/<str:id>/replay", said.replay, name="requests-replay"),
    path("admin/requests/<str:id>/compare/<str:other>", said.beside, name="requests-compare"),
    path("admin/tenants", tenants.tenants, name="tenants"),
    path("admin/people", people.people, name="people"),
    path("admin/people/<str:public_id>", people.change, name="people-change"),
    path("admin/audit", audit.audit, name="audit"),
    path("admin/settings", settings.settings, name="settings"),
    path("admin/settings/<int:version>/rollback", settings.rollback, name="settings-rollback"),
]
