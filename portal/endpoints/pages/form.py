"""The create and edit pages.

Without script every button sends the whole form and gets it back; with script the parts that follow
from a choice come alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.contrib import messages
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from portal.accounts.models import User
from portal.endpoints import reading, services
from portal.endpoints.forms import (
    EndpointFields,
    Errors,
    all_choices,
    choices_of,
    labels,
    parse,
    place,
    summarize,
)
from portal.endpoints.forms.choices import complain_about_hidden_switch, drop_unknown_version
from portal.endpoints.forms.parse import problem_with_name
from portal.endpoints.forms.summary import changes, needs_deployment
from portal.endpoints.inputs import EndpointInput
from portal.endpoints.models import Endpoint, EndpointConfig
from portal.endpoints.pages.common import Opened, base_url, open_endpoint, page, user_of
from portal.registry.models import RegisteredModelQuerySet
from portal.rest import ApiError, PermissionDenied
from serving.permissions import Action

SENT = "sent_forms"
"""Session: a form's key to the endpoint that its first sending made or changed."""
KEPT_KEYS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Editing:
    """What is edited, and what it was; neither on creation."""

    models: RegisteredModelQuerySet  # that may be served
    opened: Opened | None = None
    before: EndpointFields | None = None

    @property
    def name(self) -> str:
        return self.opened.endpoint.name if self.opened else ""


def _editing(request: HttpRequest, name: str) -> Editing:
    opened = open_endpoint(request, name, action=Action.UPDATE_CONFIG)
    return Editing(
        models=services.servable_models(user_of(request), opened.endpoint),
        opened=opened,
        before=EndpointFields.of(opened.endpoint, _newest_config(opened.endpoint)),
    )


def _creating(request: HttpRequest) -> Editing:
    return Editing(models=services.servable_models(user_of(request)))


def _newest_config(endpoint: Endpoint) -> EndpointConfig | None:
    """What an edit starts from: the config that rolls out or failed to, else the active one."""
    return endpoint.pending_config or endpoint.active_config


# ---------------------------------------------------------------- whole pages


@page
def create(request: HttpRequest) -> HttpResponse:
    """The create form; POST creates."""
    if request.method != "POST":
        fields = EndpointFields.empty(
            model=request.GET.get("model", ""), version=request.GET.get("version", "")
        )
        return _page(request, fields, Errors(), _creating(request))
    return _sent(request, _creating(request))


@page
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """The same form, filled; POST saves and deploys."""
    editing = _editing(request, name)
    if request.method != "POST" and editing.before:
        return _page(request, editing.before, Errors(), editing)
    return _sent(request, editing)


def _sent(request: HttpRequest, editing: Editing) -> HttpResponse:
    """A whole form that was sent: by a button that changes its rows, or to be saved."""
    fields = _read(request, editing)
    action = request.POST.get("action", "save")
    if action != "save":
        return _page(request, fields.changed_by(action), Errors(), editing)
    if endpoint_name := _already_sent(request.session, fields.key):
        return redirect("endpoint", endpoint_name)
    errors = _save(request, fields, editing)
    if errors and (endpoint_name := _already_sent(request.session, fields.key)):
        return redirect("endpoint", endpoint_name)  # the other of two clicks was first
    if errors:
        return _page(request, fields, errors, editing, status=400)
    return redirect("endpoint", fields.name)


def _save(request: HttpRequest, fields: EndpointFields, editing: Editing) -> Errors:
    """Create or update; what was refused, and where."""
    user = user_of(request)
    wanted, errors = parse(fields)
    complain_about_hidden_switch(fields, editing.models, errors)
    if errors:  # nothing is saved, but all that is wrong is said at once
        errors.add_all(_refusals(user, fields, wanted, editing))
        return errors
    try:
        if editing.opened is None or editing.before is None:
            services.create_endpoint(user, wanted)
            messages.success(request, f"{fields.name} is created; its first deployment starts.")
        else:
            done = _update(user, editing.opened.endpoint, editing.before, fields, wanted)
            messages.success(request, f"{fields.name} is saved; {done}.")
    except PermissionDenied:
        raise
    except ApiError as exc:
        return place(exc, fields)
    _remember_sent(request.session, fields)
    return errors


def _refusals(
    user: User, fields: EndpointFields, wanted: EndpointInput, editing: Editing
) -> Errors:
    """What `services` would refuse."""
    try:
        if editing.opened is None:
            services.plan_endpoint(user, wanted, editing.models)
        else:
            endpoint = editing.opened.endpoint
            previous = _newest_config(endpoint)
            services.plan_config(user, endpoint, wanted.entities, previous, editing.models)
    except ApiError as exc:
        return place(exc, fields)
    return Errors()


def _update(
    user: User,
    endpoint: Endpoint,
    before: EndpointFields,
    fields: EndpointFields,
    wanted: EndpointInput,
) -> str:
    """Save what differs; description and tags take effect at once and need no deployment."""
    with transaction.atomic():
        if needs_deployment(changes(before, fields)):
            services.update_config(user, endpoint, wanted.entities)
        if wanted.description != before.description:
            services.set_description(user, endpoint, wanted.description)
        old = {row.name: row.value for row in before.tags}
        if dict(wanted.tags) != old:
            gone = [key for key in old if key not in wanted.tags]
            services.update_tags(user, endpoint, add=wanted.tags, delete=gone)
    return (
        "the deployment starts"
        if needs_deployment(changes(before, fields))
        else "nothing to deploy"
    )


def _already_sent(session: SessionBase, key: str) -> str:
    """The endpoint that this form already made, as the session's store knows it now."""
    if session.session_key is None:
        return ""
    stored = type(session)(session.session_key)
    return str(dict(stored.get(SENT, {})).get(key, ""))


def _remember_sent(session: SessionBase, fields: EndpointFields) -> None:
    """Note it at once, not with the answer: the second click may be on its way."""
    sent = [*dict(session.get(SENT, {})).items(), (fields.key, fields.name)]
    session[SENT] = dict(sent[-KEPT_KEYS:])
    session.save()


# ---------------------------------------------------------------- parts of the page


@page
@require_POST
def create_fields(request: HttpRequest) -> HttpResponse:
    """All fields after a button that adds or removes a row."""
    return _fields_part(request, _creating(request))


@page
@require_POST
def edit_fields(request: HttpRequest, name: str) -> HttpResponse:
    """As `create_fields`."""
    return _fields_part(request, _editing(request, name))


def _fields_part(request: HttpRequest, editing: Editing) -> HttpResponse:
    fields = _read(request, editing).changed_by(request.POST.get("action", ""))
    response = render(
        request, "endpoints/_fields.html", _context(request, fields, Errors(), editing)
    )
    response["HX-Trigger"] = "form-changed"
    return response


@page
@require_POST
def create_entity(request: HttpRequest, index: int) -> HttpResponse:
    """What follows from a served entity's model, version and compute type."""
    return _entity_part(request, index, _creating(request))


@page
@require_POST
def edit_entity(request: HttpRequest, name: str, index: int) -> HttpResponse:
    """As `create_entity`."""
    return _entity_part(request, index, _editing(request, name))


def _entity_part(request: HttpRequest, index: int, editing: Editing) -> HttpResponse:
    fields = _read(request, editing)
    if index >= len(fields.entities):
        raise Http404("There is no such served entity in the form.")
    context = _context(request, fields, Errors(), editing)
    context["choices"] = choices_of(fields.entities[index], editing.models)
    response = render(request, "endpoints/_entity_choice.html", context)
    response["HX-Trigger"] = "form-changed"
    return response


@page
@require_POST
def create_summary(request: HttpRequest) -> HttpResponse:
    """The side of the page."""
    return _summary_part(request, _creating(request))


@page
@require_POST
def edit_summary(request: HttpRequest, name: str) -> HttpResponse:
    """As `create_summary`."""
    return _summary_part(request, _editing(request, name))


def _summary_part(request: HttpRequest, editing: Editing) -> HttpResponse:
    fields = _read(request, editing)
    return render(request, "endpoints/_summary.html", _context(request, fields, Errors(), editing))


@page
@require_GET
def check_name(request: HttpRequest) -> HttpResponse:
    """The message below the name while it is typed."""
    name = request.GET.get("name", "").strip()
    message = problem_with_name(name) if name else ""
    return render(request, "endpoints/_name_check.html", {"name": name, "message": message})


# ---------------------------------------------------------------- reading and showing


def _read(request: HttpRequest, editing: Editing) -> EndpointFields:
    """The form as sent; a version that its newly picked model does not have gives way."""
    fields = EndpointFields.read(request.POST)
    if editing.before:
        fields = _continue(fields, editing.before)
    if request.POST.get("action", "save") == "save" and not request.headers.get("HX-Request"):
        return fields
    entities = tuple(
        replace(e, version=drop_unknown_version(e, editing.models)) for e in fields.entities
    )
    return replace(fields, entities=entities)


def _continue(fields: EndpointFields, before: EndpointFields) -> EndpointFields:
    """With what is not sent: the name, which stays, and what is in force of itself."""
    automatic = {entity.was_named: entity.automatic for entity in before.entities}
    return replace(
        fields,
        name=before.name,
        entities=tuple(
            replace(e, automatic=automatic.get(e.was_named, {})) for e in fields.entities
        ),
    )


def _page(
    request: HttpRequest,
    fields: EndpointFields,
    errors: Errors,
    editing: Editing,
    *,
    status: int = 200,
) -> HttpResponse:
    context = _context(request, fields, errors, editing)
    return render(request, "endpoints/form.html", context, status=status)


def _context(
    request: HttpRequest, fields: EndpointFields, errors: Errors, editing: Editing
) -> dict[str, object]:
    choices = all_choices(fields, editing.models)
    shown = replace(
        fields,
        entities=tuple(
            e if c.offers_throughput else replace(e, throughput_optimized=False)
            for e, c in zip(fields.entities, choices, strict=True)
        ),
    )
    wanted, _ = parse(shown)
    names = labels(fields)
    return {
        "fields": fields,
        "entities": choices,
        "traffic_total": sum(int(e.traffic) for e in fields.entities if e.traffic.isdigit()),
        "errors": errors.by_field,
        "problems": [
            *({"field": "", "message": message} for message in errors.general),
            *(
                {"field": key, "label": names.get(key, key), "message": message}
                for key, message in errors.by_field.items()
            ),
        ],
        "summary": summarize(
            shown, wanted, choices, base_url=base_url(request), before=editing.before
        ),
        "opened": editing.opened,
        "endpoint": editing.opened.endpoint if editing.opened else None,
        "deployment": (
            reading.current_deployment(editing.opened.endpoint)
            if editing.opened and editing.opened.is_updating
            else None
        ),
        "urls": _urls(editing.name),
    }


def _urls(name: str) -> dict[str, str]:
    """Where the form and its parts are; the entity's part ends in its index."""
    root = f"/endpoints/{name}/edit/" if name else "/endpoints/new/"
    return {
        "page": root,
        "fields": f"{root}fields/",
        "entity": f"{root}entity/",
        "summary": f"{root}summary/",
    }
