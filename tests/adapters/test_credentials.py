"""What counts as a credential by its name, in the states of all frameworks."""

from __future__ import annotations

import pytest

from holdfast.adapters.base.credentials import is_credential, strip_credentials, strip_state
from holdfast.errors import HoldfastWarning

SECRETS = (
    *("api_key", "apiKey", "openai_api_key", "OPENAI_API_KEY", "x-api-key", "apikey", "token", "user:token"),
    *("github_token", "accessToken", "accesstoken", "refresh_token", "secret", "client_secret", "clientSecret"),
    *("password", "db_password", "passwd", "Authorization", "private_key", "aws_secret_access_key"),
)
OTHERS = (
    *("total_tokens", "max_tokens", "token_count", "next_page_token", "page_token", "eos_token", "max_token"),
    *("key", "monkey", "keyboard", "secretary", "passwords_reset_at", "author", "is_authorized", 7, None),
)


@pytest.mark.parametrize("name", SECRETS)
def test_a_name_of_a_credential_is_known(name):
    assert is_credential(name)


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_not_taken_for_credentials(name):
    assert not is_credential(name)


def test_credentials_are_left_out_at_any_depth_and_nothing_is_changed():
    given = {"crm": {"url": "u", "api_key": "hush"}, "listed": [{"token": "hush"}, 1], "token": None, "messages": ["m"]}
    assert strip_credentials(given) == {"crm": {"url": "u"}, "listed": [{}, 1], "token": None, "messages": ["m"]}
    assert given["crm"]["api_key"] == "hush"


def test_a_program_is_warned_of_what_its_next_turn_lacks():
    with pytest.warns(HoldfastWarning, match=r"state of the session has .*\(api_key, token\), which are not stored"):
        stripped = strip_state(
            {"a": [{"token": "x"}], "api_key": "y", "kept": {"secret": 1}}, "state of the session", kept=("kept",)
        )
    assert stripped == {"a": [{}], "kept": {"secret": 1}}
