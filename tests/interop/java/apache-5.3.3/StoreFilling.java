package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Messages of every kind that the Java client can send, and committed offsets. */
final class StoreFilling {
    private static final int BIG_BYTES = (1 << 20) + (1 << 18);
    private static final int NEVER_COMPRESS = Integer.MAX_VALUE;

    private final String nameserver;
    private final DefaultMQAdminExt admin;
    private final DefaultMQProducer producer;

    StoreFilling(String nameserver, DefaultMQAdminExt admin) throws Exception {
        this.nameserver = nameserver;
        this.admin = admin;
        producer = started(new DefaultMQProducer("store-filler"));
    }

    private <P extends DefaultMQProducer> P started(P made) throws Exception {
        made.setNamesrvAddr(nameserver);
        made.setInstanceName(made.getProducerGroup());
        made.setSendMsgTimeout(10_000);
        made.setRetryTimesWhenSendFailed(0);
        made.start();
        return made;
    }

    /** {@code ADDRESS}: makes a broker register now. It does so whenever its permission is set. */
    Object register(List<String> arguments) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("brokerPermission", "6");
        admin.updateBrokerConfig(arguments.get(0), settings);
        return true;
    }

    /** {@code ADDRESS TOPIC:QUEUES...}: makes topics and returns when clients can find them. */
    Object create(List<String> arguments) throws Exception {
        for (String name : arguments.subList(1, arguments.size())) {
            MessageQueue parts = StoreReading.queue("", name);
            admin.createAndUpdateTopicConfig(
                arguments.get(0), new TopicConfig(parts.getTopic(), parts.getQueueId(), parts.getQueueId()));
        }
        for (String name : arguments.subList(1, arguments.size())) {
            awaitRoute(StoreReading.queue("", name).getTopic());
        }
        return arguments.size() - 1;
    }

    private void awaitRoute(String topic) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                if (tries == 200) {
                    throw e;
                }
                Thread.sleep(50);
            }
        }
    }

    /** {@code BROKER COUNT TOPIC:QUEUE...}: sends to each queue one by one and then a batch; says where each is. */
    Object send(List<String> arguments) throws Exception {
        int count = Integer.parseInt(arguments.get(1));
        List<Object> places = new ArrayList<>();
        for (String name : arguments.subList(2, arguments.size())) {
            MessageQueue queue = StoreReading.queue(arguments.get(0), name);
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                places.add(place(producer.send(message(queue.getTopic(), "later-" + name + "-" + i), queue)));
                batch.add(message(queue.getTopic(), "batch-" + name + "-" + i));
            }
            SendResult result = producer.send(batch, queue);
            places.add(place(result));
        }
        return places;
    }

    private static Message message(String topic, String text) {
        return new Message(topic, "later", "key-" + text, text.getBytes(StandardCharsets.UTF_8));
    }

    private static Map<String, Object> place(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not stored: " + result);
        }
        return Map.of(
            "topic", result.getMessageQueue().getTopic(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset(),
            "offsetMsgIds", List.of(result.getOffsetMsgId().split(",")));
    }

    /** {@code BROKER PREFIX}: sends messages of every kind to the topics with this prefix. */
    Object fill(List<String> arguments) throws Exception {
        String broker = arguments.get(0);
        String prefix = arguments.get(1);
        plain(new MessageQueue(prefix + "plain", broker, 0));
        batches(new MessageQueue(prefix + "batch", broker, 0));
        large(new MessageQueue(prefix + "large", broker, 0));
        compressed(new MessageQueue(prefix + "packed", broker, 0));
        later(new MessageQueue(prefix + "delay", broker, 0));
        transactions(prefix + "half");
        return true;
    }

    private void plain(MessageQueue first) throws Exception {
        String[] tags = {"TagA", "TagB", "标签", null};
        for (int i = 0; i < 240; i++) {
            Message message = new Message(first.getTopic(), ("text " + i + " ✓ 中文 😀").getBytes(StandardCharsets.UTF_8));
            message.setTags(tags[i % tags.length]);
            message.setKeys(i % 5 == 0 ? "ключ-" + i + " 🔑-" + i : "key-" + i + " every-" + i % 7);
            message.putUserProperty("цвет", "красный " + i);
            message.setFlag(i);
            producer.send(message, new MessageQueue(first.getTopic(), first.getBrokerName(), i % 4));
        }
    }

    private void batches(MessageQueue queue) throws Exception {
        for (int batch = 0; batch < 6; batch++) {
            List<Message> messages = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                String text = "b" + batch + "-" + i;
                messages.add(new Message(queue.getTopic(), "TagB", text, text.getBytes(StandardCharsets.UTF_8)));
            }
            producer.send(messages, queue);
        }
    }

    private void large(MessageQueue queue) throws Exception {
        byte[] body = new byte[BIG_BYTES];
        new Random(7).nextBytes(body);
        int usual = producer.getCompressMsgBodyOverHowmuch();
        producer.setCompressMsgBodyOverHowmuch(NEVER_COMPRESS);
        try {
            for (int i = 0; i < 4; i++) {
                producer.send(new Message(queue.getTopic(), "Big", "big-" + i, body), queue);
            }
        } finally {
            producer.setCompressMsgBodyOverHowmuch(usual);
        }
    }

    private void compressed(MessageQueue queue) throws Exception {
        byte[] body = "compress me, please ".repeat(20_000).getBytes(StandardCharsets.UTF_8);
        CompressionType usual = producer.getCompressType();
        try {
            for (CompressionType type : CompressionType.values()) {
                producer.setCompressType(type);
                producer.send(new Message(queue.getTopic(), "Packed", "packed-" + type, body), queue);
            }
        } finally {
            producer.setCompressType(usual);
        }
    }

    /** Some that come at once, by level and by timer, and some that are not due for hours. */
    private void later(MessageQueue queue) throws Exception {
        for (int level : new int[] {1, 1, 18}) {
            Message message = message(queue.getTopic(), "level-" + level);
            message.setDelayTimeLevel(level);
            producer.send(message, queue);
        }
        for (int seconds : new int[] {1, 1, 7200}) {
            Message message = message(queue.getTopic(), "timer-" + seconds);
            message.setDelayTimeMs(1000L * seconds);
            producer.send(message, queue);
        }
        for (int tries = 0; admin.maxOffset(queue) < 4; tries++) {
            if (tries == 400) {
                throw new IllegalStateException("only " + admin.maxOffset(queue) + " of 4 were delivered");
            }
            Thread.sleep(50);
        }
    }

    private void transactions(String topic) throws Exception {
        TransactionMQProducer transactional = new TransactionMQProducer("store-transactions-" + topic);
        transactional.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        started(transactional);
        try {
            for (LocalTransactionState state : LocalTransactionState.values()) {
                for (int i = 0; i < 2; i++) {
                    transactional.sendMessageInTransaction(message(topic, state + "-" + i), state);
                }
            }
        } finally {
            transactional.shutdown();
        }
    }

    /** {@code BROKER TOPIC QUEUES FILE}: sends until the broker is gone; the file says what was acknowledged. */
    Object burst(List<String> arguments) throws Exception {
        Path file = Path.of(arguments.get(3));
        Files.createFile(file);
        int queues = Integer.parseInt(arguments.get(2));
        Thread sender = new Thread(() -> {
            try {
                for (int i = 0; ; i++) {
                    MessageQueue queue = new MessageQueue(arguments.get(1), arguments.get(0), i % queues);
                    SendResult result = producer.send(message(queue.getTopic(), "burst-" + i), queue, 3_000);
                    Files.writeString(file, Json.of(place(result)) + "\n", StandardOpenOption.APPEND);
                }
            } catch (Exception e) {
                // The broker was killed, as the test wanted.
            }
        }, "burst");
        sender.setDaemon(true);
        sender.start();
        return true;
    }
}
