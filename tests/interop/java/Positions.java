package firearrow.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Scenarios about where a consumer reads: offsets that are in, at the edge of and outside a queue. */
final class Positions {
    private Positions() {
    }

    /** Pulls at every kind of offset, and by time. */
    @SuppressWarnings("deprecation")
    static Map<String, Object> pullOffsets(Context context) throws Exception {
        MessageQueue queue = fill(context, context.topic + "-offsets");
        Set<String> wrong = new TreeSet<>();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(context.group + "-offsets");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.start();
        try {
            long max = consumer.maxOffset(queue);
            check(wrong, "max", max, (long) context.count);
            check(wrong, "min", consumer.minOffset(queue), 0L);
            check(wrong, consumer.pull(queue, "*", max, 32), PullStatus.NO_NEW_MSG, max);
            check(wrong, consumer.pull(queue, "*", max + 10, 32), PullStatus.OFFSET_ILLEGAL, max);
            check(wrong, consumer.pull(queue, "*", max - 1, 32), PullStatus.FOUND, max);
            check(wrong, consumer.pull(queue, "*", 0, 3), PullStatus.FOUND, 3L);
            check(wrong, consumer.pull(queue, "NoSuchTag", 0, 32), PullStatus.NO_MATCHED_MSG, max);
            check(wrong, "by time, all", consumer.searchOffset(queue, 0), 0L);
            check(wrong, "by time, none", consumer.searchOffset(queue, System.currentTimeMillis() + 60_000), max);
            // The broker has a young queue read from its beginning.
            check(wrong, "none committed", consumer.fetchConsumeOffset(queue, true), 0L);
            consumer.updateConsumeOffset(queue, 5);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            context.await("the committed offset", () -> consumer.fetchConsumeOffset(queue, true) == 5);
        } finally {
            consumer.shutdown();
        }
        return Map.of("unexpected", wrong);
    }

    /** A lite pull consumer that is given its queue, seeks, commits and goes on where it was. */
    static Map<String, Object> liteAssign(Context context) throws Exception {
        MessageQueue queue = fill(context, context.topic + "-assigned");
        Set<String> wrong = new TreeSet<>();
        List<Long> first = read(context, queue, 4L, context.count - 4);
        List<Long> second = read(context, queue, null, 0);
        check(wrong, "first read", first.get(0), 4L);
        check(wrong, "read", (long) first.size(), (long) context.count - 4);
        check(wrong, "read after the commit", (long) second.size(), 0L);
        return Map.of("unexpected", wrong);
    }

    private static List<Long> read(Context context, MessageQueue queue, Long seek, int expected) throws Exception {
        List<Long> offsets = new ArrayList<>();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(context.group + "-assigned");
        consumer.setNamesrvAddr(context.nameserver);
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            consumer.assign(List.of(queue));
            long deadline = System.nanoTime() + (expected > 0 ? context.timeoutMs : 300) * 1_000_000;
            if (seek != null) {
                // The client pulls from the moment of its assignment, and may have done so before
                // the jump: only what comes from its goal on counts.
                while (consumer.poll(100).isEmpty() && System.nanoTime() < deadline) {
                    continue;
                }
                consumer.seek(queue, seek);
            }
            while ((expected == 0 || offsets.size() < expected) && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(100)) {
                    if (seek == null || !offsets.isEmpty() || message.getQueueOffset() == seek) {
                        offsets.add(message.getQueueOffset());
                    }
                }
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
        return offsets;
    }

    /** Sends everything to one queue of a new topic. */
    private static MessageQueue fill(Context context, String topic) throws Exception {
        MessageQueue queue = null;
        for (int i = 0; i < context.count; i++) {
            Message message = new Message(topic, ("message-" + i).getBytes(StandardCharsets.UTF_8));
            SendResult result = queue == null
                ? context.producer().send(message)
                : context.producer().send(message, queue);
            context.acknowledged(result);
            queue = result.getMessageQueue();
        }
        return queue;
    }

    private static void check(Set<String> wrong, String what, Object found, Object expected) {
        if (!expected.equals(found)) {
            wrong.add(what + " is " + found + ", not " + expected);
        }
    }

    private static void check(Set<String> wrong, PullResult result, PullStatus status, long next) {
        check(wrong, "status", result.getPullStatus(), status);
        check(wrong, "next offset of " + status, result.getNextBeginOffset(), next);
    }
}
