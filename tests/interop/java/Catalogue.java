package firearrow.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Every scenario by its name. */
final class Catalogue {
    static final Map<String, Round.Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("route", Catalogue::route);
        SCENARIOS.put("topic-list", Catalogue::topicList);
        SCENARIOS.put("sync-send", Sending::sync);
        SCENARIOS.put("async-send", Sending::async);
        SCENARIOS.put("oneway-send", Sending::oneway);
        SCENARIOS.put("batch-send", Sending::batch);
        SCENARIOS.put("query-by-key", Sending::queryByKey);
        SCENARIOS.put("push-consume", Consuming::push);
        SCENARIOS.put("tag-filter", Consuming::tagFilter);
        SCENARIOS.put("lite-pull", Consuming::litePull);
        SCENARIOS.put("pull", Consuming::pull);
        SCENARIOS.put("orderly", Delivering::orderly);
        SCENARIOS.put("broadcasting", Delivering::broadcasting);
        SCENARIOS.put("delay-level", Delivering::delayed);
        SCENARIOS.put("retry-to-dead-letter", Delivering::retryToDeadLetter);
        SCENARIOS.put("namespace", Delivering::namespace);
        SCENARIOS.put("from-where", Delivering::fromWhere);
        SCENARIOS.put("traced", Delivering::traced);
        SCENARIOS.put("pull-offsets", Positions::pullOffsets);
        SCENARIOS.put("lite-assign", Positions::liteAssign);
        SCENARIOS.put("sql-send", Filtering::send);
        SCENARIOS.put("sql-push", Filtering::push);
        SCENARIOS.put("sql-lite-pull", Filtering::litePull);
        SCENARIOS.put("sql-pull", Filtering::pull);
        SCENARIOS.put("sql-wrong", Filtering::wrong);
        SCENARIOS.put("sql-refused", Filtering::refused);
        SCENARIOS.put("transactions", Transacting::transactions);
        SCENARIOS.put("transactions-begin", Transacting::begin);
        SCENARIOS.put("transactions-end", Transacting::end);
        SCENARIOS.put("request-by-callback", Transacting::requestByCallback);
        SCENARIOS.put("request-and-wait", Transacting::requestAndWait);
        SCENARIOS.put("send-through-kills", Enduring::send);
        SCENARIOS.put("find-acknowledged", Enduring::find);
    }

    private Catalogue() {
    }

    /** The queues a producer may write to, counted per broker. */
    private static Map<String, Object> route(Context context) throws Exception {
        Map<String, Integer> queues = new TreeMap<>();
        for (MessageQueue queue : context.producer().fetchPublishMessageQueues(context.topic)) {
            queues.merge(queue.getBrokerName(), 1, Integer::sum);
        }
        return Map.of("queues", queues);
    }

    private static Map<String, Object> topicList(Context context) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(context.nameserver);
        admin.setInstanceName(context.group + "-admin");
        admin.start();
        try {
            return Map.of("topics", admin.fetchAllTopicList().getTopicList());
        } finally {
            admin.shutdown();
        }
    }
}
