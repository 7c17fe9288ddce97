"""What is audited: the actions, what they are done to, how they ended, how the actor came in."""

from __future__ import annotations

from django.db.models import TextChoices

from portal.ui.tones import Tone


class Action(TextChoices):
    LOGIN = "login", "Log in"
    DENIED = "denied", "Refused request"
    TOKEN_CREATE = "token.create", "Create token"
    TOKEN_REVOKE = "token.revoke", "Revoke token"
    USER_CREATE = "user.create", "Create user"
    USER_UPDATE = "user.update", "Update user"
    USER_ACTIVATE = "user.activate", "Activate user"
    USER_DEACTIVATE = "user.deactivate", "Deactivate user"
    USER_SET_ADMIN = "user.set_admin", "Change admin role"
    USER_RESET_PASSWORD = "user.reset_password", "Reset password"
    USER_CHANGE_PASSWORD = "user.change_password", "Change own password"
    GROUP_CREATE = "group.create", "Create group"
    GROUP_DELETE = "group.delete", "Delete group"
    GROUP_MEMBER = "group.member", "Change group member"
    PREVIEW_SET = "preview.set", "Turn preview on or off"
    ENDPOINT_CREATE = "endpoint.create", "Create endpoint"
    ENDPOINT_UPDATE = "endpoint.update", "Update endpoint config"
    ENDPOINT_CHANGE = "endpoint.change", "Change endpoint settings"
    ENDPOINT_MEASURE = "endpoint.measure", "Ask for new measurements"
    ENDPOINT_RETRY = "endpoint.retry", "Deploy endpoint again"
    ENDPOINT_CANCEL = "endpoint.cancel", "Cancel endpoint update"
    ENDPOINT_STOP = "endpoint.stop", "Stop endpoint"
    ENDPOINT_START = "endpoint.start", "Start endpoint"
    ENDPOINT_DELETE = "endpoint.delete", "Delete endpoint"
    ENDPOINT_PERMISSIONS = "endpoint.permissions", "Change endpoint permissions"
    MODEL_CREATE = "model.create", "Create model"
    MODEL_UPDATE = "model.update", "Update model"
    MODEL_DELETE = "model.delete", "Delete model"
    MODEL_PERMISSIONS = "model.permissions", "Change model permissions"
    MODEL_TAG = "model.tag", "Change model tag"
    VERSION_CREATE = "version.create", "Create model version"
    VERSION_FINALIZE = "version.finalize", "Finalize model version"
    VERSION_STAGE = "version.stage", "Stage model version"
    VERSION_UPDATE = "version.update", "Update model version"
    VERSION_TAG = "version.tag", "Change model version tag"
    VERSION_DELETE = "version.delete", "Delete model version"
    ALIAS_SET = "alias.set", "Set model alias"
    ALIAS_DELETE = "alias.delete", "Delete model alias"
    FILE_PUT = "file.put", "Upload file"
    FILE_DELETE = "file.delete", "Delete file"
    DIRECTORY_CREATE = "directory.create", "Create directory"
    DIRECTORY_DELETE = "directory.delete", "Delete directory"
    SCOPE_CREATE = "scope.create", "Create secret scope"
    SCOPE_DELETE = "scope.delete", "Delete secret scope"
    SECRET_PUT = "secret.put", "Put secret"
    SECRET_DELETE = "secret.delete", "Delete secret"
    SECRET_READ = "secret.read", "Read secret"
    SCOPE_PERMISSIONS = "scope.permissions", "Change scope permissions"


class ObjectKind(TextChoices):
    USER = "user", "User"
    GROUP = "group", "Group"
    TOKEN = "token", "Token"
    PREVIEW = "preview", "Preview"
    ENDPOINT = "endpoint", "Endpoint"
    MODEL = "model", "Model"
    VERSION = "version", "Model version"
    FILE = "file", "File or directory"
    SCOPE = "scope", "Secret scope"
    SECRET = "secret", "Secret"
    PATH = "path", "Path"


class Outcome(TextChoices):
    DONE = "done", "Done"
    DENIED = "denied", "Denied"
    FAILED = "failed", "Failed"


class Via(TextChoices):
    """How the actor came in."""

    SESSION = "session", "Browser"
    TOKEN = "token", "Token"
    LINK = "link", "Signed link"
    NOBODY = "nobody", "Not logged in"
    CONSOLE = "console", "Console"
    SYSTEM = "system", "System"


OUTCOME_TONES: dict[Outcome, Tone] = {
    Outcome.DONE: Tone.IDLE,
    Outcome.DENIED: Tone.WARN,
    Outcome.FAILED: Tone.BAD,
}
