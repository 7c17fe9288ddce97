"""Forms of the login, token and user pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.utils import timezone

from portal.accounts import throttling
from portal.accounts.models import User
from portal.accounts.services import MAX_COMMENT, note_failed_login, note_login

if TYPE_CHECKING:
    UserModelForm = forms.ModelForm[User]
else:
    UserModelForm = forms.ModelForm

DAY_S = 24 * 3600


class LoginForm(AuthenticationForm):
    """Django's form; too many failed attempts make the next one wait."""

    def clean(self) -> dict[str, Any]:
        """Check the wait before the password."""
        username = self.cleaned_data.get("username", "")
        address = "" if self.request is None else str(self.request.META.get("REMOTE_ADDR", ""))
        wait_s = throttling.seconds_to_wait(username, address, timezone.now())
        if wait_s:
            raise ValidationError(
                f"Too many failed logins. Wait {_in_words(wait_s)}, then try again.",
                code="throttled",
            )
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            throttling.note_failure(username, address, timezone.now())
            note_failed_login(username)
            raise
        throttling.forget_failures(username, address)
        if isinstance(user := self.get_user(), User):
            note_login(user)
        return cleaned


class TokenForm(forms.Form):
    LIFETIMES: ClassVar[list[tuple[str, str]]] = [
        (str(DAY_S), "1 day"),
        (str(30 * DAY_S), "30 days"),
        (str(90 * DAY_S), "90 days"),
        (str(365 * DAY_S), "1 year"),
        ("0", "No expiry"),
    ]

    comment = forms.CharField(
        label="What is it for?",
        max_length=MAX_COMMENT,
        required=False,
        help_text="A name to know it by later, such as the notebook or the service that uses it.",
    )
    lifetime = forms.ChoiceField(label="Lifetime", choices=LIFETIMES, initial=str(90 * DAY_S))
    form_id = forms.RegexField(regex=r"^[0-9a-f]{32}$", widget=forms.HiddenInput)

    @property
    def lifetime_s(self) -> int | None:
        """The chosen lifetime."""
        return int(self.cleaned_data["lifetime"]) or None


class UserForm(UserModelForm):
    is_admin = forms.BooleanField(
        label="Workspace admin",
        required=False,
        help_text="May turn previews on and off, and manage users and every endpoint and model.",
    )

    class Meta:
        model = User
        fields = ["username", "email"]
        labels = {"username": "User name", "email": "Email"}
        help_texts = {"username": "Letters, digits and @ . + - _"}


def _in_words(seconds: int) -> str:
    if seconds < 90:
        return f"{seconds} seconds"
    return f"{-(-seconds // 60)} minutes"
