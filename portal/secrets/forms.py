"""Forms of the pages of secrets."""

from __future__ import annotations

from typing import Any

from django import forms

from portal.secrets.states import ScopePermission


class WriteOnly(forms.Textarea):
    """A value that is sent but never shown, not even back to who sent it."""

    def format_value(self, value: Any) -> str | None:
        """Nothing."""
        return None


class ScopeForm(forms.Form):
    scope = forms.CharField(
        label="Name",
        max_length=128,
        help_text="Letters, digits and - _ . @; it cannot be changed later.",
        widget=forms.TextInput(
            attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}
        ),
    )


class SecretForm(forms.Form):
    key = forms.CharField(
        label="Key",
        max_length=128,
        help_text="Letters, digits and - _ . @; a key that exists gets the new value.",
        widget=forms.TextInput(
            attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}
        ),
    )
    value = forms.CharField(
        label="Value",
        strip=False,
        help_text="At most 128 KB; it is encrypted and never shown again.",
        widget=WriteOnly(
            attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false", "rows": 3}
        ),
    )

    @property
    def value_bytes(self) -> bytes:
        """The value; browsers send line breaks as CR LF, whatever was typed."""
        return str(self.cleaned_data["value"]).replace("\r\n", "\n").encode()


class AclForm(forms.Form):
    principal = forms.CharField(
        label="User or group",
        max_length=150,
        help_text="“users” is everybody.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    permission = forms.ChoiceField(label="Permission", choices=ScopePermission.choices)
