from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from portal.accounts import group_pages, pages
from portal.accounts.api import scim
from portal.accounts.api import views as api

urlpatterns: list[URLPattern | URLResolver] = [
    path("login/", pages.LoginPage.as_view(), name="login"),
    path("logout/", pages.LogoutPage.as_view(), name="logout"),
    path("settings/password/", pages.PasswordPage.as_view(), name="password"),
    path("settings/tokens/", pages.tokens, name="tokens"),
    path("settings/tokens/<str:public_id>/revoke/", pages.revoke_token, name="token-revoke"),
    path("settings/users/", pages.users, name="users"),
    path("settings/users/new/", pages.create_user, name="user-create"),
    path("settings/users/<int:user_id>/", pages.user, name="user"),
    path("settings/users/<int:user_id>/admin/", pages.set_admin, name="user-admin"),
    path("settings/users/<int:user_id>/activate/", pages.activate_user, name="user-activate"),
    path("settings/users/<int:user_id>/deactivate/", pages.deactivate_user, name="user-deactivate"),
    path("settings/users/<int:user_id>/password/", pages.reset_password, name="user-password"),
    path("settings/groups/", group_pages.group_list, name="groups"),
    path("settings/groups/<int:group_id>/", group_pages.group, name="group"),
    path("settings/groups/<int:group_id>/members/", group_pages.change_member, name="group-member"),
    path("settings/groups/<int:group_id>/delete/", group_pages.delete_group, name="group-delete"),
    path("api/2.0/token/create", api.TokenCreate.as_view()),
    path("api/2.0/token/list", api.TokenList.as_view()),
    path("api/2.0/token/delete", api.TokenDelete.as_view()),
    path("api/2.0/preview/scim/v2/Me", scim.Me.as_view()),
    path("api/2.0/preview/scim/v2/Users", scim.Users.as_view()),
    path("api/2.0/preview/scim/v2/Users/<str:user_id>", scim.UserView.as_view()),
    path("api/2.0/preview/scim/v2/Groups", scim.Groups.as_view()),
    path("api/2.0/preview/scim/v2/Groups/<str:group_id>", scim.GroupView.as_view()),
]
