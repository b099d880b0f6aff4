"""What a controller says no to; each error has RocketMQ's code."""

from __future__ import annotations

from firearrow.model.errors import BrokerError, ResponseCode


class FencedMasterEpoch(BrokerError):
    """The asker was master in an epoch that is over."""

    code = ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    remedy = "Nothing: the broker asks who is master and follows."


class FencedSyncStateSetEpoch(BrokerError):
    """The in-sync set is no longer the one that the asker knows."""

    code = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    remedy = "Nothing: the master asks again and proposes anew."


class InvalidMaster(BrokerError):
    """Only the master may say who is in sync, and this is not the master."""

    code = ResponseCode.CONTROLLER_INVALID_MASTER
    remedy = "Nothing: the broker asks who is master and follows."


class InvalidReplicas(BrokerError):
    """A replica of that id does not exist."""

    code = ResponseCode.CONTROLLER_INVALID_REPLICAS
    remedy = "Look which replicas there are: `mqadmin getSyncStateSet`."


class MasterNotAvailable(BrokerError):
    """There is no master, and nobody is fit to be one."""

    code = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    remedy = "Start a replica that was in sync."
    retriable = True


class InvalidControllerRequest(BrokerError):
    """The request makes no sense to a controller."""

    code = ResponseCode.CONTROLLER_INVALID_REQUEST
    remedy = "Correct the request as the text says."


class BrokerNotAlive(BrokerError):
    """A replica that sends no heartbeats cannot be in sync."""

    code = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    remedy = "Start the replica, and let it reach the controller."


class NotLeader(BrokerError):
    """Another controller leads, or none does at the moment."""

    code = ResponseCode.CONTROLLER_NOT_LEADER
    remedy = "Ask the controller that leads."
    retriable = True


class UnknownBrokerSet(BrokerError):
    """The controller has never heard of a broker of that name."""

    code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    remedy = "Check the name of the broker, and that it runs with this controllerAddr."


class InvalidClean(BrokerError):
    """What is in use cannot be forgotten."""

    code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    remedy = "Stop the replica first, or name another one."


class NotRegistered(BrokerError):
    """The broker has no id here; it must apply for one first."""

    code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    remedy = "Start the broker with an empty directory, or restore the data of the controller."


class MasterStillExists(BrokerError):
    """There is a living master, and nobody asked for another one by name."""

    code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    remedy = "Name the replica that is to be master."


class ElectionFailed(BrokerError):
    """The replica that is to be master is not fit for it."""

    code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    remedy = "Wait until the replica is in sync, or choose another one."


class AlterFailed(BrokerError):
    """The in-sync set that was proposed cannot be."""

    code = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    remedy = "Nothing: the master proposes anew."


class InvalidBrokerId(BrokerError):
    """The id belongs to another broker."""

    code = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    remedy = "Nothing: the broker asks for another id."
