package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the scenarios of one round share: where to connect, the producer, and what was sent. */
final class Context {
    final String nameserver;
    final String topic;
    final String group;
    final int count;
    final long timeoutMs;

    /** Every body sent so far with its tag, in the order of sending. */
    final Map<String, String> sent = Collections.synchronizedMap(new LinkedHashMap<>());

    /** The brokers that acknowledged something. */
    final Set<String> brokers = Collections.synchronizedSet(new TreeSet<>());

    private DefaultMQProducer producer;

    Context(Map<String, String> options) {
        nameserver = required(options, "nameserver");
        topic = required(options, "topic");
        group = required(options, "group");
        count = Integer.parseInt(options.getOrDefault("count", "16"));
        timeoutMs = 1000 * Long.parseLong(options.getOrDefault("timeout", "30"));
    }

    private static String required(Map<String, String> options, String name) {
        String value = options.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing " + name + "=...");
        }
        return value;
    }

    DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer(group + "-producer");
            producer.setNamesrvAddr(nameserver);
            producer.setPollNameServerInterval(1000);
            // The first send to a new topic waits for the broker to create its files.
            producer.setSendMsgTimeout(10_000);
            producer.start();
        }
        return producer;
    }

    /** Makes a message whose body says which scenario sent it; tags alternate. */
    Message message(String scenario, int index) {
        String tag = index % 2 == 0 ? "TagA" : "TagB";
        String body = scenario + "-" + index;
        return new Message(topic, tag, key(scenario, index), body.getBytes(StandardCharsets.UTF_8));
    }

    String key(String scenario, int index) {
        return "key-" + scenario + "-" + index;
    }

    void remember(Message message) {
        sent.put(new String(message.getBody(), StandardCharsets.UTF_8), message.getTags());
    }

    void acknowledged(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not stored: " + result);
        }
        brokers.add(result.getMessageQueue().getBrokerName());
    }

    /**
     * Waits until the name server knows the topic on every broker that acknowledged a message.
     *
     * <p>A broker that has just created a topic answers the producer before it registers the topic, and
     * a consumer that starts in between finds the queues only when it refreshes its route.
     */
    void awaitRoute() throws Exception {
        await("route of " + topic + " on " + brokers, () -> {
            Set<String> known = new TreeSet<>();
            try {
                for (MessageQueue queue : producer().fetchPublishMessageQueues(topic)) {
                    known.add(queue.getBrokerName());
                }
            } catch (org.apache.rocketmq.client.exception.MQClientException e) {
                return false;
            }
            return known.containsAll(brokers);
        });
    }

    /** A question that is asked again until the answer is yes. */
    interface Question {
        boolean ask() throws Exception;
    }

    void await(String what, Question question) throws Exception {
        long deadline = System.nanoTime() + timeoutMs * 1_000_000;
        while (!question.ask()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not within " + timeoutMs + " ms: " + what);
            }
            Thread.sleep(20);
        }
    }

    void close() {
        if (producer != null) {
            producer.shutdown();
        }
    }
}
