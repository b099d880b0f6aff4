"""Users and access rules of ACL 2.0. A missing name is the handler's to refuse, with code 29."""

from firearrow.wire.header import Header


class CreateUserRequest(Header, frozen=True, kw_only=True):
    username: str | None = None


class UpdateUserRequest(Header, frozen=True, kw_only=True):
    username: str | None = None


class DeleteUserRequest(Header, frozen=True, kw_only=True):
    username: str | None = None


class GetUserRequest(Header, frozen=True, kw_only=True):
    username: str | None = None


class ListUserRequest(Header, frozen=True, kw_only=True):
    filter: str | None = None


class CreateAclRequest(Header, frozen=True, kw_only=True):
    subject: str | None = None


class UpdateAclRequest(Header, frozen=True, kw_only=True):
    subject: str | None = None


class DeleteAclRequest(Header, frozen=True, kw_only=True):
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequest(Header, frozen=True, kw_only=True):
    subject: str | None = None


class ListAclRequest(Header, frozen=True, kw_only=True):
    subject_filter: str | None = None
    resource_filter: str | None = None
