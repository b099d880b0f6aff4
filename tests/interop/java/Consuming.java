package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios that receive: each takes a group of its own and expects all that was sent before. */
final class Consuming {
    private Consuming() {
    }

    /** What arrived, compared with what was sent. */
    private static final class Received {
        private final Map<String, Integer> times = new TreeMap<>();
        private final Set<String> wrong = new TreeSet<>();

        synchronized void add(Context context, List<MessageExt> messages) {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                times.merge(body, 1, Integer::sum);
                String tag = context.sent.get(body);
                String key = "key-" + body;
                if (tag == null || !tag.equals(message.getTags()) || !key.equals(message.getKeys())) {
                    wrong.add(body);
                }
            }
        }

        synchronized boolean covers(Set<String> bodies) {
            return times.keySet().containsAll(bodies);
        }

        /** Facts: how many were expected, which are missing, came twice, or were not expected. */
        synchronized Map<String, Object> against(Set<String> expected) {
            Set<String> missing = new TreeSet<>(expected);
            missing.removeAll(times.keySet());
            Set<String> unexpected = new TreeSet<>(times.keySet());
            unexpected.removeAll(expected);
            unexpected.addAll(wrong);
            Set<String> repeated = new TreeSet<>();
            times.forEach((body, count) -> {
                if (count > 1) {
                    repeated.add(body);
                }
            });
            Map<String, Object> facts = new LinkedHashMap<>();
            facts.put("expected", expected.size());
            facts.put("received", times.size());
            facts.put("missing", missing);
            facts.put("unexpected", unexpected);
            facts.put("repeated", repeated);
            return facts;
        }
    }

    static Map<String, Object> push(Context context) throws Exception {
        return pushed(context, "push", "*", Set.copyOf(context.sent.keySet()));
    }

    static Map<String, Object> tagFilter(Context context) throws Exception {
        Set<String> expected = new TreeSet<>();
        context.sent.forEach((body, tag) -> {
            if (tag.equals("TagA")) {
                expected.add(body);
            }
        });
        return pushed(context, "tags", "TagA", expected);
    }

    private static Map<String, Object> pushed(
        Context context, String name, String expression, Set<String> expected) throws Exception {
        context.awaitRoute();
        Received received = new Received();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(context.group + "-" + name);
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // We stop as soon as the listener has seen the last message. Without this the client would commit
        // offsets before that listener returns, and leave its messages uncommitted.
        consumer.setAwaitTerminationMillisWhenShutdown(5000);
        consumer.subscribe(context.topic, expression);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
            received.add(context, messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            awaitAll(context, received, expected, () -> { });
        } finally {
            consumer.shutdown();
        }
        return received.against(expected);
    }

    static Map<String, Object> litePull(Context context) throws Exception {
        context.awaitRoute();
        Set<String> expected = Set.copyOf(context.sent.keySet());
        Received received = new Received();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(context.group + "-lite");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(context.topic, "*");
        consumer.start();
        try {
            awaitAll(context, received, expected, () -> received.add(context, consumer.poll(200)));
        } finally {
            consumer.shutdown();
        }
        return received.against(expected);
    }

    /** Reads every queue from its start with the old pull consumer, which allocates no queues. */
    @SuppressWarnings("deprecation")
    static Map<String, Object> pull(Context context) throws Exception {
        context.awaitRoute();
        Set<String> expected = Set.copyOf(context.sent.keySet());
        Received received = new Received();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(context.group + "-pull");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.start();
        try {
            Map<MessageQueue, Long> next = new LinkedHashMap<>();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(context.topic)) {
                next.put(queue, consumer.minOffset(queue));
            }
            awaitAll(context, received, expected, () -> {
                for (Map.Entry<MessageQueue, Long> entry : next.entrySet()) {
                    PullResult result = consumer.pull(entry.getKey(), "*", entry.getValue(), 32);
                    entry.setValue(result.getNextBeginOffset());
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        received.add(context, result.getMsgFoundList());
                    }
                }
            });
        } finally {
            consumer.shutdown();
        }
        return received.against(expected);
    }

    /** One step of fetching; nothing for a consumer that is called back. */
    private interface Step {
        void take() throws Exception;
    }

    /** Fetches until all has come or the time is over; the facts then say what is missing. */
    private static void awaitAll(Context context, Received received, Set<String> expected, Step step)
        throws Exception {
        long deadline = System.nanoTime() + context.timeoutMs * 1_000_000;
        while (!received.covers(expected) && System.nanoTime() < deadline) {
            step.take();
            Thread.sleep(10);
        }
    }
}
