"""All clients share one TLS context, which trusts nobody without a certificate."""

from __future__ import annotations

import ssl

from leporello.llm.tls import shared_context


def test_it_is_made_once() -> None:
    assert shared_context() is shared_context()


def test_it_checks_who_answers() -> None:
    context = shared_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
