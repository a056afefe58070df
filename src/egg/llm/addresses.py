"""Addresses of endpoints: how to show one, and whether it is a machine of one's own."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit


def display_url(address: str) -> str:
    """An address as people and logs may see it: without userinfo, query or fragment."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_local(address: str) -> bool:
    """Is this a machine of one's own: loopback, a private address, a name without a domain?"""
    host = (urlsplit(address).hostname or "").rstrip(".")
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal", ".lan"))
    return number.is_private or number.is_loopback or number.is_link_local or number.is_unspecified
