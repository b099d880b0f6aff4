package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a push consumer that stay until standard input ends, for an administrator to look at.
 *
 * <p>Usage: {@code Staying nameserver=HOST:PORT topic=T group=G [tags=EXPRESSION]}. Each message that
 * arrives is one line of JSON.
 */
public final class Staying {
    private Staying() {
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new LinkedHashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            options.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        String nameserver = options.get("nameserver");
        // Both are one client: the first heartbeat of the consumer also speaks of the producer.
        String tags = options.getOrDefault("tags", "*");
        String instance = options.get("group") + "-" + Integer.toHexString(tags.hashCode());
        DefaultMQProducer producer = new DefaultMQProducer(options.get("group") + "-producer");
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName(instance);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(instance);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("staying as " + consumer.buildMQClientId());
        while (System.in.read() >= 0) {
            // Whatever it is: only the end counts.
        }
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    private static void print(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        line.put("topic", message.getTopic());
        line.put("queue", message.getQueueId());
        line.put("offset", message.getQueueOffset());
        System.out.println(Json.of(line));
    }
}
