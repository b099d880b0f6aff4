package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends a message with every kind of delay, takes one back, and prints how long each one waited. */
public final class Timers {
    private static final long RECALLED_MS = 3_500;
    private static final long PATIENCE_MS = 30_000;

    private Timers() {
    }

    public static void main(String[] arguments) throws Exception {
        String nameserver = arguments[0];
        String topic = arguments[1];
        DefaultMQProducer producer = new DefaultMQProducer(topic + "-producer");
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        SendResult first = producer.send(message(topic, "at-once"));
        Map<String, Long> came = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consume(nameserver, topic, came);

        Map<String, Object> report = new LinkedHashMap<>();
        report.put("plainHandle", first.getRecallHandle());
        long begin = System.currentTimeMillis();
        Map<String, Message> messages = new LinkedHashMap<>();
        for (String name : new String[] {"level", "ms", "sec", "at", "recalled"}) {
            messages.put(name, message(topic, name));
        }
        messages.get("level").setDelayTimeLevel(1);
        messages.get("ms").setDelayTimeMs(1_234);
        messages.get("sec").setDelayTimeSec(2);
        messages.get("at").setDeliverTimeMs(begin + 2_500);
        messages.get("recalled").setDelayTimeMs(RECALLED_MS);
        for (Map.Entry<String, Message> each : messages.entrySet()) {
            SendResult result = producer.send(each.getValue());
            report.put(each.getKey() + "Handle", result.getRecallHandle());
            if (each.getKey().equals("recalled")) {
                report.put("recalledId", result.getMsgId());
                report.put("recallAnswer", producer.recallMessage(topic, result.getRecallHandle()));
            }
        }
        report.put("recallRefused", refusal(producer, topic));
        while (came.size() < messages.size() && System.currentTimeMillis() < begin + PATIENCE_MS) {
            Thread.sleep(10);
        }
        // Long enough for what was taken back to come if it comes.
        Thread.sleep(Math.max(0, begin + RECALLED_MS + 1_500 - System.currentTimeMillis()));
        Map<String, Long> waited = new LinkedHashMap<>();
        came.forEach((name, at) -> waited.put(name, at - begin));
        report.put("waited", waited);
        System.out.println(Json.of(report));
        consumer.shutdown();
        producer.shutdown();
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static DefaultMQPushConsumer consume(String nameserver, String topic, Map<String, Long> came)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "-group");
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(
            org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                came.put(new String(message.getBody(), StandardCharsets.UTF_8), System.currentTimeMillis());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (!came.containsKey("at-once")) {
            Thread.sleep(10);
        }
        return consumer;
    }

    /** What the broker says to a handle that is no handle. */
    private static String refusal(DefaultMQProducer producer, String topic) {
        try {
            producer.recallMessage(topic, "bm8gaGFuZGxl");
            return "none";
        } catch (Exception e) {
            return String.valueOf(e.getMessage());
        }
    }
}
