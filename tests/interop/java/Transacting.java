package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Scenarios of transactions, and of requests that are answered. Each has a topic of its own. */
final class Transacting {
    /** What the bodies of messages begin with says what becomes of them, now and when asked. */
    private static final Map<String, LocalTransactionState[]> KINDS = new LinkedHashMap<>();

    private static final String PARKED = "TRANS_CHECK_MAX_TIME_TOPIC";
    private static final int GRACE_SECONDS = 4;
    private static final Set<String> MOVED = Set.of("commit", "rollback", "later-commit", "later-rollback");

    static {
        LocalTransactionState commit = LocalTransactionState.COMMIT_MESSAGE;
        LocalTransactionState rollback = LocalTransactionState.ROLLBACK_MESSAGE;
        LocalTransactionState unknown = LocalTransactionState.UNKNOW;
        KINDS.put("commit", states(commit, null));
        KINDS.put("rollback", states(rollback, null));
        KINDS.put("later-commit", states(unknown, commit));
        KINDS.put("later-rollback", states(unknown, rollback));
        KINDS.put("grace", states(unknown, commit));
        KINDS.put("never", states(unknown, unknown));
    }

    private Transacting() {
    }

    private static LocalTransactionState[] states(LocalTransactionState... states) {
        return states;
    }

    /** Notes what it is asked, and answers by the kind of the message. */
    private static final class Listener implements TransactionListener {
        final Map<String, Integer> checks = new ConcurrentHashMap<>();
        final Map<String, Integer> counters = new ConcurrentHashMap<>();
        final Map<String, Long> firstAsked = new ConcurrentHashMap<>();
        final Set<String> odd = Collections.synchronizedSet(new TreeSet<>());

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return KINDS.get(kind(text(message)))[0];
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String text = text(message);
            firstAsked.putIfAbsent(text, System.currentTimeMillis() - message.getBornTimestamp());
            int times = checks.merge(text, 1, Integer::sum);
            // A check before the first heartbeat finds nobody to ask, and counts all the same.
            int counter = Integer.parseInt(message.getProperty("TRANSACTION_CHECK_TIMES"));
            Integer before = counters.put(text, counter);
            if (before != null && counter != before + 1) {
                odd.add(text + ": check " + counter + " after check " + before);
            }
            LocalTransactionState state = KINDS.get(kind(text))[1];
            if (state == null) {
                return LocalTransactionState.UNKNOW;  // on a slow machine its end is still under way
            }
            // Nobody knows the first time.
            return times == 1 ? LocalTransactionState.UNKNOW : state;
        }
    }

    /** Committed messages come, at once or after a check, others never; what nobody ends is parked. */
    static Map<String, Object> transactions(Context context) throws Exception {
        String topic = context.topic + "-transactions";
        Listener listener = new Listener();
        Map<String, Integer> received = new ConcurrentHashMap<>();
        Set<String> parked = Collections.synchronizedSet(new TreeSet<>());
        TransactionMQProducer producer = new TransactionMQProducer(context.group + "-transactions");
        producer.setNamesrvAddr(context.nameserver);
        producer.setTransactionListener(listener);
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval(500);  // the broker must know it to ask it
        producer.start();
        DefaultMQPushConsumer consumer = null;
        DefaultMQPushConsumer watcher = null;
        try {
            Set<String> delivered = send(context, topic, producer, KINDS.keySet());
            consumer = consumer(context, "transactions", topic, text -> received.merge(text, 1, Integer::sum));
            context.await("all that were committed", () -> received.keySet().containsAll(delivered));
            context.await("those who should roll back, twice asked", () -> listener.checks.entrySet().stream()
                .filter(one -> kind(one.getKey()).equals("later-rollback")).allMatch(one -> one.getValue() >= 2));
            String last = "commit-last";
            context.acknowledged(context.producer().send(new Message(topic, last.getBytes(StandardCharsets.UTF_8))));
            watcher = consumer(context, "parked", PARKED, parked::add);
            context.await("a parked message, of which nobody knows",
                () -> parked.contains(text(context, "never")) && received.containsKey(last));
            delivered.add(last);
            Set<String> missing = new TreeSet<>(delivered);
            missing.removeAll(received.keySet());
            Set<String> unexpected = new TreeSet<>(listener.odd);
            for (String kind : Set.of("commit", "rollback", "later-commit", "later-rollback", "grace")) {
                // A check may overtake an end; but what was never heard of is parked before "never".
                if (parked.contains(text(context, kind))) {
                    unexpected.add(kind + " was settled and is parked");
                }
            }
            received.forEach((text, times) -> {
                if (times != 1 || !delivered.contains(text)) {
                    unexpected.add(text + " came " + times + " times");
                }
            });
            if (listener.firstAsked.get(text(context, "grace")) < 1000 * GRACE_SECONDS) {
                unexpected.add("grace was asked about too early: " + listener.firstAsked);
            }
            return Map.of(
                "missing", missing,
                "unexpected", unexpected,
                "received", received.size(),
                "checks", new LinkedHashMap<>(listener.checks),
                "lastCheck", listener.counters.get(text(context, "never")));
        } finally {
            if (consumer != null) {
                consumer.shutdown();
            }
            if (watcher != null) {
                watcher.shutdown();
            }
            producer.shutdown();
        }
    }

    /** Leaves transactions behind, two of them open. */
    static Map<String, Object> begin(Context context) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(context.group + "-moving");
        producer.setNamesrvAddr(context.nameserver);
        producer.setTransactionListener(new Listener());
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval(500);  // the broker must know it to ask it
        producer.start();
        try {
            return Map.of("delivered", send(context, context.topic, producer, MOVED));
        } finally {
            producer.shutdown();
        }
    }

    /** Another broker has the directory now: it asks about those that are open, and about no others. */
    static Map<String, Object> end(Context context) throws Exception {
        Set<String> asked = Collections.synchronizedSet(new TreeSet<>());
        Map<String, Integer> received = new ConcurrentHashMap<>();
        TransactionMQProducer producer = new TransactionMQProducer(context.group + "-moving");
        producer.setNamesrvAddr(context.nameserver);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                throw new IllegalStateException("no transaction begins here");
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.add(kind(text(message)));
                return kind(text(message)).endsWith("commit")
                    ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.setSendMsgTimeout(10_000);
        producer.setHeartbeatBrokerInterval(500);  // the broker must know it to ask it
        producer.start();
        DefaultMQPushConsumer consumer = null;
        try {
            // Its first message tells the broker who it is.
            Message last = new Message(context.topic, "last".getBytes(StandardCharsets.UTF_8));
            context.acknowledged(producer.send(last));
            context.await("checks of both", () -> asked.contains("later-commit") && asked.contains("later-rollback"));
            consumer = consumer(context, "moving", context.topic, text -> received.merge(kind(text), 1, Integer::sum));
            context.await("all that were committed",
                () -> received.keySet().containsAll(Set.of("commit", "later-commit", "last")));
            return Map.of("asked", asked, "received", new LinkedHashMap<>(received));
        } finally {
            if (consumer != null) {
                consumer.shutdown();
            }
            producer.shutdown();
        }
    }

    private static Set<String> send(
        Context context, String topic, TransactionMQProducer producer, Set<String> kinds) throws Exception {
        Set<String> delivered = new TreeSet<>();
        for (Map.Entry<String, LocalTransactionState[]> kind : KINDS.entrySet()) {
            if (!kinds.contains(kind.getKey())) {
                continue;
            }
            String text = text(context, kind.getKey());
            Message message = new Message(topic, "TagA", "key-" + text, text.getBytes(StandardCharsets.UTF_8));
            message.setDelayTimeLevel(3);  // the client takes it off again
            if (kind.getKey().equals("grace")) {
                message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", String.valueOf(GRACE_SECONDS));
            }
            context.acknowledged(producer.sendMessageInTransaction(message, null));
            boolean comes = kind.getValue()[0] == LocalTransactionState.COMMIT_MESSAGE
                || kind.getValue()[1] == LocalTransactionState.COMMIT_MESSAGE;
            if (comes) {
                delivered.add(text);
            }
        }
        return delivered;
    }

    private static String text(Context context, String kind) {
        return kind + "/" + context.group;
    }

    private static String kind(String text) {
        return text.split("/")[0];
    }

    /** Answers to questions come back to whoever asked, by callback. */
    static Map<String, Object> requestByCallback(Context context) throws Exception {
        return request(context, (producer, message, answers) ->
            producer.request(message, new RequestCallback() {
                @Override
                public void onSuccess(Message answer) {
                    answers.put(text(message), text(answer));
                }

                @Override
                public void onException(Throwable e) {
                    answers.put(text(message), e.toString());
                }
            }, context.timeoutMs));
    }

    /** The same, with the caller waiting. Clients 5.3.1 to 5.3.3 cannot: they forget to wait. */
    static Map<String, Object> requestAndWait(Context context) throws Exception {
        return request(context, (producer, message, answers) ->
            answers.put(text(message), text(producer.request(message, context.timeoutMs))));
    }

    private interface Asking {
        void ask(DefaultMQProducer producer, Message message, Map<String, String> answers) throws Exception;
    }

    private static Map<String, Object> request(Context context, Asking asking) throws Exception {
        String topic = context.topic + "-questions";
        Map<String, String> answers = new ConcurrentHashMap<>();
        // The topic must be there before anybody can listen to it.
        context.acknowledged(context.producer().send(new Message(topic, "nothing".getBytes(StandardCharsets.UTF_8))));
        DefaultMQProducer replying = new DefaultMQProducer(context.group + "-replying");
        replying.setNamesrvAddr(context.nameserver);
        replying.setInstanceName("replying");
        replying.start();
        // A producer that looks for the topic for the first time tells the brokers who it is, too.
        DefaultMQProducer asker = new DefaultMQProducer(context.group + "-asking");
        asker.setNamesrvAddr(context.nameserver);
        asker.setInstanceName("asking-" + System.nanoTime());
        asker.start();
        DefaultMQPushConsumer consumer = listening(context, "questions", topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
            for (MessageExt message : messages) {
                if (message.getProperty("CORRELATION_ID") != null) {
                    try {
                        byte[] body = ("answer to " + text(message)).getBytes(StandardCharsets.UTF_8);
                        replying.send(MessageUtil.createReplyMessage(message, body), 10_000);
                    } catch (Exception e) {
                        e.printStackTrace();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Set<String> unexpected = new TreeSet<>();
        try {
            for (int i = 0; i < context.count; i++) {
                Message message = new Message(topic, ("question " + i).getBytes(StandardCharsets.UTF_8));
                asking.ask(asker, message, answers);
            }
            context.await("all answers", () -> answers.size() == context.count);
        } finally {
            consumer.shutdown();
            asker.shutdown();
            replying.shutdown();
        }
        answers.forEach((question, answer) -> {
            if (!answer.equals("answer to " + question)) {
                unexpected.add(question + ": " + answer);
            }
        });
        return Map.of("answers", answers.size(), "unexpected", unexpected);
    }

    private interface Hearing {
        void hear(String text);
    }

    private static DefaultMQPushConsumer consumer(Context context, String name, String topic, Hearing hearing)
        throws Exception {
        DefaultMQPushConsumer consumer = listening(context, name, topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, ignored) -> {
            messages.forEach(message -> hearing.hear(text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static DefaultMQPushConsumer listening(Context context, String name, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(context.group + "-" + name);
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setPollNameServerInterval(1000);
        // One that starts before its topic is there knows no broker that could hear its first heartbeat.
        consumer.setHeartbeatBrokerInterval(500);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
