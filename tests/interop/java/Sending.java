package firearrow.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Scenarios that send, and the one that asks for what was sent by its key. */
final class Sending {
    private Sending() {
    }

    static Map<String, Object> sync(Context context) throws Exception {
        for (int i = 0; i < context.count; i++) {
            Message message = context.message("sync-send", i);
            context.acknowledged(context.producer().send(message));
            context.remember(message);
        }
        return facts(context);
    }

    static Map<String, Object> async(Context context) throws Exception {
        CountDownLatch answers = new CountDownLatch(context.count);
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < context.count; i++) {
            Message message = context.message("async-send", i);
            context.producer().send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    try {
                        context.acknowledged(result);
                        context.remember(message);
                    } catch (RuntimeException e) {
                        errors.add(e);
                    }
                    answers.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    errors.add(e);
                    answers.countDown();
                }
            });
        }
        if (!answers.await(context.timeoutMs, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException(answers.getCount() + " sends were never answered");
        }
        if (!errors.isEmpty()) {
            throw new IllegalStateException(errors.size() + " sends failed", errors.peek());
        }
        return facts(context);
    }

    static Map<String, Object> oneway(Context context) throws Exception {
        for (int i = 0; i < context.count; i++) {
            Message message = context.message("oneway-send", i);
            context.producer().sendOneway(message);
            context.remember(message);
        }
        return facts(context);
    }

    static Map<String, Object> batch(Context context) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < context.count; i++) {
            messages.add(context.message("batch-send", i));
        }
        SendResult result = context.producer().send(messages);
        context.acknowledged(result);
        messages.forEach(context::remember);
        int ids = result.getMsgId().split(",").length;
        if (ids != context.count) {
            throw new IllegalStateException(ids + " message ids for " + context.count + " messages");
        }
        return facts(context);
    }

    /** Finds the first message of sync-send by its key. */
    static Map<String, Object> queryByKey(Context context) throws Exception {
        String key = context.key("sync-send", 0);
        List<String> found = new ArrayList<>();
        // The broker builds its index after it has answered the send.
        context.await("message with key " + key, () -> {
            try {
                QueryResult result = context.producer().queryMessage(
                    context.topic, key, 32, 0, System.currentTimeMillis() + 60_000);
                result.getMessageList().forEach(message -> found.add(message.getKeys()));
                return true;
            } catch (MQClientException e) {
                return false;
            }
        });
        return Map.of("key", key, "found", found);
    }

    private static Map<String, Object> facts(Context context) {
        return Map.of("sent", context.count, "brokers", context.brokers);
    }
}
