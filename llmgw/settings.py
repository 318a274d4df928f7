"""Django's settings, from this machine's (`llmgw.machine`). Decides nothing else."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from llmgw import machine as _machine
from llmgw import secrets as _secrets

MACHINE = _machine.require()
BASE_DIR = Path(__file__).resolve().parent.parent
_SHIPPED = Path(__file__).resolve().parent / "shipped"
_ROOT = _SHIPPED if _SHIPPED.is_dir() else BASE_DIR

SECRET_KEY = _secrets.read_or_make(MACHINE.secrets_dir, "django")
DEBUG = MACHINE.debug
ALLOWED_HOSTS = [*MACHINE.allowed_hosts, "127.0.0.1", "localhost", "[::1]", "testserver"]
if MACHINE.public_url:
    ALLOWED_HOSTS.append(urlsplit(MACHINE.public_url).hostname or "")
if MACHINE.host not in ("127.0.0.1", "localhost", "::1"):
    _everywhere = MACHINE.host in ("0.0.0.0", "::")  # noqa: S104 - a comparison
    ALLOWED_HOSTS.append("*" if _everywhere and not MACHINE.allowed_hosts else MACHINE.host)
SECURE_PROXY_SSL_HEADER = (
    "HTTP_X_FORWARDED_PROTO",
    "https",
)  # set by our edge alone, which strips a forged one
USE_X_FORWARDED_HOST = False

INSTALLED_APPS = [
    "llmgw.portal",  # first: its templates and commands go before allauth's
    "llmgw.up",
    "llmgw.rehearsal",
    "gateway",
    "fleet",
    "catalog",
    "mirror",
    "tenancy",
    "llmgw.cluster",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "channels",
    "rest_framework",
    "drf_spectacular",
]
MIDDLEWARE = [
    "llmgw.portal.once.OneLook",
    "llmgw.portal.client.ClientAddress",
    "llmgw.portal.headers.ContentSecurityPolicy",  # before whatever may answer: no answer goes without
    "django.middleware.security.SecurityMiddleware",
    "llmgw.portal.assets.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "llmgw.portal.preferences.PersonLanguage",
    "llmgw.portal.password.MustChangePassword",
    "llmgw.portal.gate.Refusals",
]
ROOT_URLCONF = "llmgw.urls"
ASGI_APPLICATION = "llmgw.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "llmgw.portal.context.house",
            ],
        },
    }
]


def _database(store: str) -> dict[str, object]:
    if not store:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": MACHINE.database,
            # Writers queue instead of failing: WAL, IMMEDIATE and a busy time-out (docs/decisions.md).
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    url = urlsplit(store)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(url.path.lstrip("/")),
        "USER": unquote(url.username or ""),
        "PASSWORD": unquote(url.password or ""),
        "HOST": unquote(url.hostname or ""),
        "PORT": url.port or "",
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": dict(p.split("=", 1) for p in url.query.split("&") if "=" in p),
    }


DATABASES = {"default": _database(MACHINE.store)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": MACHINE.redis_url}}
AUTH_USER_MODEL = "tenancy.Person"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "portal:landing"
LOGOUT_REDIRECT_URL = "portal:landing"
ACCOUNT_ADAPTER = "tenancy.adapter.ClosedSignUp"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_MAX_EMAIL_ADDRESSES = 1  # an address is who somebody is: only administrators give one
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_SESSION_REMEMBER = True
EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
SESSION_COOKIE_NAME = "llmgw_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = MACHINE.public_url.startswith("https://")

LANGUAGE_CODE = MACHINE.language
LANGUAGES = [("en", "English"), ("tr", "Türkçe")]
LANGUAGE_COOKIE_NAME = "llmgw_lang"
LOCALE_PATHS = [_ROOT / "locales"]
TIME_ZONE = MACHINE.time_zone
USE_I18N = True
FORMAT_MODULE_PATH = ["llmgw.portal.formats"]
USE_TZ = True
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False
DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024  # the edge caps bodies before

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenancy.api.auth.AdminKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tenancy.api.auth.IsAdministrator"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "llmgw.cluster.api.errors.as_json",
    "PAGE_SIZE": 100,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "llmgw",
    "DESCRIPTION": "The admin API: the same nouns as the commands and the pages.",
    "VERSION": "v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["tenancy.api.auth.IsAdministrator"],
}

CELERY_BROKER_URL = MACHINE.redis_url.replace("unix://", "redis+socket://")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A killed worker's tasks come back within seconds (measured: docs/decisions.md, joints); no task runs longer.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 60,
    "unacked_restore_interval": 2,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 2,
    "socket_timeout": 30,
}
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 50
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    # A line a request is noise here: what went wrong is an exception or an answer.
    "loggers": {name: {"level": "WARNING"} for name in ("httpx", "httpx2")},
}
