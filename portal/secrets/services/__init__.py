"""What people, clients and deployments do with secrets."""

from portal.secrets.services.access import find_scope, permission_of
from portal.secrets.services.keys import (
    delete_secret,
    from_base64,
    list_secrets,
    put_secret,
    reencrypt,
    refuse_to_show,
)
from portal.secrets.services.references import (
    Resolved,
    SecretUnavailable,
    problems_with,
    resolve_all,
)
from portal.secrets.services.scopes import (
    ScopeView,
    create_scope,
    delete_acl,
    delete_scope,
    forget_group,
    get_acl,
    list_acls,
    list_scopes,
    put_acl,
)

__all__ = [
    "Resolved",
    "ScopeView",
    "SecretUnavailable",
    "create_scope",
    "delete_acl",
    "delete_scope",
    "delete_secret",
    "find_scope",
    "forget_group",
    "from_base64",
    "get_acl",
    "list_acls",
    "list_scopes",
    "list_secrets",
    "permission_of",
    "problems_with",
    "put_acl",
    "put_secret",
    "reencrypt",
    "refuse_to_show",
    "resolve_all",
]
