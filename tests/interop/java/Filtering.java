package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios of SQL92 filters. They send to a topic of their own, whose messages have properties. */
final class Filtering {
    private static final String WANTED = "n BETWEEN 3 AND 11 AND region IN ('EU', 'US') AND note IS NULL";
    private static final String[] REGIONS = {"EU", "US", "CN"};

    private Filtering() {
    }

    private static String topic(Context context) {
        return context.topic + "-sql";
    }

    static Map<String, Object> send(Context context) throws Exception {
        for (int i = 0; i < context.count; i++) {
            Message message = new Message(topic(context), Integer.toString(i).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("n", Integer.toString(i));
            message.putUserProperty("region", REGIONS[i % 3]);
            if (i % 5 == 0) {
                message.putUserProperty("note", "五");
            }
            context.acknowledged(context.producer().send(message));
        }
        return Map.of("sent", context.count);
    }

    private static Set<String> expected(Context context) {
        Set<String> bodies = new TreeSet<>();
        for (int i = 3; i <= 11 && i < context.count; i++) {
            if (i % 3 != 2 && i % 5 != 0) {
                bodies.add(Integer.toString(i));
            }
        }
        return bodies;
    }

    static Map<String, Object> push(Context context) throws Exception {
        Set<String> received = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer consumer = pushConsumer(context, "sql-push", WANTED, received);
        consumer.start();
        try {
            // One more that fits, while pulls are held: it wakes them.
            context.await("the stored messages", () -> received.containsAll(expected(context)));
            Message late = new Message(topic(context), "late".getBytes(StandardCharsets.UTF_8));
            late.putUserProperty("n", "7");
            late.putUserProperty("region", "US");
            context.acknowledged(context.producer().send(late));
            context.await("the late message", () -> received.contains("late"));
        } finally {
            consumer.shutdown();
        }
        received.remove("late");
        return against(expected(context), received);
    }

    static Map<String, Object> litePull(Context context) throws Exception {
        Set<String> received = new TreeSet<>();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(context.group + "-sql-lite");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic(context), MessageSelector.bySql(WANTED));
        consumer.start();
        try {
            context.await("the messages", () -> {
                add(received, consumer.poll(200));
                return received.containsAll(expected(context));
            });
        } finally {
            consumer.shutdown();
        }
        received.remove("late");
        return against(expected(context), received);
    }

    /** The old pull consumer carries the expression in every pull. */
    @SuppressWarnings("deprecation")
    static Map<String, Object> pull(Context context) throws Exception {
        Set<String> received = new TreeSet<>();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(context.group + "-sql-pull");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setHeartbeatBrokerInterval(200);
        consumer.start();
        try {
            MessageQueue any = consumer.fetchSubscribeMessageQueues(topic(context)).iterator().next();
            // 4.9 asks for filters only when a heartbeat has told it how old the broker is.
            context.await("the broker's version", () -> {
                try {
                    consumer.pull(any, MessageSelector.bySql(WANTED), consumer.minOffset(any), 1);
                    return true;
                } catch (MQClientException e) {
                    return false;
                }
            });
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic(context))) {
                long next = consumer.minOffset(queue);
                while (next < consumer.maxOffset(queue)) {
                    PullResult result = consumer.pull(queue, MessageSelector.bySql(WANTED), next, 4);
                    next = result.getNextBeginOffset();
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        add(received, result.getMsgFoundList());
                    }
                }
            }
        } finally {
            consumer.shutdown();
        }
        received.remove("late");
        return against(expected(context), received);
    }

    /** A wrong expression: the consumer does not start, and says what the broker says. */
    static Map<String, Object> wrong(Context context) throws Exception {
        return Map.of("refusal", refusal(context, "sql-wrong", "n >>= ("));
    }

    /** A right one, for a broker that does not filter by SQL92. */
    static Map<String, Object> refused(Context context) throws Exception {
        return Map.of("refusal", refusal(context, "sql-refused", WANTED));
    }

    private static String refusal(Context context, String name, String expression) throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer(context, name, expression, new TreeSet<>());
        try {
            consumer.start();
        } catch (MQClientException e) {
            return e.getResponseCode() + " " + e.getErrorMessage();
        } finally {
            consumer.shutdown();
        }
        throw new IllegalStateException("the consumer started with " + expression);
    }

    private static DefaultMQPushConsumer pushConsumer(
        Context context, String name, String expression, Set<String> received) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(context.group + "-" + name);
        consumer.setInstanceName(name);
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(5000);
        consumer.subscribe(topic(context), MessageSelector.bySql(expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
            add(received, messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static void add(Set<String> received, List<MessageExt> messages) {
        for (MessageExt message : messages) {
            received.add(new String(message.getBody(), StandardCharsets.UTF_8));
        }
    }

    private static Map<String, Object> against(Set<String> expected, Set<String> received) {
        Set<String> missing = new TreeSet<>(expected);
        missing.removeAll(received);
        Set<String> unexpected = new TreeSet<>(received);
        unexpected.removeAll(expected);
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("expected", expected.size());
        facts.put("received", received.size());
        facts.put("missing", missing);
        facts.put("unexpected", unexpected);
        return facts;
    }
}
