"""What people and clients do to endpoints: one verb a user action; all writes go through here."""

from portal.endpoints.services.access import (
    get_endpoint,
    get_endpoint_by_id,
    level_of,
    require,
    servable_models,
)
from portal.endpoints.services.configs import create_endpoint, update_config
from portal.endpoints.services.lifecycle import (
    cancel_update,
    delete_endpoint,
    retry_deployment,
    start_endpoint,
    stop_endpoint,
)
from portal.endpoints.services.profiles import measure_again, profile_of
from portal.endpoints.services.sharing import (
    Grant,
    forget_group,
    remove_permission,
    set_ai_gateway,
    set_description,
    set_notifications,
    set_permissions,
    set_rate_limits,
    update_tags,
)
from portal.endpoints.services.validation import (
    default_name,
    eligibility_of,
    name_problem,
    plan_config,
    plan_endpoint,
)

__all__ = [
    "Grant",
    "cancel_update",
    "create_endpoint",
    "default_name",
    "delete_endpoint",
    "eligibility_of",
    "forget_group",
    "get_endpoint",
    "get_endpoint_by_id",
    "level_of",
    "measure_again",
    "name_problem",
    "plan_config",
    "plan_endpoint",
    "profile_of",
    "remove_permission",
    "require",
    "retry_deployment",
    "servable_models",
    "set_ai_gateway",
    "set_description",
    "set_notifications",
    "set_permissions",
    "set_rate_limits",
    "start_endpoint",
    "stop_endpoint",
    "update_config",
    "update_tags",
]
