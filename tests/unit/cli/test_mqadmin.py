from __future__ import annotations

import pytest
from typer.testing import CliRunner

from firearrow.base.errors import ConfigError
from firearrow.cli.mqadmin.flags import COMMON, flag, parse
from firearrow.cli.mqadmin.groups import value_text
from firearrow.cli.mqadmin.table import COMMANDS, NOT_APPLICABLE
from firearrow.cli.root import app
from firearrow.model.group import CustomizedRetryPolicy, GroupRetryPolicy

FLAGS = (flag("t! topic", "The topic."), flag("m| moreStats", "More."), flag("b brokerAddr", "."))

# Every name that mqadmin 5.3 lists.
DAILY = """clusterList topicList topicStatus topicRoute updateTopic deleteTopic updateTopicPerm
consumerProgress consumerStatus consumerConnection producerConnection producer updateSubGroup
deleteSubGroup resetOffsetByTime skipAccumulatedMessage queryMsgById queryMsgByKey
queryMsgByUniqueKey queryMsgByOffset queryMsgTraceById sendMessage consumeMessage brokerStatus
getBrokerConfig updateBrokerConfig"""
OFTEN = """topicClusterList updateTopicList updateSubGroupList updateOrderConf allocateMQ statsAll
brokerConsumeStats clusterRT sendMsgStatus checkMsgSendRT printMsg printMsgByQueue cloneGroupOffset
setConsumeMode startMonitoring getConsumerConfig wipeWritePerm addWritePerm getNamesrvConfig
updateNamesrvConfig updateKvConfig deleteKvConfig exportConfigs exportMetadata exportMetrics"""
REST = """createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl deleteAcl
getAcl listAcl copyAcl haStatus getSyncStateSet getBrokerEpoch electMaster getControllerMetaData
getControllerConfig updateControllerConfig cleanBrokerMetadata resetMasterFlushOffset cleanExpiredCQ
cleanUnusedTopic deleteExpiredCommitLog queryCq updateStaticTopic remappingStaticTopic addBroker
removeBroker getColdDataFlowCtrInfo updateColdDataFlowCtrGroupConfig
removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode dumpCompactionLog rocksDBConfigToJson
exportMetadataInRocksDB exportPopRecord checkRocksdbCqWriteProgress"""


def run(*words: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["mqadmin", *words])
    assert ran.exit_code == code, ran.output
    return ran.output


def test_every_name_of_mqadmin_is_done_or_explained() -> None:
    names = set((DAILY + " " + OFTEN + " " + REST).split())
    assert len(names) == 89
    assert names == COMMANDS.keys() | NOT_APPLICABLE.keys()
    assert set((DAILY + " " + OFTEN).split()) <= COMMANDS.keys()
    assert not COMMANDS.keys() & NOT_APPLICABLE.keys()


@pytest.mark.parametrize(
    "words",
    [
        ["-t", "orders", "-m", "-b", "a:1"],
        ["--topic", "orders", "--moreStats", "--brokerAddr=a:1"],
        ["-topic", "orders", "-m", "-b=a:1"],
    ],
)
def test_flags_are_taken_in_every_spelling(words: list[str]) -> None:
    given = parse("x", FLAGS, words)
    assert (given.text("t"), given.has("m"), given.text("b")) == ("orders", True, "a:1")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-t"], "needs a value"),
        (["-b", "a:1"], "needs -t"),
        (["-t", "x", "-z"], "'-z' is no option"),
        (["-t", "x", "y"], "'y' is no option"),
    ],
)
def test_flags_that_cannot_be_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse("x", FLAGS, words)


def test_a_flag_may_have_a_long_name_only() -> None:
    flags = (flag("c cluster", "."), flag("| cplus", "."))
    given = parse("reset", flags, ["--cplus", "-c", "one"])
    assert given.text("c") == "one"
    with pytest.raises(ConfigError, match="no option"):
        parse("reset", flags, ["-"])


def test_a_retry_policy_is_printed_as_java_prints_it() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=(1_000, 5_000)))
    assert value_text(policy) == (
        "GroupRetryPolicy{type=CUSTOMIZED, exponentialRetryPolicy=null, "
        "customizedRetryPolicy=CustomizedRetryPolicy{next=[1000, 5000]}}"
    )


def test_number_must_be_one() -> None:
    given = parse("x", FLAGS, ["-t", "many"])
    with pytest.raises(ConfigError, match="a number expected"):
        given.number("t")


def test_flags_of_a_command_differ_from_each_other() -> None:
    for command in COMMANDS.values():
        shorts = [one.short for one in (*command.flags, *COMMON)]
        assert len(shorts) == len(set(shorts)), command.name


def test_help_shows_the_flags_of_a_command() -> None:
    printed = run("updateTopic", "-h")
    assert "-t,--topic <arg>" in printed
    assert "(needed)" in printed
    assert run("help", "updateTopic") == printed
    assert "clusterList" in run()


def test_what_is_not_applicable_says_why() -> None:
    assert "because POP is not built" in run("exportPopRecord", code=2)


def test_unknown_name_is_answered_with_the_nearest() -> None:
    assert "did you mean topicList" in run("topiclist", code=2)
