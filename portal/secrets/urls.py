from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.secrets import pages
from portal.secrets.api import views as api

PAGES = "settings/secrets/"
API = "api/2.0/secrets/"

urlpatterns: list[URLPattern | URLResolver] = [
    path(PAGES, pages.scopes, name="secrets"),
    path(f"{PAGES}<str:scope>/", pages.scope, name="secret-scope"),
    path(f"{PAGES}<str:scope>/delete/", pages.delete_scope, name="secret-scope-delete"),
    path(f"{PAGES}<str:scope>/permissions/", pages.put_acl, name="secret-acl"),
    path(f"{PAGES}<str:scope>/permissions/delete/", pages.delete_acl, name="secret-acl-delete"),
    path(f"{PAGES}<str:scope>/keys/<str:key>/delete/", pages.delete_key, name="secret-delete"),
    path(f"{API}scopes/create", api.CreateScope.as_view()),
    path(f"{API}scopes/delete", api.DeleteScope.as_view()),
    path(f"{API}scopes/list", api.ListScopes.as_view()),
    path(f"{API}put", api.PutSecret.as_view()),
    path(f"{API}delete", api.DeleteSecret.as_view()),
    path(f"{API}list", api.ListSecrets.as_view()),
    path(f"{API}get", api.GetSecret.as_view()),
    path(f"{API}acls/put", api.PutAcl.as_view()),
    path(f"{API}acls/delete", api.DeleteAcl.as_view()),
    path(f"{API}acls/get", api.GetAcl.as_view()),
    path(f"{API}acls/list", api.ListAcls.as_view()),
]
