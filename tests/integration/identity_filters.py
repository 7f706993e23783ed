"""Edits of the shipped configuration that make Envoy know who asks: the very blocks that docs/identity.md shows."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from tests.integration.credentials import Authority, Issuer
from tidegate.sim.envoy_config import FILTER_NAME, GATEWAY_LISTENER, Config, connection_manager, listener

JWT = "envoy.filters.http.jwt_authn"
API_KEY = "envoy.filters.http.api_key_auth"
RBAC = "envoy.filters.http.rbac"

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "identity.md"
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: list[Any] = [yaml.safe_load(text) for text in _BLOCK.findall(_PAGE.read_text())]


def shown(field: str) -> Iterator[Config]:
    """Every mapping on the page, alone or in a list, that has this field."""
    for block in BLOCKS:
        for each in block if isinstance(block, list) else [block]:
            if field in each:
                yield deepcopy(each)


def policy(fragment: str) -> dict[str, str | None]:
    """The key on the page whose value contains this."""
    [found] = [each for each in shown("key") if fragment in each["value"]]
    return {found["key"]: found["value"]}


CLAIM = policy(JWT)
PEER = policy("PEER")
HEADER = policy("header:")


def shown_filter(name: str) -> Config:
    """The filter of that name on the page."""
    [found] = [each for each in shown("name") if each["name"] == name]
    return found


def add_filter(config: Config, added: Config, *, late: bool = False) -> None:
    """Put a filter right before tidegate's; right after it where it comes `late`."""
    filters = connection_manager(config)["http_filters"]
    place = next(at for at, each in enumerate(filters) if each["name"] == FILTER_NAME)
    filters.insert(place + int(late), added)


def take_from_clients(config: Config) -> None:
    """Remove the tenant's header from what clients send, before a route is chosen or a filter runs."""
    extension = connection_manager(config)["early_header_mutation_extensions"][0]
    extension["typed_config"]["mutations"] += shown("remove")


def add_jwt(
    config: Config, issuer: Issuer, *, required: bool = True, to_header: bool = False, late: bool = False
) -> None:
    """Tokens of `issuer`: a bad one is refused, and a missing one where `required`."""
    added = shown_filter(JWT)
    typed = added["typed_config"]
    provider = typed["providers"]["users"]
    provider |= {"issuer": issuer.name, "local_jwks": {"inline_string": issuer.jwks}}
    if to_header:
        provider |= next(shown("claim_to_headers"))
    if not required:
        either = [{"provider_name": "users"}, {"allow_missing": {}}]
        typed["rules"][0]["requires"] = {"requires_any": {"requirements": either}}
    add_filter(config, added, late=late)


def add_claim_guard(config: Config, claim: str) -> None:
    """Whoever's verified claim is no name gets a 403."""
    added = shown_filter(RBAC)
    [principal] = added["typed_config"]["rules"]["policies"]["named"]["principals"]
    principal["sourced_metadata"]["metadata_matcher"]["path"][1]["key"] = claim
    add_filter(config, added)


def add_api_keys(config: Config) -> None:
    """The page's two keys in `x-api-key`; the client that a key belongs to is written into `x-tenant`."""
    add_filter(config, shown_filter(API_KEY))


def add_mutual_tls(config: Config, authority: Authority, *, required: bool = True) -> None:
    """The gateway's listener on TLS; certificates of clients are checked, and demanded where `required`."""
    certificate, key = authority.issue("gateway", [])
    socket = next(shown("transport_socket"))["transport_socket"]
    context = socket["typed_config"]
    context["require_client_certificate"] = required
    common = context["common_tls_context"]
    common["tls_certificates"] = [_certificate(certificate, key)]
    common["validation_context"]["trusted_ca"]["filename"] = str(authority.path)
    listener(config, GATEWAY_LISTENER)["filter_chains"][0]["transport_socket"] = socket


def _certificate(certificate: Path, key: Path) -> Mapping[str, Any]:
    return {"certificate_chain": {"filename": str(certificate)}, "private_key": {"filename": str(key)}}
