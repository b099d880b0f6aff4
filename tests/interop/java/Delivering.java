package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Scenarios about how messages come: in order, to everybody, later, again. Each has a topic of its own. */
final class Delivering {
    private static final int ORDERS = 4;

    private Delivering() {
    }

    /**
     * Messages of one order go to one queue and arrive one after the other, at two consumers. Only a queue
     * that goes to the other consumer may begin again, at a message that came already; none is passed over.
     */
    static Map<String, Object> orderly(Context context) throws Exception {
        String topic = context.topic + "-orderly";
        MessageQueueSelector byOrder = (queues, message, order) -> queues.get((Integer) order % queues.size());
        for (int i = 0; i < context.count; i++) {
            for (int order = 0; order < ORDERS; order++) {
                Message message = new Message(topic, body(order + "/" + i));
                context.acknowledged(context.producer().send(message, byOrder, order));
            }
        }
        Map<String, List<String>> received = new ConcurrentHashMap<>();
        Set<String> again = Collections.synchronizedSet(new TreeSet<>());
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer consumer = consumer(context, "orderly", topic);
            consumer.setInstanceName("orderly-" + i);
            int member = i;
            consumer.registerMessageListener((MessageListenerOrderly) (messages, queue) -> {
                for (MessageExt message : messages) {
                    String text = text(message);
                    // The first of every order is refused once: those behind it must wait.
                    if (text.endsWith("/0") && again.add(text)) {
                        queue.setSuspendCurrentQueueTimeMillis(10);
                        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                    }
                    received.computeIfAbsent(text.split("/")[0], ignored -> new CopyOnWriteArrayList<>())
                        .add(text.split("/")[1] + "@" + member);
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        try {
            context.await("all ordered messages", () ->
                received.values().stream().mapToInt(Delivering::distinct).sum()
                    >= ORDERS * context.count);
        } finally {
            consumers.forEach(DefaultMQPushConsumer::shutdown);
        }
        Set<String> unordered = new TreeSet<>();
        received.forEach((order, numbers) -> {
            int next = 0;
            String owner = "";
            for (String number : numbers) {
                int value = Integer.parseInt(number.split("@")[0]);
                String member = number.split("@")[1];
                if (value > next || value < next && member.equals(owner)) {
                    unordered.add(order + ": " + numbers);
                    break;
                }
                next = value + 1;
                owner = member;
            }
        });
        return Map.of("orders", received.size(), "unexpected", unordered);
    }

    private static int distinct(List<String> numbers) {
        return (int) numbers.stream().map(number -> number.split("@")[0]).distinct().count();
    }

    /** Two consumers of one group get every message each. */
    static Map<String, Object> broadcasting(Context context) throws Exception {
        String topic = context.topic + "-broadcast";
        Set<String> sent = send(context, topic, 0);
        Map<String, Set<String>> received = new ConcurrentHashMap<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String name : List.of("one", "two")) {
            DefaultMQPushConsumer consumer = consumer(context, "broadcast", topic);
            consumer.setInstanceName("broadcast-" + name);
            // The type lives in another package in each release.
            consumer.setMessageModel(
                Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
            Set<String> mine = Collections.synchronizedSet(new TreeSet<>());
            received.put(name, mine);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
                messages.forEach(message -> mine.add(text(message)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        try {
            context.await("all at both", () -> received.values().stream().allMatch(sent::equals));
        } finally {
            consumers.forEach(DefaultMQPushConsumer::shutdown);
        }
        return Map.of("consumers", received.size(), "sent", sent.size());
    }

    /** Messages of delay level 1 come a second later, each once. */
    static Map<String, Object> delayed(Context context) throws Exception {
        String topic = context.topic + "-delayed";
        Set<String> sent = send(context, topic, 1);
        Map<String, Long> waited = new ConcurrentHashMap<>();
        Set<String> repeated = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = consumer(context, "delayed", topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
            for (MessageExt message : messages) {
                long ms = message.getStoreTimestamp() - message.getBornTimestamp();
                if (waited.put(text(message), ms) != null) {
                    repeated.add(text(message));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            context.await("all delayed messages", () -> waited.keySet().containsAll(sent));
        } finally {
            consumer.shutdown();
        }
        repeated.addAll(tooEarly(waited, 1000));
        return Map.of("sent", sent.size(), "waited", Collections.max(waited.values()), "unexpected", repeated);
    }

    private static Set<String> tooEarly(Map<String, Long> waited, long leastMs) {
        Set<String> found = new TreeSet<>();
        waited.forEach((text, ms) -> {
            if (ms < leastMs) {
                found.add(text + " after " + ms + " ms");
            }
        });
        return found;
    }

    /** A message that fails is tried again, and once more, and is then a dead letter. */
    static Map<String, Object> retryToDeadLetter(Context context) throws Exception {
        String topic = context.topic + "-failing";
        send(context, topic, 0, 2);
        Map<String, List<Integer>> attempts = new ConcurrentHashMap<>();
        Set<String> wrong = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = consumer(context, "failing", topic);
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, turn) -> {
            for (MessageExt message : messages) {
                attempts.computeIfAbsent(text(message), ignored -> Collections.synchronizedList(new ArrayList<>()))
                    .add(message.getReconsumeTimes());
                if (!topic.equals(message.getTopic())) {
                    wrong.add(message.getTopic());
                }
            }
            turn.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        Map<String, Integer> dead = new ConcurrentHashMap<>();
        DefaultMQPushConsumer undertaker =
            consumer(context, "undertaker", "%DLQ%" + context.group + "-failing");
        undertaker.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
            for (MessageExt message : messages) {
                dead.merge(text(message), 1, Integer::sum);
                if (message.getReconsumeTimes() != 3) {
                    wrong.add("dead after " + message.getReconsumeTimes());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        undertaker.start();
        try {
            context.await("dead letters", () -> dead.size() == 2);
        } finally {
            consumer.shutdown();
            undertaker.shutdown();
        }
        attempts.forEach((text, times) -> {
            if (!times.equals(List.of(0, 1, 2))) {
                wrong.add(text + " " + times);
            }
        });
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("attempts", new TreeMap<>(attempts));
        facts.put("dead", new TreeMap<>(dead));
        facts.put("unexpected", wrong);
        return facts;
    }

    /** Names of a namespace stay within it, and programs see them without it. */
    @SuppressWarnings("deprecation")
    static Map<String, Object> namespace(Context context) throws Exception {
        String topic = context.topic + "-space";
        DefaultMQProducer producer = new DefaultMQProducer("space", context.group + "-space-producer");
        producer.setNamesrvAddr(context.nameserver);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Set<String> received = Collections.synchronizedSet(new TreeSet<>());
        Set<String> topics = Collections.synchronizedSet(new TreeSet<>());
        try {
            context.acknowledged(producer.send(new Message(topic, body("inside"))));
            context.acknowledged(context.producer().send(new Message(topic, body("outside"))));
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("space", context.group + "-space");
            prepare(context, consumer);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
                messages.forEach(message -> {
                    received.add(text(message));
                    topics.add(message.getTopic());
                });
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            try {
                context.await("the message of the namespace", () -> received.contains("inside"));
            } finally {
                consumer.shutdown();
            }
        } finally {
            producer.shutdown();
        }
        topics.remove(topic);
        received.remove("inside");
        topics.addAll(received);
        return Map.of("unexpected", topics);
    }

    /** One message with a trace of how it was sent and consumed; says its ids. */
    static Map<String, Object> traced(Context context) throws Exception {
        String topic = context.topic + "-traced";
        long before = traces(context);
        DefaultMQProducer producer = new DefaultMQProducer(
            context.group + "-traced-producer", (RPCHook) null, true, null);
        producer.setNamesrvAddr(context.nameserver);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Map<String, Object> facts = new LinkedHashMap<>();
        Set<String> received = Collections.synchronizedSet(new TreeSet<>());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            context.group + "-traced", (RPCHook) null, new AllocateMessageQueueAveragely(), true, null);
        try {
            SendResult result = producer.send(new Message(topic, "TagA", "traced-key", body("traced")));
            context.acknowledged(result);
            facts.put("id", result.getMsgId());
            prepare(context, consumer);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
                messages.forEach(message -> received.add(text(message)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            context.await("the traced message", () -> received.contains("traced"));
            // One record of the send, one or two of the consumption; who shuts down at once writes none.
            context.await("its trace", () -> traces(context) >= before + 2);
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
        return facts;
    }

    /** How many records of traces there are. */
    private static long traces(Context context) throws Exception {
        long count = 0;
        try {
            for (MessageQueue queue : context.producer().fetchPublishMessageQueues("RMQ_SYS_TRACE_TOPIC")) {
                count += context.producer().maxOffset(queue);
            }
        } catch (MQClientException e) {
            return 0;  // the first record makes the topic
        }
        return count;
    }

    /** A new group reads a young topic from its beginning, wherever it says that it starts. */
    static Map<String, Object> fromWhere(Context context) throws Exception {
        String topic = context.topic + "-young";
        Set<String> sent = send(context, topic, 0);
        Set<String> missing = new TreeSet<>();
        for (ConsumeFromWhere where : List.of(
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)) {
            Set<String> received = Collections.synchronizedSet(new TreeSet<>());
            DefaultMQPushConsumer consumer = consumer(context, where.name(), topic);
            consumer.setConsumeFromWhere(where);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
                messages.forEach(message -> received.add(text(message)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            try {
                context.await("all from " + where, () -> received.containsAll(sent));
            } catch (IllegalStateException e) {
                missing.add(where + " got " + received.size() + " of " + sent.size());
            } finally {
                consumer.shutdown();
            }
        }
        return Map.of("missing", missing);
    }

    private static Set<String> send(Context context, String topic, int level) throws Exception {
        return send(context, topic, level, context.count);
    }

    private static Set<String> send(Context context, String topic, int level, int count) throws Exception {
        Set<String> sent = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, body("message-" + i));
            message.setDelayTimeLevel(level);
            context.acknowledged(context.producer().send(message));
            sent.add("message-" + i);
        }
        return sent;
    }

    private static DefaultMQPushConsumer consumer(Context context, String name, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(context.group + "-" + name);
        prepare(context, consumer);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void prepare(Context context, DefaultMQPushConsumer consumer) {
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    }

    private static byte[] body(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
