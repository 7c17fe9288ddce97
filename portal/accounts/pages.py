"""Login and logout, the user's tokens and password, and the admins' page of users."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse, reverse_lazy
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts import services
from portal.accounts.access import admin_required, current_user
from portal.accounts.forms import LoginForm, TokenForm, UserForm
from portal.accounts.models import ADMINS, User
from portal.rest import ApiError, ResourceDoesNotExist
from portal.ui.pages import confirm_page, not_found
from portal.workspace import public_url


class LoginPage(auth.LoginView):
    form_class = LoginForm
    template_name = "accounts/login.html"
    redirect_authenticated_user = True

    def form_invalid(self, form: LoginForm) -> HttpResponse:  # type: ignore[override]  # our form
        is_throttled = any(error.code == "throttled" for error in form.non_field_errors().as_data())
        return self.render_to_response(
            self.get_context_data(form=form), status=429 if is_throttled else 200
        )


class LogoutPage(auth.LogoutView):
    http_method_names = ["post"]

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """Log out; the browser forgets the pages that its Back button would show."""
        response = super().post(request, *args, **kwargs)
        response.headers["Clear-Site-Data"] = '"cache"'
        return response


class PasswordPage(auth.PasswordChangeView):
    template_name = "accounts/password.html"
    success_url = reverse_lazy("settings")

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        answer = super().form_valid(form)
        services.note_password_change(current_user(self.request))
        return answer

    def get_success_url(self) -> str:
        messages.success(self.request, "Your password is changed.")
        return super().get_success_url()


# ---------------------------------------------------------------- tokens


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def tokens(request: HttpRequest) -> HttpResponse:
    """List the user's tokens and make new ones.

    The answer to the form shows the value itself instead of redirecting, for it is kept nowhere;
    the form's id keeps a reload from making a second token.
    """
    user = current_user(request)
    form = TokenForm(request.POST or None)
    value = ""
    if request.method == "POST" and form.is_valid():
        try:
            _, value = services.create_token(
                user,
                comment=form.cleaned_data["comment"],
                lifetime_s=form.lifetime_s,
                public_id=form.cleaned_data["form_id"],
            )
        except ApiError as exc:
            messages.warning(request, exc.message)
            return redirect("tokens")
    if value or not form.is_bound:
        form = TokenForm(initial={"form_id": services.new_public_id()})
    context = {
        "form": form,
        "value": value,
        "tokens": services.live_tokens(user),
        "now": timezone.now(),
        "environment": f"export DATABRICKS_HOST={public_url(request)}\n"
        f"export DATABRICKS_TOKEN={value}",
    }
    return render(request, "accounts/tokens.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def revoke_token(request: HttpRequest, public_id: str) -> HttpResponse:
    """Ask, then revoke."""
    try:
        token = services.find_token(current_user(request), public_id)
    except ResourceDoesNotExist:
        if request.method == "POST":  # sent twice
            return redirect("tokens")
        return not_found(request, "There is no such token. It may have been revoked before.")
    if request.method == "POST":
        services.revoke_token(token)
        messages.success(request, "The token is revoked.")
        return redirect("tokens")
    name = f"“{token.comment}”" if token.comment else "without a comment"
    return confirm_page(
        request,
        title="Revoke this token?",
        text=[
            f"The token {name} of {token.user.username} stops working at once, "
            "also for requests to endpoints. This cannot be undone."
        ],
        button="Revoke token",
        cancel_url=reverse("tokens"),
    )


# ---------------------------------------------------------------- users


@require_safe
@admin_required
def users(request: HttpRequest) -> HttpResponse:
    """Everybody with an account."""
    found = (
        User.objects.annotate(
            token_count=Count("tokens", filter=Q(tokens__revoked_at=None), distinct=True),
            admin_count=Count("groups", filter=Q(groups__name=ADMINS), distinct=True),
        )
        .order_by("-is_active", "username")
        .all()
    )
    return render(request, "accounts/users.html", {"users": found, "admins": ADMINS})


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
@never_cache
def create_user(request: HttpRequest) -> HttpResponse:
    """Make an account; its first password is made here and shown once."""
    form = UserForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user, password = services.create_user(
            username=form.cleaned_data["username"],
            email=form.cleaned_data["email"],
            is_admin=form.cleaned_data["is_admin"],
        )
        return render(request, "accounts/user.html", {"account": user, "password": password})
    return render(request, "accounts/user_form.html", {"form": form})


@require_safe
@admin_required
def user(request: HttpRequest, user_id: int) -> HttpResponse:
    """One account and what can be done with it."""
    account = get_object_or_404(User, pk=user_id)
    return render(request, "accounts/user.html", {"account": account})


@require_POST
@admin_required
def set_admin(request: HttpRequest, user_id: int) -> HttpResponse:
    account = get_object_or_404(User, pk=user_id)
    is_admin = request.POST.get("is_admin") == "true"
    try:
        services.set_admin(account, is_admin=is_admin)
    except ApiError as exc:
        messages.error(request, exc.message)
    else:
        role = "a workspace admin" if is_admin else "an ordinary user"
        messages.success(request, f"{account.username} is now {role}.")
    return redirect("user", user_id)


@require_POST
@admin_required
def activate_user(request: HttpRequest, user_id: int) -> HttpResponse:
    account = get_object_or_404(User, pk=user_id)
    services.set_active(account, is_active=True)
    messages.success(request, f"{account.username} may log in again.")
    return redirect("user", user_id)


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def deactivate_user(request: HttpRequest, user_id: int) -> HttpResponse:
    """Ask, then refuse the user and all his tokens."""
    account = get_object_or_404(User, pk=user_id)
    if request.method == "POST":
        try:
            services.set_active(account, is_active=False)
        except ApiError as exc:
            messages.error(request, exc.message)
        else:
            messages.success(request, f"{account.username} is deactivated.")
        return redirect("user", user_id)
    return confirm_page(
        request,
        title=f"Deactivate {account.username}?",
        text=[
            "The user cannot log in any more, and the user's tokens are refused at once.",
            "Endpoints and models stay as they are. You can activate the user again later.",
        ],
        button="Deactivate user",
        cancel_url=reverse("user", args=[user_id]),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
@never_cache
def reset_password(request: HttpRequest, user_id: int) -> HttpResponse:
    """Ask, then give the user a new password, which is shown once."""
    account = get_object_or_404(User, pk=user_id)
    if request.method == "POST":
        password = services.reset_password(account)
        return render(request, "accounts/user.html", {"account": account, "password": password})
    return confirm_page(
        request,
        title=f"Reset the password of {account.username}?",
        text=["The old password stops working and the user is logged out. Tokens stay valid."],
        button="Reset password",
        cancel_url=reverse("user", args=[user_id]),
    )
