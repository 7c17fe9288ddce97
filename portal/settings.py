"""All settings. The environment is read through `portal.env` only; README.md lists the names."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url

from portal import env


def hash_of(text: str) -> str:
    """A short, stable name for a long text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


BASE_DIR = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------- where things are
DATA_DIR = env.path("SHOAL_DATA_DIR", BASE_DIR / ".shoal")
DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
HOST = env.text("SHOAL_HOST", "127.0.0.1")
PORT = env.integer("SHOAL_PORT", 8000, least=1, most=65535)
IS_LOOPBACK = HOST in {"127.0.0.1", "::1", "localhost"}
PUBLIC_URL = env.url("SHOAL_PUBLIC_URL")  # empty: taken from each request
IS_HTTPS = PUBLIC_URL.startswith("https://")
TRUSTED_PROXIES = env.networks("SHOAL_TRUSTED_PROXIES", "127.0.0.1,::1")
VALKEY_SOCKET = DATA_DIR / "valkey" / "valkey.sock"
if len(str(VALKEY_SOCKET)) > 100:  # the kernel takes at most 107 bytes
    VALKEY_SOCKET = Path(tempfile.gettempdir()) / f"shoal-{hash_of(str(DATA_DIR))}" / "valkey.sock"
REDIS_URL = env.text("REDIS_URL", f"unix://{VALKEY_SOCKET}")
HAS_OWN_REDIS = not env.text("REDIS_URL", "")  # `up` starts one
WEB_WORKERS = env.integer("SHOAL_WEB_WORKERS", 2, least=1, most=64)
TASK_WORKERS = env.integer("SHOAL_TASK_WORKERS", 4, least=2, most=64)

FILES_DIR = DATA_DIR / "files"  # what clients uploaded: Models/..., Volumes/...
UPLOADS_DIR = DATA_DIR / "uploads"  # what is still being uploaded
ENVIRONMENTS_DIR = DATA_DIR / "environments"  # unpacked, by content hash
MODELS_DIR = DATA_DIR / "models"  # unpacked model versions
BUILD_LOGS_DIR = DATA_DIR / "build-logs"  # what pip said, a file an environment
REPLICAS_DIR = DATA_DIR / "replicas"  # a folder a replica: spec, status, logs, model repository

# ---------------------------------------------------------------- serving
ACCELERATOR = env.choice("SHOAL_ACCELERATOR", "auto", ("auto", "cuda", "cpu-emulation"))
TRITON_HOME = env.text("SHOAL_TRITON_HOME", "")  # empty: the one nvidia-pytriton carries
PYTHON_HOMES = env.words("SHOAL_PYTHON_HOMES", "")  # prefixes of further interpreters
REPLICA_START_DEADLINE_S = env.integer("SHOAL_REPLICA_START_DEADLINE_S", 600, least=10)
PROFILE_BUDGET_S = env.integer("SHOAL_PROFILE_BUDGET_S", 40, least=0, most=600)
REQUEST_TIMEOUT_S = env.integer("SHOAL_REQUEST_TIMEOUT_S", 55, least=1, most=597)
MAX_REQUEST_BYTES = env.integer("SHOAL_MAX_REQUEST_MB", 16, least=1) * 2**20
MAX_SERVED_ENTITIES = env.integer("SHOAL_MAX_SERVED_ENTITIES", 15, least=1)
MAX_ENVIRONMENT_VARIABLES = env.integer("SHOAL_MAX_ENVIRONMENT_VARIABLES", 50)
MAX_CONCURRENCY = env.integer("SHOAL_MAX_CONCURRENCY", 1024, least=4)  # of a served entity
MAX_WORKSPACE_CONCURRENCY = env.integer("SHOAL_MAX_WORKSPACE_CONCURRENCY", 4096, least=4)
MAX_ENDPOINTS = env.integer("SHOAL_MAX_ENDPOINTS", 1000, least=1)
MAX_OPERATIONS = env.integer("SHOAL_MAX_OPERATIONS", 50, least=1)  # in 5 minutes
UPLOAD_EXPIRES_S = 24 * 3600
STORE_GRACE_S = 6 * 3600  # how long unpacked environments and models outlive their last use

# ---------------------------------------------------------------- Django
DEBUG = env.boolean("SHOAL_DEBUG", default=False)


def _known_hosts() -> str:
    """The names that requests may carry, unless they are set: any on loopback, while private."""
    if IS_LOOPBACK and not PUBLIC_URL:
        return "*"
    names = [urlsplit(PUBLIC_URL).hostname or "", HOST, "localhost", "127.0.0.1", "[::1]"]
    return ",".join(dict.fromkeys(name for name in names if name not in {"", "0.0.0.0", "::"}))  # noqa: S104 - compared, not bound


ALLOWED_HOSTS = env.words("SHOAL_ALLOWED_HOSTS", _known_hosts())
CSRF_TRUSTED_ORIGINS = env.words(
    "SHOAL_TRUSTED_ORIGINS",
    "{0.scheme}://{0.netloc}".format(urlsplit(PUBLIC_URL)) if PUBLIC_URL else "",
)


def _secret_key() -> str:
    """The configured key, else one made at the first start and kept in the data directory."""
    configured = env.secret("SHOAL_SECRET_KEY")
    if configured:
        return configured
    file = DATA_DIR / "secret_key"
    if not file.exists():
        # Written whole under another name first: processes that start together read one key.
        written = DATA_DIR / f".secret_key-{secrets.token_hex(8)}"
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(50))
        with suppress(FileExistsError):
            file.hardlink_to(written)
        written.unlink()
    return file.read_text()


SECRET_KEY = _secret_key()
# They encrypt the values of secrets: the first encrypts, all decrypt, and so does SECRET_KEY.
SECRETS_KEYS = [key.strip() for key in (env.secret("SHOAL_SECRETS_KEY") or "").split(",") if key]
AUDIT_DAYS = env.integer("SHOAL_AUDIT_DAYS", 365)  # 0: kept for ever

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "portal.launcher",
    "portal.ui",
    "portal.audit",
    "portal.accounts",
    "portal.previews",
    "portal.secrets",
    "portal.registry",
    "portal.endpoints",
    "portal.logs",
    "portal.schema",
]

MIDDLEWARE = [
    "portal.ui.middleware.PageMiddleware",  # first: its headers are on every answer
    "portal.ui.guard.RequestGuard",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.audit.middleware.AuditMiddleware",
]

ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
APPEND_SLASH = False  # a redirected POST would become a GET
PREPEND_WWW = False

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.ui.context.frame",
            ],
            "builtins": ["django.templatetags.static", "portal.ui.templatetags.shoal"],
        },
    }
]

DATABASES = {
    "default": dj_database_url.parse(
        env.text("DATABASE_URL", f"sqlite:///{DATA_DIR / 'db.sqlite3'}"), conn_max_age=60
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # A file for tests too: in memory, all threads of a test's server would share one connection.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "endpoints"
LOGOUT_REDIRECT_URL = "login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "portal.ui.errors.csrf_failure"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
# An https public URL turns all of this on. Whether a request came by TLS is told by the proxy, and
# believed from trusted ones only (`portal.proxies`).
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SECURE_HSTS_SECONDS = env.integer("SHOAL_HSTS_S", 30 * 24 * 3600) if IS_HTTPS else 0
SECURE_SSL_REDIRECT = IS_HTTPS
SECURE_SSL_HOST = urlsplit(PUBLIC_URL).netloc or None
SECURE_REDIRECT_EXEMPT = [r"^api/", r"^\.well-known/", r"^healthz$"]  # a redirected POST is a GET
SILENCED_SYSTEM_CHECKS = [
    # HSTS for subdomains and in browsers' own lists binds the whole domain, which may hold other
    # services: for its owner to decide, at the proxy.
    "security.W005",
    "security.W021",
    "security.W009",  # shoal.E004 says the same in the words of our settings
]
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
DATA_UPLOAD_MAX_MEMORY_SIZE = 64 * 2**20  # a page's form with a request of 16 MB, url-encoded
MAX_API_BODY_BYTES = 8 * 2**20  # JSON to the REST API; predictions and files do not come here
FILE_UPLOAD_MAX_MEMORY_SIZE = 2**20

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["portal.accounts.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["portal.rest.JSONParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "portal.rest.IgnoreAccept",
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is as unknown as any other method
    "EXCEPTION_HANDLER": "portal.rest.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "portal.schema.auto.ApiSchema",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Shoal",
    "VERSION": "2.0",
    "OAS_VERSION": "3.1.0",
    "COMPONENT_SPLIT_PATCH": False,  # a PATCH here takes what it says, not all of it optionally
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SORT_OPERATIONS": False,
    "SORT_OPERATION_PARAMETERS": False,
    "PREPROCESSING_HOOKS": ["portal.schema.document.described_routes"],
    "POSTPROCESSING_HOOKS": ["portal.schema.document.complete"],
}

# ---------------------------------------------------------------- Celery
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_SOFT_TIME_LIMIT = 3300
CELERY_TASK_TIME_LIMIT = 3600
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 7200}
CELERY_TIMEZONE = "UTC"
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE = {
    "reconcile endpoints": {
        "task": "endpoints.reconcile",
        "schedule": 5.0,
        "options": {"expires": 5},
    },
    "reconcile staging": {
        "task": "registry.reconcile",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "old audit rows": {
        "task": "audit.forget_old",
        "schedule": 6 * 3600.0,
        "options": {"expires": 3600},
    },
    "token use": {
        "task": "accounts.record_token_use",
        "schedule": 20.0,
        "options": {"expires": 20},
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.text("SHOAL_LOG_LEVEL", "INFO")},
}
