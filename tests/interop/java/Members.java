package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Some members of one consumer group, each a client of its own, until standard input ends.
 *
 * <p>Usage: {@code Members nameserver=HOST:PORT topic=T group=G count=N ordered=BOOLEAN}. Each message
 * that arrives is one line of JSON; each line of standard input takes the last member away.
 */
public final class Members {
    private Members() {
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new LinkedHashMap<>();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            options.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        boolean ordered = Boolean.parseBoolean(options.get("ordered"));
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(options.get("count")); number++) {
            members.add(start(options, "java-" + number, ordered));
        }
        System.out.println("members ready");
        int read = System.in.read();
        while (read >= 0) {
            if (read == '\n' && !members.isEmpty()) {
                members.remove(members.size() - 1).shutdown();
                System.out.println(members.size() + " members left");
            }
            read = System.in.read();
        }
        for (DefaultMQPushConsumer member : members) {
            member.shutdown();
        }
        System.exit(0);
    }

    private static DefaultMQPushConsumer start(Map<String, String> options, String name, boolean ordered)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        consumer.setNamesrvAddr(options.get("nameserver"));
        consumer.setInstanceName(options.get("group") + "-" + name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.get("topic"), "*");
        if (ordered) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                print(messages, name);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                print(messages, name);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        return consumer;
    }

    private static void print(List<MessageExt> messages, String member) {
        for (MessageExt message : messages) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
            line.put("queue", message.getQueueId());
            line.put("offset", message.getQueueOffset());
            line.put("member", member);
            line.put("at", System.currentTimeMillis());
            System.out.println(Json.of(line));
        }
    }
}
