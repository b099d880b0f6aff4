"""Users and access rules of ACL 2.0. An update carries only what changes."""

import msgspec


class UserInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    username: str | None = None
    password: str | None = None
    user_type: str | None = None  # Super, Normal
    user_status: str | None = None  # enable, disable


class PolicyEntryInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource: str | None = None  # "Topic:orders*"
    actions: tuple[str, ...] | None = None
    source_ips: tuple[str, ...] | None = None
    decision: str | None = None  # Allow, Deny


class PolicyInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    policy_type: str | None = None  # Custom, Default
    entries: tuple[PolicyEntryInfo, ...] | None = None


class AclInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    subject: str | None = None  # "User:alice"
    policies: tuple[PolicyInfo, ...] | None = None
